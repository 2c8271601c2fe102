//! Two tenants that both push as hard as they can: who gets how many tokens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::client::Connection;
use e2e::{Setup, Stack};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::bed::{A, B, Prompts, WEIGHTED, WORKERS, chat, flow_control, keyed, tenant};

const ENGINES: usize = 4;
/// Requests at once at each engine.
const PLACES: usize = 4;
/// Clients of each tenant: three wait for each place, even if the other tenant had none.
const CLIENTS: usize = 4 * ENGINES * PLACES;
/// Tokens of A's prompts, the chat template's included.
const PROMPT_A: usize = 25;
/// B's prompts are so many times as long.
const TIMES: usize = 60;
/// Tokens of an answer: long, so that the engines are what both wait for, however busy this machine is.
const REPLY: usize = 200;
/// B's requests before anything counts.
const WARM_UP: u64 = 5;
/// B's requests that must end while the weighted shares are measured.
const COMPLETED: u64 = 150;
const LIMIT: Duration = Duration::from_secs(150);

/// Who got what.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Fairness {
    /// What each tenant is entitled to, in relation to the others.
    pub weights: BTreeMap<&'static str, f64>,
    /// Share of all tokens, of prompts and answers, that each got while both had requests that waited.
    pub token_share: BTreeMap<&'static str, f64>,
    /// Requests of each that ended in that time.
    pub requests: BTreeMap<&'static str, u64>,
    /// The same under `round-robin-fairness-policy`: turns.
    pub round_robin_requests: BTreeMap<&'static str, u64>,
    /// Share of B in the tokens while A is idle.
    pub alone_token_share: f64,
    /// Most requests that B then had at once at the engines, as a share of all places.
    pub alone_places: f64,
    /// Share of A in the tokens so far, each time B had completed one more.
    #[serde(skip)]
    pub course: Vec<f64>,
}

#[derive(Default)]
struct Got {
    requests: AtomicU64,
    tokens: AtomicU64,
}

impl Got {
    fn read(&self) -> (u64, u64) {
        (self.requests.load(Ordering::SeqCst), self.tokens.load(Ordering::SeqCst))
    }
}

/// Both tenants' clients.
struct Contest {
    stack: Stack,
    got: [Arc<Got>; 2],
    clients: [JoinSet<Result<()>>; 2],
}

