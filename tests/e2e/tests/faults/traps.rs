//! Worker VMs trap under load.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::background_load::Load;
use e2e::client::Request;
use e2e::prompts::{chat, fresh_text};
use e2e::workers::{WorkerConnection, some_each};
use e2e::{Setup, Stack};

use crate::held_streams::{SLOW_DECODE, on_every_worker};

/// By when everything is right again.
pub(crate) const RECOVERY: Duration = Duration::from_secs(3);

/// A request that makes the VM trap that takes it.
pub(crate) fn poison() -> Request {
    Request::chat(&chat("poison", 1)).header("x-warmroute-fault", "panic")
}

/// A prompt that one engine holds by now, and which.
pub(crate) struct Known {
    pub(crate) request: Request,
    pub(crate) engine: String,
}

/// Prompts that the engines learn through `worker`.
pub(crate) async fn taught(worker: &mut WorkerConnection, count: usize) -> Result<Vec<Known>> {
    let mut known = Vec::with_capacity(count);
    for _ in 0..count {
        let request = Request::chat(&chat(&fresh_text(2000), 1));
        let engine = worker.served(&request).await?;
        known.push(Known { request, engine });
    }
    Ok(known)
}

/// Each worker in turn gets prompts that it has not served before, and must know where they are.
pub(crate) async fn all_workers_know(
    workers: &mut [WorkerConnection],
    known: &[Known],
) -> Result<()> {
    for (index, worker) in (0..workers.len()).cycle().zip(known).collect::<Vec<_>>() {
        let engine = workers[index].served(&worker.request).await?;
        assert_eq!(engine, worker.engine, "worker {index} forgot a prompt");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_streams_of_a_trapped_worker_fail_and_its_counts_vanish() -> Result<()> {
    let mut setup = Setup::new(4, 4).simulator(&SLOW_DECODE);
    setup.fault_injection = true;
    let stack = Stack::start(setup).await?;
    let mut to_poison = some_each(stack.listen(), 4, 2).await?;
    let mut workers: Vec<_> = to_poison.iter_mut().filter_map(Vec::pop).collect();
    let known = taught(&mut workers[0], 16).await?;
    let mut held = on_every_worker(stack.listen(), 4, 1000).await?;
    let all = held.len() as u64;
    let counted = async |count: u64| {
        let state = stack.filter_state().await.ok()?;
        (state.in_flight == count).then_some(())
    };
    stack.until(&format!("{all} requests in flight"), async || counted(all).await).await?;

    for round in 0..3 {
        let load = Load::on_kept_connections(stack.listen(), 8).await?;
        // Traps happen while the load is at work.
        stack.until("load", async || (load.done() >= 50).then_some(())).await?;
        let victim = workers[round].incarnation.clone();
        let trapped = Instant::now();
        let answer = to_poison[round][0].send(&poison()).await?;
        assert_eq!(answer.status, 503, "{}", answer.text());
        workers[round].reloaded(RECOVERY).await?;
        let (mut lost, kept): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|stream| stream.worker == victim);
        assert!(!lost.is_empty() && !kept.is_empty());
        held = kept;
        for stream in &mut lost {
            stream.until_it_ends().await;
        }
        let before = load.done();
        stack.until("load", async || (load.done() >= before + 200).then_some(())).await?;
        for outcome in load.stop().await {
            let on_victim = outcome.worker.as_deref() == Some(victim.as_str());
            assert!(outcome.fine() || on_victim, "another worker's request failed: {outcome:?}");
        }
        for stream in &mut held {
            assert!(stream.goes_on().await, "another worker's stream ended");
        }
        // A fresh VM, which has built its table anew.
        let state = workers[round].state().await?;
        assert_ne!(state.incarnation, victim);
        all_workers_know(&mut workers[round..=round], &known[..4]).await?;
        let left = held.len() as u64;
        let patience = RECOVERY.saturating_sub(trapped.elapsed());
        let right = async || counted(left).await;
        stack.until_for(patience, &format!("{left} requests in flight"), right).await?;
    }

    all_workers_know(&mut workers, &known).await?;
    drop(held);
    stack.until("nothing in flight", async || counted(0).await).await?;
    let engines_idle = async || {
        let engines = stack.engines().await.ok()?;
        engines.iter().all(|engine| engine.running + engine.waiting == 0).then_some(())
    };
    stack.until("idle engines", engines_idle).await?;
    for worker in &mut workers {
        assert_eq!(worker.state().await.context("a worker's state")?.in_flight_here, 0);
    }
    assert_eq!(stack.stat("wasm.warmroute.vm_reload_success").await?, 3);
    Ok(())
}
