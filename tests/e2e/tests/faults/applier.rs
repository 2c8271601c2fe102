//! The VM that holds the applier's role traps; so does one that has nothing to do.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, Result};
use e2e::background_load::Load;
use e2e::client::Request;
use e2e::prompts::{chat, fresh_text};
use e2e::workers::{WorkerConnection, one_each};
use e2e::{Endpoint, Setup, Stack};
use serde_json::json;

use crate::held_streams::SLOW_DECODE;
use crate::pushes::{FIRST_LIMIT, WORKERS, all_is_well, drained, push_limit, pushable};
use crate::traps::{Known, RECOVERY, all_workers_know, taught};

/// Frames in the ring: who missed more builds its table from the checkpoints.
const RING: u64 = 512;

/// Picks that workers tell each other without the applier.
const INTENTS: usize = 40;

fn fault(fault: &str) -> Request {
    Request::chat(&chat("fault", 1)).header("x-warmroute-fault", fault)
}

/// Waits until VMs have trapped `count` times with this message.
async fn trapped(stack: &Stack, message: &str, count: usize) -> Result<()> {
    let seen = async || {
        let log = std::fs::read_to_string(stack.envoy.process.log()).ok()?;
        (log.matches(message).count() == count).then_some(())
    };
    stack.until(&format!("trap number {count}: {message}"), seen).await
}

/// The worker that has the applier's role; none if it is the main thread.
async fn applying_worker(workers: &mut [WorkerConnection]) -> Result<Option<usize>> {
    for (index, worker) in workers.iter_mut().enumerate() {
        if worker.state().await?.applier {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

async fn add_engine(stack: &Stack, name: &str) -> Result<Endpoint> {
    let answer = stack.simulator.order("/replicas", &json!({})).await?.json();
    let address: SocketAddr = answer["endpoint"].as_str().context("its address")?.parse()?;
    Ok(Endpoint::new(name, address))
}

/// What one worker picked another finds by the applier's frames alone.
async fn workers_tell_each_other(
    workers: &mut [WorkerConnection],
    known_by_each: &[Vec<Known>],
) -> Result<()> {
    // The picks of the last moments are known without frames, but no more than so many.
    taught(&mut workers[0], INTENTS).await?;
    for (teacher, known) in known_by_each.iter().enumerate() {
        let asked = (teacher + 1) % workers.len();
        for prompt in known {
            let engine = workers[asked].served(&prompt.request).await?;
            assert_eq!(engine, prompt.engine, "picked by worker {teacher}, not known to {asked}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_passes_on_from_the_main_thread_and_from_workers() -> Result<()> {
    let mut setup = pushable(Setup::new(3, WORKERS).simulator(&SLOW_DECODE));
    setup.fault_injection = true;
    let stack = Stack::start(setup).await?;
    let mut workers = one_each(stack.listen(), 4).await?;
    let mut endpoints = stack.simulated();
    let (mut main_thread, mut worker_threads) = (0, 0);
    // Whoever begins: the other kind follows, the main thread without delay and workers after some patience.
    while main_thread == 0 || worker_threads == 0 {
        let load = Load::on_kept_connections(stack.listen(), 4).await?;
        let holder = applying_worker(&mut workers).await?;
        let other = holder.map_or(0, |holder| (holder + 1) % 4);
        let before = load.done();
        stack.until("load", async || (load.done() >= before + 50).then_some(())).await?;
        workers[other].served(&fault("panic-applier")).await?;
        trapped(&stack, "fault injection: panic-applier", main_thread + worker_threads + 1).await?;
        let since = Instant::now();
        if let Some(holder) = holder {
            workers[holder].reloaded(RECOVERY).await?;
        }
        // Picked while nobody has the role.
        let mut known_by_each = Vec::new();
        for worker in &mut workers {
            known_by_each.push(taught(worker, 6).await?);
        }

        // Its last frame was written before it trapped: later ones are its successor's.
        let last = workers[other].state().await?.applied;
        for worker in &mut workers {
            let left = RECOVERY.saturating_sub(since.elapsed());
            worker.until(left, "new frames", |state| state.applied > last).await?;
        }
        let victim = holder.map(|holder| workers[holder].incarnation.clone());
        for outcome in load.stop().await {
            let on_victim = outcome.worker.is_some() && outcome.worker == victim;
            assert!(outcome.fine() || on_victim, "failed: {outcome:?}");
        }
        match holder {
            Some(_) => worker_threads += 1,
            None => main_thread += 1,
        }
        assert!(main_thread <= 1, "the main thread's VM came back: it never does");
        assert!(worker_threads <= 2, "the main thread's VM did not take the role");

        // What the agent says arrives, and what one worker picks the others know.
        endpoints.push(add_engine(&stack, &format!("new-{}", endpoints.len())).await?);
        stack.write_endpoints(&endpoints)?;
        stack.wait_ready(endpoints.len()).await?;
        let newest = endpoints.last().context("the newest")?.address.to_string();
        let mut picked = false;
        for _ in 0..200 {
            let request = Request::chat(&chat(&fresh_text(200), 1));
            picked |= workers[other].served(&request).await? == newest;
        }
        assert!(picked, "the new engine is never picked");
        for (worker, known) in workers.iter_mut().zip(&mut known_by_each) {
            known.extend(taught(worker, 6).await?);
        }
        workers_tell_each_other(&mut workers, &known_by_each).await?;
    }
    // All but the main thread's, and nothing left of the requests.
    let clean = async || {
        let state = stack.filter_state().await.ok()?;
        (state.vms == 4 && state.in_flight == 0).then_some(())
    };
    stack.until_for(RECOVERY, "4 VMs with nothing in flight", clean).await?;

    // A push gives the main thread a VM again.
    push_limit(&stack, FIRST_LIMIT, 10_000).await?;
    all_is_well(&stack).await?;
    drained(&stack).await?;
    all_is_well(&stack).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_that_trapped_builds_its_table_from_the_checkpoints() -> Result<()> {
    let mut setup = Setup::new(16, 4).simulator(&SLOW_DECODE);
    setup.fault_injection = true;
    let stack = Stack::start(setup).await?;
    let mut workers = one_each(stack.listen(), 4).await?;
    let idle = match applying_worker(&mut workers).await? {
        Some(3) => 2,
        _ => 3,
    };
    let busy = (idle + 1) % 4;
    let slot = workers[idle].state().await?.slot.context("a row")?;
    workers[busy].served(&fault(&format!("panic-slot={slot}"))).await?;
    trapped(&stack, &format!("fault injection: panic-slot={slot}"), 1).await?;
    // Asked of a worker that lives: a request to the other would reload its VM.
    workers[busy].until(RECOVERY, "end of the dead VM's row", |state| state.vms == 4).await?;

    let start = workers[busy].state().await?.applied;
    let known = taught(&mut workers[busy], 8).await?;
    while workers[busy].state().await?.applied <= start + 2 * RING {
        let request = Request::chat(&chat(&fresh_text(200), 1));
        workers[busy].served(&request).await?;
    }
    // No request has reached it since; the first one must find everything.
    let victim = workers[idle].incarnation.clone();
    workers[idle].reloaded(RECOVERY).await?;
    all_workers_know(&mut workers[idle..=idle], &known).await?;
    assert_ne!(workers[idle].state().await?.incarnation, victim);
    workers[busy].until(RECOVERY, "the new VM's row", |state| state.vms == 5).await?;
    assert_eq!(stack.stat("wasm.warmroute.vm_reload_success").await?, 1);
    Ok(())
}