impl Contest {
    async fn start(fairness: &str) -> Result<Self> {
        let documents = tenant(A, "") + &tenant(B, "") + &flow_control(PLACES, fairness);
        let arguments = ["--time-scale", "15", "--record-requests", "0"];
        let setup = Setup::new(ENGINES, WORKERS).document(&documents).simulator(&arguments);
        let stack = Stack::start(setup).await?;
        let mut contest = Self { stack, got: Default::default(), clients: Default::default() };
        let prompts = Arc::new(Prompts::new()?);
        for (place, (name, length)) in
            [(A, PROMPT_A), (B, TIMES * PROMPT_A)].into_iter().enumerate()
        {
            for _ in 0..CLIENTS {
                let listen = contest.stack.listen();
                let (prompts, got) = (Arc::clone(&prompts), Arc::clone(&contest.got[place]));
                contest.clients[place].spawn(async move {
                    let mut connection = Connection::open(listen).await?;
                    loop {
                        let request = keyed(name, &chat(&prompts.text(length)?, REPLY));
                        let answer = connection.send(&request).await?;
                        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
                        let usage = &answer.json()["usage"];
                        ensure!(usage["prompt_tokens"] == length, "not {length}: {usage}");
                        got.tokens.fetch_add((length + REPLY) as u64, Ordering::SeqCst);
                        got.requests.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        }
        Ok(contest)
    }

    /// Waits until B has completed so many.
    async fn completed(&mut self, count: u64) -> Result<()> {
        let of_b = &self.got[1];
        let enough = async || (of_b.read().0 >= count).then_some(());
        self.stack.until_for(LIMIT, &format!("{count} requests of B"), enough).await?;
        for clients in &mut self.clients {
            while let Some(ended) = clients.try_join_next() {
                ended??;
            }
        }
        Ok(())
    }

    /// Requests and tokens of A and B so far.
    fn so_far(&self) -> [(u64, u64); 2] {
        [self.got[0].read(), self.got[1].read()]
    }

    fn since(&self, before: [(u64, u64); 2]) -> [(u64, u64); 2] {
        let now = self.so_far();
        [0, 1].map(|at| (now[at].0 - before[at].0, now[at].1 - before[at].1))
    }
}

fn named<T>([a, b]: [T; 2]) -> BTreeMap<&'static str, T> {
    BTreeMap::from([(A, a), (B, b)])
}

fn shares(got: [(u64, u64); 2]) -> [f64; 2] {
    let all = (got[0].1 + got[1].1).max(1) as f64;
    got.map(|(_, tokens)| tokens as f64 / all)
}

/// Weighted shares, equal turns, and B alone.
///
/// # Errors
/// When a request fails or does not end.
pub async fn measure() -> Result<Fairness> {
    let mut fairness = Fairness { weights: named([3.0, 1.0]), ..Fairness::default() };
    let mut contest = Contest::start(WEIGHTED).await?;
    contest.completed(WARM_UP).await?;
    let before = contest.so_far();
    for more in 1..=COMPLETED {
        contest.completed(before[1].0 + more).await?;
        fairness.course.push(shares(contest.since(before))[0]);
    }
    let got = contest.since(before);
    fairness.token_share = named(shares(got));
    fairness.requests = named(got.map(|(requests, _)| requests));

    // A goes away: what was its share is B's.
    contest.clients[0].shutdown().await;
    contest.completed(contest.so_far()[1].0 + PLACES as u64).await?;
    let before = contest.so_far();
    let mut busiest = 0;
    for more in 1..=COMPLETED / 2 {
        contest.completed(before[1].0 + more).await?;
        let engines = contest.stack.engines().await?;
        busiest = busiest.max(engines.iter().map(|engine| engine.running + engine.waiting).sum());
    }
    fairness.alone_token_share = shares(contest.since(before))[1];
    fairness.alone_places = busiest as f64 / (ENGINES * PLACES) as f64;
    drop(contest);

    let mut contest = Contest::start("round-robin-fairness-policy").await?;
    contest.completed(WARM_UP).await?;
    let before = contest.so_far();
    contest.completed(before[1].0 + 2 * COMPLETED).await?;
    fairness.round_robin_requests = named(contest.since(before).map(|(requests, _)| requests));
    Ok(fairness)
}

impl Fairness {
    /// What is not as it should be.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        let all: f64 = self.weights.values().sum();
        for (name, weight) in &self.weights {
            let (due, share) = (weight / all, self.token_share.get(name).copied().unwrap_or(0.0));
            if (share - due).abs() > 0.05 * due {
                missed
                    .push(format!("{name} has {share:.3} of the tokens and is entitled to {due}"));
            }
        }
        if self.requests.get(B).copied().unwrap_or(0) < COMPLETED {
            missed.push(format!("B has completed fewer than {COMPLETED}"));
        }
        let turns = |name| self.round_robin_requests.get(name).copied().unwrap_or(0);
        let (a, b) = (turns(A), turns(B));
        // In flight when it began and when it ended.
        if a.abs_diff(b) > (ENGINES * PLACES) as u64 || b == 0 {
            missed.push(format!("turns in round robin are not equal: {a} and {b}"));
        }
        if self.alone_token_share < 1.0 || self.alone_places < 1.0 {
            missed.push(format!(
                "alone, B has {:.3} of the tokens and {:.2} of the places",
                self.alone_token_share, self.alone_places
            ));
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_it_should_be() -> Fairness {
        Fairness {
            weights: named([3.0, 1.0]),
            token_share: named([0.74, 0.26]),
            requests: named([9_000, 150]),
            round_robin_requests: named([300, 305]),
            alone_token_share: 1.0,
            alone_places: 1.0,
            course: Vec::new(),
        }
    }

    type Change = fn(&mut Fairness);

    #[test]
    fn each_bar_is_missed_by_itself() {
        assert_eq!(as_it_should_be().missed(), Vec::<String>::new());
        let cases: &[(&str, Change)] = &[
            ("b has 0.270", |f| f.token_share = named([0.73, 0.27])),
            ("fewer than 150", |f| f.requests = named([9_000, 149])),
            ("300 and 320", |f| f.round_robin_requests = named([300, 320])),
            ("0.990 of the tokens", |f| f.alone_token_share = 0.99),
            ("0.50 of the places", |f| f.alone_places = 0.5),
        ];
        for (what, change) in cases {
            let mut fairness = as_it_should_be();
            change(&mut fairness);
            let missed = fairness.missed();
            assert_eq!(missed.len(), 1, "{missed:?}");
            assert!(missed[0].contains(what), "{missed:?}");
        }
    }
}
