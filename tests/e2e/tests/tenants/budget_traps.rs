//! What a tenant has used of its budget stays used when VMs trap.

use crate::bed::{KEY_A, KEY_B, short, tenants};
use anyhow::{Context as _, Result, bail, ensure};
use e2e::client::{self, Request, Response};
use e2e::scripted_engine::{ScriptedEngine, Served};
use e2e::workers::{WorkerConnection, one_each};
use e2e::{Endpoint, Setup, Stack};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use warmroute_demo::processes::get;

const WORKERS: usize = 4;

/// Longest until requests are served again after a trap.
const RECOVERY: Duration = Duration::from_secs(10);

/// Traps the VM that holds all budgets, and waits until tenant `b` is served by its successor.
async fn trap_the_dispatcher(stack: &Stack) -> Result<()> {
    stack.trap("panic-applier", short(KEY_B, 1)).await?;
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

async fn status(listen: SocketAddr, request: &Request) -> Result<u16> {
    Ok(client::send(listen, request).await?.status)
}

const RPM: u64 = 3;

/// What tenant `a` got of its requests a minute.
struct Spent {
    since: Instant,
    served: u64,
}

impl Spent {
    /// Sends requests until one is refused. All that were ever served are no more than a full bucket and what time put
    /// into it, however slow this is.
    async fn all(&mut self, mut send: impl AsyncFnMut(&Request) -> Result<u16>) -> Result<()> {
        loop {
            match send(&short(KEY_A, 1)).await? {
                200 => self.served += 1,
                429 => break,
                other => bail!("status {other}"),
            }
        }
        let elapsed = u64::try_from(self.since.elapsed().as_millis())?;
        let (served, given) = (self.served, RPM + elapsed * RPM / 60_000);
        ensure!((RPM..=given).contains(&served), "{served} served, {given} given");
        Ok(())
    }

    async fn all_by_anyone(&mut self, stack: &Stack) -> Result<()> {
        self.all(async |request| status(stack.listen(), request).await).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_workers_used_of_a_budget_is_used_after_the_dispatchers_trap() -> Result<()> {
    let (stack, _engine) = start(&format!("  limits: [{{model: '*', rpm: {RPM}}}]")).await?;
    let mut workers = one_each(stack.listen(), WORKERS).await?;
    let holds = dispatcher(&mut workers).await?;
    let mut spent = Spent { since: Instant::now(), served: 0 };
    for at in (0..WORKERS).filter(|at| Some(*at) != holds).take(3) {
        let answer = workers[at].send(&short(KEY_A, 1)).await?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
        spent.served += 1;
    }
    spent.all_by_anyone(&stack).await?;
    for _ in 0..2 {
        trap_the_dispatcher(&stack).await?;
        spent.all_by_anyone(&stack).await?;
    }
    Ok(())
}

/// Nobody but the VM that traps has served the tenant.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_trapped_vm_itself_used_is_used() -> Result<()> {
    let (stack, _engine) = start(&format!("  limits: [{{model: '*', rpm: {RPM}}}]")).await?;
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
    let mut spent = Spent { since: Instant::now(), served: 0 };
    spent.all(async |request| Ok(workers[holds].send(request).await?.status)).await?;
    trap_the_dispatcher(&stack).await?;
    spent.all_by_anyone(&stack).await
}

/// Requests of tenant `a` that are at the engine.
struct Held<'a> {
    engine: &'a ScriptedEngine,
    calls: Vec<JoinHandle<Result<Response>>>,
    served: Vec<Served>,
}

impl<'a> Held<'a> {
    fn new(engine: &'a ScriptedEngine) -> Self {
        Self { engine, calls: Vec::new(), served: Vec::new() }
    }

    /// One more, sent by `send`.
    async fn hold<F: Future<Output = Result<Response>> + Send + 'static>(
        &mut self,
        send: impl FnOnce(Request) -> F,
    ) -> Result<()> {
        let id = format!("held-{}", self.calls.len());
        let mut expected = self.engine.expect(&id);
        self.calls.push(tokio::spawn(send(short(KEY_A, 1).id(&id))));
        expected.arrived().await.context("its arrival")?;
        self.served.push(expected);
        Ok(())
    }

    /// All are answered.
    async fn end(self) -> Result<()> {
        for one in self.served {
            one.send(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
            );
            one.done();
        }
        for call in self.calls {
            ensure!(call.await??.status == 200);
        }
        Ok(())
    }
}

/// Waits until the agent was told that so much of `a`'s concurrency is left.
async fn left(stack: &Stack, count: u32) -> Result<()> {
    let agent = stack.agent.as_ref().context("no agent")?.address;
    let line = format!(
        "warmroute_agent_tenant_budget_remaining{{tenant=\"a\",model=\"*\",kind=\"concurrency\"}} {count}"
    );
    let told = async || {
        let page = get(agent, "/metrics").await.ok()?;
        String::from_utf8_lossy(&page.body).lines().any(|found| found == line).then_some(())
    };
    stack.until(&line, told).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_under_way_count_after_the_dispatchers_trap() -> Result<()> {
    let (stack, engine) = start("  limits: [{model: '*', concurrency: 2}]").await?;
    let mut workers = one_each(stack.listen(), WORKERS).await?;
    let holds = dispatcher(&mut workers).await?;
    // A trap ends the requests of its own VM.
    let others: Vec<_> = (0..WORKERS).filter(|at| Some(*at) != holds).take(2).collect();
    let mut held = Held::new(&engine);
    for at in others.into_iter().rev() {
        let mut worker = workers.remove(at);
        held.hold(|request| async move { worker.send(&request).await }).await?;
    }
    assert_eq!(status(stack.listen(), &short(KEY_A, 1)).await?, 429);
    trap_the_dispatcher(&stack).await?;
    assert_eq!(status(stack.listen(), &short(KEY_A, 1)).await?, 429);
    left(&stack, 0).await?;
    held.end().await?;
    // All that was held is free again, and no more.
    left(&stack, 2).await?;
    let listen = stack.listen();
    let mut held = Held::new(&engine);
    for _ in 0..2 {
        held.hold(|request| async move { client::send(listen, &request).await }).await?;
    }
    assert_eq!(status(listen, &short(KEY_A, 1)).await?, 429);
    held.end().await
}
