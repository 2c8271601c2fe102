//! VMs that trap, and a pushed listener, while requests wait: no limit is passed, and nothing stays where it was.

use crate::queues::flow_control;
use anyhow::{Context as _, Result};
use e2e::client::{self, Request};
use e2e::counting_engine::CountingEngine;
use e2e::prompts::{chat, fresh_text};
use e2e::scripted_engine::ScriptedEngine;
use e2e::workers::{WorkerConnection, one_each};
use e2e::{Endpoint, Setup, Stack};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

const WORKERS: usize = 4;
const PLACES: u32 = 4;
/// More than there are places.
const CLIENTS: usize = 16;
/// Time for one request at the engine.
const WORK: Duration = Duration::from_millis(40);
/// Until everything goes on after a trap.
const RECOVERY: Duration = Duration::from_secs(3);

/// A field of the plugin's configuration, and what a push makes of it.
const BEFORE: &str = r#", "max_body_bytes": 1000000"#;
const AFTER: &str = r#", "max_body_bytes": 2000000"#;

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_in_a_vm_that_panics_is_told_at_once() -> Result<()> {
    const WAITING: u64 = 5;
    let engine = ScriptedEngine::start().await?;
    let mut setup = Setup::new(0, 1).document(&flow_control(1, ""));
    setup.fault_injection = true;
    setup.other_endpoints.push(Endpoint::new("scripted", engine.address));
    let stack = Stack::start(setup).await?;
    let mut running = engine.expect("running");
    let send = |request: Request| {
        let listen = stack.listen();
        tokio::spawn(async move { client::send(listen, &request).await })
    };
    let first = send(Request::chat(&chat("first", 4)).id("running"));
    running.arrived().await.context("it did not arrive at the engine")?;
    let waiting: Vec<_> =
        (0..WAITING).map(|n| send(Request::chat(&chat(&format!("waits {n}"), 4)))).collect();
    let mut worker = WorkerConnection::open(stack.listen()).await?;
    worker.until(e2e::stack::PATIENCE, "all wait", |state| state.parked_here == WAITING).await?;
    stack.trap("panic", Request::chat(&chat("fault", 1))).await?;
    for answer in waiting {
        let answer = tokio::time::timeout(RECOVERY, answer).await.context("it hangs")???;
        assert_eq!(answer.status, 503, "{}", answer.text());
    }
    // The engine's answer finds no VM.
    running.done();
    drop(first);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn traps_and_pushes_under_saturation_pass_no_limit_and_hold_nobody() -> Result<()> {
    let engine = CountingEngine::start(WORK).await?;
    let mut setup = Setup::new(0, WORKERS).document(&flow_control(PLACES, ""));
    setup.fault_injection = true;
    setup.listener_file = true;
    setup.envoy_arguments = ["--drain-time-s", "1"].map(str::to_owned).to_vec();
    setup.plugin_config_extra = BEFORE.to_owned();
    setup.other_endpoints.push(Endpoint::new("counting", engine.address));
    let stack = Stack::start(setup).await?;
    let done = Arc::<AtomicUsize>::default();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (listen, done) = (stack.listen(), Arc::clone(&done));
        clients.spawn(async move {
            loop {
                let answer = client::send(listen, &Request::chat(&chat(&fresh_text(20), 4))).await;
                // Those that a trapped VM had are lost.
                if answer.is_ok_and(|answer| answer.status == 200) {
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
    }
    let progress = async |what: &str, limit: Duration| -> Result<()> {
        let before = done.load(Ordering::SeqCst);
        let more = async || (done.load(Ordering::SeqCst) >= before + 60).then_some(());
        stack.until_for(limit, &format!("60 requests served {what}"), more).await
    };
    progress("at first", e2e::stack::PATIENCE).await?;
    for fault in ["panic", "panic-applier", "panic", "panic-applier"] {
        stack.trap(fault, Request::chat(&chat("fault", 1))).await?;
        progress(&format!("after {fault}"), RECOVERY).await?;
    }
    // New root contexts, in the same VMs.
    stack.push_listener_taken(|listener| listener.replace(BEFORE, AFTER)).await?;
    progress("after a push", RECOVERY).await?;
    assert_eq!(engine.most(), u64::from(PLACES));
    clients.shutdown().await;
    let idle = async || {
        let mut workers = one_each(stack.listen(), WORKERS).await.ok()?;
        for worker in &mut workers {
            let state = worker.state().await.ok()?;
            if (state.parked_here, state.turns_here, state.in_flight_here) != (0, 0, 0) {
                return None;
            }
        }
        Some(())
    };
    stack.until("nothing left in any worker", idle).await
}
