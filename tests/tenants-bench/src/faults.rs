//! VMs that trap, and pushed listeners, under saturation.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::client;
use e2e::counting_engine::CountingEngine;
use e2e::{Endpoint, Setup, Stack};
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::bed::{
    A, B, Prompts, WEIGHTED, WORKERS, chat, finally_left, flow_control, keyed, tenant,
};

/// Requests at once at the only engine: with several, only all of them together have a limit.
const PLACES: usize = 8;
/// Of each tenant.
const CLIENTS: usize = 12;
/// Time for one request at an engine.
const WORK: Duration = Duration::from_millis(40);
/// Served after a fault before the next.
const SERVED: usize = 60;
/// Until everything goes on after a fault.
const RECOVERY: Duration = Duration::from_secs(3);
/// A worker's VM, the dispatcher's, and a listener with a changed plugin configuration.
const FAULTS: [&str; 3] = ["panic", "panic-applier", PUSH];
const PUSH: &str = "push";
const ROUNDS: usize = 3;

/// What came of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Faults {
    /// Most requests that the engine had at once, as it counted them, and its limit.
    pub most_at_once: u64,
    /// See `most_at_once`.
    pub limit: u64,
    /// Of each fault: its name, and milliseconds until every request that was under way was over, however it ended,
    /// and [`SERVED`] more were served; none if that took too long.
    pub recovery_ms: Vec<(&'static str, Option<u64>)>,
    /// Longest time in which no request was served at all, in milliseconds.
    pub longest_silence_ms: u64,
    /// Waiting, under way or charged to endpoints afterwards, over all workers.
    pub left_over: u64,
}

/// Both tenants' clients, who start again whatever happens.
struct Clients {
    served: Arc<AtomicUsize>,
    /// When each client's present request began, in milliseconds since `origin`.
    began_ms: Arc<Vec<AtomicU64>>,
    origin: Instant,
    tasks: JoinSet<()>,
}

impl Clients {
    fn start(stack: &Stack, bodies: &Arc<Vec<Value>>) -> Self {
        let mut clients = Self {
            served: Arc::default(),
            began_ms: Arc::new((0..2 * CLIENTS).map(|_| AtomicU64::new(0)).collect()),
            origin: Instant::now(),
            tasks: JoinSet::new(),
        };
        for number in 0..2 * CLIENTS {
            let (listen, origin, bodies) = (stack.listen(), clients.origin, Arc::clone(bodies));
            let (served, began_ms) = (Arc::clone(&clients.served), Arc::clone(&clients.began_ms));
            let tenant = if number < CLIENTS { A } else { B };
            clients.tasks.spawn(async move {
                for body in bodies.iter().cycle().skip(number) {
                    began_ms[number].store(ms_since(origin), Ordering::SeqCst);
                    let answer = client::send(listen, &keyed(tenant, body)).await;
                    // Those that a trapped VM had are lost.
                    if answer.is_ok_and(|answer| answer.status == 200) {
                        served.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        clients
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }

    /// Requests under way that began before this time.
    fn older_than(&self, at_ms: u64) -> usize {
        let old = |began: &&AtomicU64| began.load(Ordering::SeqCst) < at_ms;
        self.began_ms.iter().filter(old).count()
    }
}

fn ms_since(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Traps and pushes in turn.
///
/// # Errors
/// When a fault cannot be ordered.
pub async fn measure() -> Result<Faults> {
    let engine = CountingEngine::start(WORK).await?;
    let documents = tenant(A, "") + &tenant(B, "") + &flow_control(PLACES, WEIGHTED);
    let mut setup = Setup::new(0, WORKERS).document(&documents);
    setup.other_endpoints.push(Endpoint::new("counting", engine.address));
    setup.fault_injection = true;
    setup.listener_file = true;
    setup.envoy_arguments = ["--drain-time-s", "1"].map(str::to_owned).to_vec();
    setup.plugin_config_extra = bytes(0);
    let stack = Stack::start(setup).await?;
    let prompts = Prompts::new()?;
    let bodies: Result<Vec<Value>> = (0..100).map(|_| Ok(chat(&prompts.text(30)?, 4))).collect();
    let clients = Clients::start(&stack, &Arc::new(bodies?));
    let mut faults = Faults { limit: PLACES as u64, ..Faults::default() };
    goes_on(&stack, &clients, e2e::stack::PATIENCE, &mut 0).await?;
    let mut pushes = 0;
    for fault in FAULTS.iter().cycle().take(ROUNDS * FAULTS.len()) {
        if *fault == PUSH {
            let (from, to) = (bytes(pushes), bytes(pushes + 1));
            stack.push_listener_taken(|listener| listener.replace(&from, &to)).await?;
            pushes += 1;
        } else {
            stack.trap(fault, keyed(A, &chat("fault", 1))).await?;
        }
        let since = Instant::now();
        let silence = &mut faults.longest_silence_ms;
        let recovered = goes_on(&stack, &clients, RECOVERY, silence).await;
        faults.recovery_ms.push((fault, recovered.is_ok().then(|| ms_since(since))));
    }
    drop(clients);
    faults.left_over = finally_left(&stack).await?;
    faults.most_at_once = engine.most();
    Ok(faults)
}

/// Waits until enough more requests are served and none is older than this call; lengthens `silence` if there was a
/// longer one.
async fn goes_on(
    stack: &Stack,
    clients: &Clients,
    limit: Duration,
    silence: &mut u64,
) -> Result<()> {
    let (before, at_ms) = (clients.served(), ms_since(clients.origin));
    let last = Cell::new((before, Instant::now()));
    let longest = Cell::new(0);
    let more = async || {
        let now = clients.served();
        if now > last.get().0 {
            last.set((now, Instant::now()));
        }
        longest.set(longest.get().max(ms_since(last.get().1)));
        (now >= before + SERVED && clients.older_than(at_ms) == 0).then_some(())
    };
    let what = format!("{SERVED} requests served, and those that were there");
    let ended = stack.until_for(limit, &what, more).await;
    *silence = (*silence).max(longest.get());
    ended
}

/// A field of the plugin's configuration that is another after each push.
fn bytes(pushes: usize) -> String {
    format!(r#", "max_body_bytes": {}"#, 1_000_000 + pushes)
}

impl Faults {
    /// What is not as it should be.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        if self.most_at_once > self.limit {
            missed.push(format!(
                "the engine had {} requests at once, its limit is {}",
                self.most_at_once, self.limit
            ));
        }
        let stuck = self.recovery_ms.iter().filter(|(_, took)| took.is_none());
        missed.extend(stuck.map(|(fault, _)| format!("stuck after {fault}")));
        if self.left_over > 0 {
            missed.push(format!("{} left over after faults", self.left_over));
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bar_is_missed_by_itself() {
        let fine = Faults {
            most_at_once: 4,
            limit: 4,
            recovery_ms: vec![("panic", Some(900))],
            ..Faults::default()
        };
        assert!(fine.missed().is_empty());
        let cases = [
            (Faults { most_at_once: 5, ..fine.clone() }, "5 requests at once"),
            (Faults { recovery_ms: vec![("push", None)], ..fine.clone() }, "stuck after push"),
            (Faults { left_over: 2, ..fine }, "2 left over"),
        ];
        for (faults, what) in cases {
            let missed = faults.missed();
            assert!(missed.len() == 1 && missed[0].contains(what), "{missed:?}");
        }
    }
}
