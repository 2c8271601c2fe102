//! What a tenant has used of its budget stays used when VMs trap.

use crate::bed::{KEY_A, KEY_B, short, tenants};
use anyhow::{Context as _, Result, ensure};
use e2e::client::{self, Request};
use e2e::scripted_engine::ScriptedEngine;
use e2e::workers::{WorkerConnection, one_each};
use e2e::{Endpoint, Setup, Stack};

const WORKERS: usize = 4;

/// Longest until requests are served again after a trap.
const RECOVERY: std::time::Duration = std::time::Duration::from_secs(10);

/// Traps the VM that holds all budgets, and waits until tenant `b` is served by its successor.
async fn trap_the_dispatcher(stack: &Stack) -> Result<()> {
    let log = || std::fs::read_to_string(stack.envoy.process.log()).unwrap_or_default();
    let message = "fault injection: panic-applier";
    let before = log().matches(message).count();
    let fault = short(KEY_B, 1).header("x-warmroute-fault", "panic-applier");
    let _ = client::send(stack.listen(), &fault).await;
    let trapped = async || (log().matches(message).count() > before).then_some(());
    stack.until("a trap", trapped).await?;
    let served = async || {
        let answer = client::send(stack.listen(), &short(KEY_B, 1)).await.ok()?;
        // Its budgets are asked for, too.
        (answer.status == 200 && answer.header("x-ratelimit-limit-requests").is_some())
            .then_some(())
    };
    stack.until_for(RECOVERY, "a request served after the trap", served).await
}

async fn start(of_a: &str) -> Result<(Stack, ScriptedEngine)> {
    let engine = ScriptedEngine::start().await?;
    let of_b = "  limits: [{model: '*', rpm: 100000}]";
    let mut setup = Setup::new(0, WORKERS).document(&tenants(of_a, of_b));
    setup.fault_injection = true;
    setup.other_endpoints.push(Endpoint::new("scripted", engine.address));
    Ok((Stack::start(setup).await?, engine))
}

/// The worker whose VM holds all budgets; none if it is Envoy's main thread's.
async fn dispatcher(workers: &mut [WorkerConnection]) -> Result<Option<usize>> {
    for (at, worker) in workers.iter_mut().enumerate() {
        if worker.state().await?.applier {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

async fn status(listen: std::net::SocketAddr, request: &Request) -> Result<u16> {
    Ok(client::send(listen, request).await?.status)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_workers_used_of_a_budget_is_used_after_the_dispatchers_trap() -> Result<()> {
    // One more every 20 s.
    let (stack, _engine) = start("  limits: [{model: '*', rpm: 3}]").await?;
    let mut workers = one_each(stack.listen(), WORKERS).await?;
    let holds = dispatcher(&mut workers).await?;
    let others = (0..WORKERS).filter(|at| Some(*at) != holds).take(3);
    for at in others {
        let answer = workers[at].send(&short(KEY_A, 1)).await?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    }
    assert_eq!(status(stack.listen(), &short(KEY_A, 1)).await?, 429);
    for _ in 0..2 {
        trap_the_dispatcher(&stack).await?;
        assert_eq!(status(stack.listen(), &short(KEY_A, 1)).await?, 429);
    }
    Ok(())
}

/// Nobody but the VM that traps has served the tenant.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_trapped_vm_itself_used_is_used() -> Result<()> {
    let (stack, _engine) = start("  limits: [{model: '*', rpm: 3}]").await?;
    let mut workers = one_each(stack.listen(), WORKERS).await?;
    let mut holds = dispatcher(&mut workers).await?;
    // At first Envoy's main thread has them.
    for _ in 0..WORKERS {
        if holds.is_none() {
            trap_the_dispatcher(&stack).await?;
            workers = one_each(stack.listen(), WORKERS).await?;
            holds = dispatcher(&mut workers).await?;
        }
    }
    let holds = holds.context("no worker has the budgets")?;
    for expected in [200, 200, 200, 429] {
        assert_eq!(workers[holds].send(&short(KEY_A, 1)).await?.status, expected);
    }
    trap_the_dispatcher(&stack).await?;
    assert_eq!(status(stack.listen(), &short(KEY_A, 1)).await?, 429);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_under_way_count_after_the_dispatchers_trap() -> Result<()> {
    let (stack, engine) = start("  limits: [{model: '*', concurrency: 2}]").await?;
    let mut workers = one_each(stack.listen(), WORKERS).await?;
    let holds = dispatcher(&mut workers).await?;
    // A trap ends the requests of its own VM.
    let others = (0..WORKERS).filter(|at| Some(*at) != holds).take(2);
    let (mut calls, mut served) = (Vec::new(), Vec::new());
    for at in others.collect::<Vec<_>>().into_iter().rev() {
        let id = format!("running-{at}");
        let mut expected = engine.expect(&id);
        let mut worker = workers.remove(at);
        let request = short(KEY_A, 1).id(&id);
        calls.push(tokio::spawn(async move { worker.send(&request).await }));
        expected.arrived().await.context("its arrival")?;
        served.push(expected);
    }
    assert_eq!(status(stack.listen(), &short(KEY_A, 1)).await?, 429);
    trap_the_dispatcher(&stack).await?;
    assert_eq!(status(stack.listen(), &short(KEY_A, 1)).await?, 429);
    for one in served {
        one.send(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
        );
        one.done();
    }
    for call in calls {
        assert_eq!(call.await??.status, 200);
    }
    // All that was held is free again, and no more.
    let free = async || (status(stack.listen(), &short(KEY_A, 1)).await.ok()? == 200).then_some(());
    stack.until("a place for the next one", free).await
}
