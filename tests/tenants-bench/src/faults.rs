//! VMs that trap, and pushed listeners, under saturation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::client::{self, Request};
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
const CLIENTS: usize = 24;
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
    /// Of each fault: its name, and milliseconds until [`SERVED`] more requests were served; none if that took too
    /// long.
    pub recovery_ms: Vec<(&'static str, Option<u64>)>,
    /// Longest time in which no request was served at all, in milliseconds.
    pub longest_silence_ms: u64,
    /// Longest time that a request took, however it ended, in milliseconds.
    pub longest_request_ms: u64,
    /// Waiting, under way or charged to endpoints afterwards, over all workers.
    pub left_over: u64,
}

/// Both tenants' clients, who start again whatever happens.
struct Clients {
    served: Arc<AtomicUsize>,
    longest_ms: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Clients {
    fn start(stack: &Stack, bodies: &Arc<Vec<Value>>) -> Self {
        let (served, longest_ms) = (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default());
        let mut tasks = JoinSet::new();
        for (tenant, first) in
            [A, B].into_iter().flat_map(|name| (0..CLIENTS).map(move |n| (name, n)))
        {
            let (listen, bodies) = (stack.listen(), Arc::clone(bodies));
            let (served, longest) = (Arc::clone(&served), Arc::clone(&longest_ms));
            tasks.spawn(async move {
                for body in bodies.iter().cycle().skip(first) {
                    let since = Instant::now();
                    let answer = client::send(listen, &keyed(tenant, body)).await;
                    longest.fetch_max(since.elapsed().as_millis() as u64, Ordering::SeqCst);
                    // Those that a trapped VM had are lost.
                    if answer.is_ok_and(|answer| answer.status == 200) {
                        served.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        Self { served, longest_ms, _tasks: tasks }
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
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
        let since = Instant::now();
        if *fault == PUSH {
            push(&stack, pushes).await?;
            pushes += 1;
        } else {
            trap(&stack, fault).await?;
        }
        let silence = &mut faults.longest_silence_ms;
        let recovered = goes_on(&stack, &clients, RECOVERY, silence).await;
        let took = u64::try_from(since.elapsed().as_millis())?;
        faults.recovery_ms.push((fault, recovered.is_ok().then_some(took)));
    }
    faults.longest_request_ms = clients.longest_ms.load(Ordering::SeqCst);
    drop(clients);
    faults.left_over = finally_left(&stack).await?;
    faults.most_at_once = engine.most();
    Ok(faults)
}

/// Waits until enough more requests are served; lengthens `silence` if there was a longer one.
async fn goes_on(
    stack: &Stack,
    clients: &Clients,
    limit: Duration,
    silence: &mut u64,
) -> Result<()> {
    let before = clients.served();
    let last = std::cell::Cell::new((before, Instant::now(), 0));
    let more = async || {
        let (seen, since, longest) = last.get();
        let (now, quiet) = (clients.served(), since.elapsed().as_millis() as u64);
        last.set(if now > seen {
            (now, Instant::now(), longest)
        } else {
            (seen, since, longest.max(quiet))
        });
        (now >= before + SERVED).then_some(())
    };
    let ended = stack.until_for(limit, &format!("{SERVED} requests served"), more).await;
    *silence = (*silence).max(last.get().2);
    ended
}

/// Has a VM trap, and waits until it has.
async fn trap(stack: &Stack, fault: &str) -> Result<()> {
    let log = || std::fs::read_to_string(stack.envoy.process.log()).unwrap_or_default();
    let message = "fault injection: panic";
    let before = log().matches(message).count();
    // Its own request ends with it.
    let request: Request = keyed(A, &chat("fault", 1)).header("x-warmroute-fault", fault);
    let _ = client::send(stack.listen(), &request).await;
    let trapped = async || (log().matches(message).count() > before).then_some(());
    stack.until(&format!("a trap by {fault}"), trapped).await
}

/// A field of the plugin's configuration that is another after each push.
fn bytes(pushes: usize) -> String {
    format!(r#", "max_body_bytes": {}"#, 1_000_000 + pushes)
}

/// Pushes a listener with another plugin configuration, and waits until Envoy has it.
async fn push(stack: &Stack, pushes: usize) -> Result<()> {
    let updates = "listener_manager.lds.update_success";
    let taken = stack.stat(updates).await?;
    stack.push_listener(|listener| listener.replace(&bytes(pushes), &bytes(pushes + 1)))?;
    let pushed = async || (stack.stat(updates).await.ok()? > taken).then_some(());
    stack.until("a pushed listener", pushed).await
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
