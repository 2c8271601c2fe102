//! Ten thousand requests that wait and whose clients leave.

use anyhow::{Context as _, Result, ensure};
use e2e::raw_client::RawClient;
use e2e::scripted_engine::ScriptedEngine;
use e2e::workers::{WorkerConnection, one_each};
use e2e::{Endpoint, Setup, Stack};
use serde::Serialize;

use crate::bed::{A, B, Prompts, WEIGHTED, WORKERS, chat, finally_left, flow_control, key, tenant};

const REQUESTS: usize = 10_000;
/// So many wait at a time, and no more have room in B's budget: whatever one of the first waves left behind would be
/// missing to the next.
const WAVE: usize = 1_000;
/// Most tokens of an answer; reserved with each request.
const REPLY: usize = 100;

/// What was left.
#[derive(Clone, Debug, Serialize)]
pub struct Leaving {
    /// Requests that waited and whose clients left.
    pub requests: usize,
    /// Waiting, under way or charged to endpoints afterwards, over all workers.
    pub left_over: u64,
}

/// Fills the queue and empties it, again and again.
///
/// # Errors
/// When a request does not wait or does not go.
pub async fn measure() -> Result<Leaving> {
    let engine = ScriptedEngine::start().await?;
    // Two and a half waves' tokens.
    let tokens = WAVE * REPLY * 5 / 2;
    let budget =
        format!("  limits: [{{model: '*', concurrency: {WAVE}, inflightTokens: {tokens}}}]");
    let documents = tenant(A, "") + &tenant(B, &budget) + &flow_control(1, WEIGHTED);
    let mut setup = Setup::new(0, WORKERS).document(&documents);
    setup.other_endpoints.push(Endpoint::new("scripted", engine.address));
    let stack = Stack::start(setup).await?;
    let mut workers = one_each(stack.listen(), WORKERS).await?;
    let text = Prompts::new()?.text(30)?;
    let body = chat(&text, REPLY).to_string();
    let post = async |tenant: &str, id: &str| -> Result<RawClient> {
        let mut client = RawClient::connect(stack.listen()).await?;
        let key = format!("authorization: Bearer {}", key(tenant));
        client.post(e2e::client::CHAT, id, &[&key], body.as_bytes()).await?;
        Ok(client)
    };
    // The only place is taken.
    let mut first = engine.expect("first");
    let holder = post(A, "first").await?;
    first.arrived().await.context("the first request")?;
    for wave in 0..REQUESTS / WAVE {
        let mut waiting = Vec::with_capacity(WAVE);
        for number in 0..WAVE {
            waiting.push(post(B, &format!("left-{wave}-{number}")).await?);
        }
        parked(&mut workers, WAVE as u64).await?;
        // One half hangs up, the other resets.
        for (at, client) in waiting.into_iter().enumerate() {
            if at % 2 == 0 { client.close() } else { client.reset() }
        }
        parked(&mut workers, 0).await?;
    }
    drop(holder);
    first.hung_up().await;
    ensure!(engine.order() == ["first"], "some went to the engine: {:?}", engine.order());
    Ok(Leaving { requests: REQUESTS, left_over: finally_left(&stack).await? })
}

/// Waits until so many requests wait in all workers together.
async fn parked(workers: &mut [WorkerConnection], count: u64) -> Result<()> {
    let since = std::time::Instant::now();
    loop {
        let mut parked = 0;
        for worker in workers.iter_mut() {
            parked += worker.state().await?.parked_here;
        }
        if parked == count {
            return Ok(());
        }
        ensure!(since.elapsed() < e2e::stack::PATIENCE, "{parked} wait, not {count}");
        tokio::task::yield_now().await;
    }
}

impl Leaving {
    /// What is not as it should be.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let left = (self.left_over > 0)
            .then(|| format!("{} left over by requests whose clients left", self.left_over));
        left.into_iter().collect()
    }
}
