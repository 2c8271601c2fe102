//! How long an urgent request waits for its first token behind thousands of another tenant's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::workers::one_each;
use e2e::{Setup, Stack};
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;
use warmroute_demo::load::{Outcome, Target, send};
use warmroute_demo::report::{Quantiles, percentile};

use crate::bed::{A, B, Prompts, WEIGHTED, WORKERS, chat, flow_control, key, objective, tenant};

const ENGINES: usize = 4;
/// Requests at once at each engine.
const PLACES: usize = 16;
/// B's requests, all at once.
const BATCH: usize = 2_000;
const BATCH_PROMPT: usize = 1_000;
const BATCH_REPLY: usize = 256;
/// A's.
const PROMPT: usize = 40;
const REPLY: usize = 16;
/// From one of A's requests to the next, whether that was answered or not.
const EVERY: Duration = Duration::from_millis(100);
/// For one request.
const LIMIT: Duration = Duration::from_secs(240);
/// One queue for all, first come, first served.
const FIFO: &str = "global-strict-fairness-policy";

/// A's times to first token.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Interactive {
    /// In one queue for all.
    pub fifo_ms: Quantiles,
    /// When A has priority.
    pub priority_ms: Quantiles,
    /// With equal priority and weights 3:1.
    pub weighted_ms: Quantiles,
    /// How many of A's requests there were in each.
    pub requests: [usize; 3],
    /// All times, sorted, for the plot.
    #[serde(skip)]
    pub samples_ms: [Vec<f64>; 3],
}

/// A's p99 as a share of what one queue gives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratios {
    /// When A has priority.
    pub priority: f64,
    /// With equal priority and weights 3:1.
    pub weighted: f64,
}

/// One queue, then priority, then weights.
///
/// # Errors
/// When a request fails.
pub async fn measure() -> Result<Interactive> {
    let prompts = Prompts::new()?;
    let batch: Vec<Value> = (0..BATCH)
        .map(|_| Ok(chat(&prompts.text(BATCH_PROMPT)?, BATCH_REPLY)))
        .collect::<Result<_>>()?;
    let urgent = "  inject: {objective: urgent}";
    let mut samples_ms: [Vec<f64>; 3] = Default::default();
    for (samples, (of_a, fairness)) in
        samples_ms.iter_mut().zip([("", FIFO), (urgent, FIFO), ("", WEIGHTED)])
    {
        *samples = run(of_a, fairness, &batch, &prompts).await?;
    }
    let [fifo_ms, priority_ms, weighted_ms] = [0, 1, 2].map(|at| Quantiles::of(&samples_ms[at]));
    let requests = [0, 1, 2].map(|at| samples_ms[at].len());
    Ok(Interactive { fifo_ms, priority_ms, weighted_ms, requests, samples_ms })
}

/// A's times while B's requests wait, sorted.
async fn run(of_a: &str, fairness: &str, batch: &[Value], prompts: &Prompts) -> Result<Vec<f64>> {
    let documents = tenant(A, of_a)
        + &tenant(B, "")
        + &objective("urgent", 100)
        + &flow_control(PLACES, fairness);
    let arguments = ["--time-scale", "5", "--record-requests", "0"];
    let stack =
        Stack::start(Setup::new(ENGINES, WORKERS).document(&documents).simulator(&arguments))
            .await?;
    let listen = stack.listen();
    let done = Arc::<AtomicUsize>::default();
    let mut of_b = JoinSet::new();
    for body in batch {
        let (body, done) = (body.to_string().into(), Arc::clone(&done));
        let target = target(listen, B)?;
        of_b.spawn(async move {
            let outcome = send(&target, body).await;
            done.fetch_add(1, Ordering::SeqCst);
            outcome
        });
    }
    queued(&stack, &done).await?;
    let mut of_a = JoinSet::new();
    let mut tick = tokio::time::interval(EVERY);
    while done.load(Ordering::SeqCst) < batch.len() {
        tick.tick().await;
        let mut body = chat(&prompts.text(PROMPT)?, REPLY);
        body["stream"] = true.into();
        let target = target(listen, A)?;
        of_a.spawn(async move { send(&target, body.to_string().into()).await });
    }
    let outcomes = of_a.join_all().await;
    for outcome in outcomes.iter().chain(&of_b.join_all().await) {
        ensure!(outcome.failure.is_none(), "{outcome:?}");
    }
    let mut times: Vec<f64> = outcomes.iter().filter_map(first_token_ms).collect();
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Waits until all of B's requests wait, run or are over.
async fn queued(stack: &Stack, done: &AtomicUsize) -> Result<()> {
    let all = async || {
        let mut here = done.load(Ordering::SeqCst);
        for worker in &mut one_each(stack.listen(), WORKERS).await.ok()? {
            let state = worker.state().await.ok()?;
            here += usize::try_from(state.parked_here + state.turns_here).ok()?;
        }
        (here >= BATCH).then_some(())
    };
    stack.until("all of B's requests in the queue", all).await
}

fn target(listen: SocketAddr, tenant: &str) -> Result<Target> {
    let mut target = Target::new(listen, e2e::client::CHAT, LIMIT);
    let value = format!("Bearer {}", key(tenant)).parse().context("a header")?;
    target.headers.insert("authorization", value);
    Ok(target)
}

fn first_token_ms(outcome: &Outcome) -> Option<f64> {
    Some(outcome.first_token?.as_secs_f64() * 1e3)
}

impl Interactive {
    /// A's p99 with priority and with weights, in relation to one queue.
    #[must_use]
    pub fn ratios(&self) -> Ratios {
        let [fifo, priority, weighted] = [0, 1, 2].map(|at| percentile(&self.samples_ms[at], 99.0));
        let ratio = |other: Option<f64>| match (other, fifo) {
            (Some(other), Some(fifo)) if fifo > 0.0 => other / fifo,
            _ => f64::MAX,
        };
        Ratios { priority: ratio(priority), weighted: ratio(weighted) }
    }

    /// What is not as it should be.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let Ratios { priority, weighted } = self.ratios();
        [("priority", priority, 5), ("weights", weighted, 3)]
            .iter()
            .filter(|(_, ratio, part)| *ratio > 1.0 / f64::from(*part))
            .map(|(what, ratio, part)| {
                format!("TTFT p99 with {what} is {ratio:.3} of one queue's, above 1/{part}")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ratio_has_its_bar() {
        let of = |priority: f64, weighted: f64| Interactive {
            samples_ms: [vec![1_000.0], vec![priority], vec![weighted]],
            ..Interactive::default()
        };
        let cases: &[(f64, f64, usize)] =
            &[(199.0, 333.0, 0), (201.0, 333.0, 1), (199.0, 334.0, 1), (500.0, 900.0, 2)];
        for &(priority, weighted, count) in cases {
            let missed = of(priority, weighted).missed();
            assert_eq!(missed.len(), count, "{missed:?}");
        }
        assert_eq!(Interactive::default().missed().len(), 2, "nothing was measured");
    }
}
