//! However many prompts pass, what is remembered of them stays bounded.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use e2e::client::{Connection, Request};
use e2e::echo_engine::EchoEngine;
use e2e::prompts::{chat, fresh_text};
use e2e::stack::PATIENCE;
use e2e::state::FilterState;
use e2e::workers::one_each;
use e2e::{Endpoint, Setup, Stack};
use tokio::task::JoinSet;

const WORKERS: usize = 4;

const ENGINES: usize = 4;

/// 10,000 blocks of 16 tokens an engine, of 4 bytes a token as long as nothing else is known, in
/// blocks of 128 bytes.
const ROOM: u64 = ENGINES as u64 * 10_000 * 16 * 4 / 128;

const PROMPT_BYTES: usize = 8 << 10;

const HALF: usize = 10_000;

const CLIENTS: usize = 16;

/// Sends so many prompts that are all different, over all workers.
async fn pass(listen: SocketAddr, prompts: usize) -> Result<()> {
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(async move {
            let mut connection = Connection::open(listen).await?;
            for _ in 0..prompts / CLIENTS {
                let request = Request::chat(&chat(&fresh_text(PROMPT_BYTES), 1));
                let answer = connection.send(&request).await?;
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
            anyhow::Ok(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    Ok(())
}

/// Memory of the process that is really in use, in KiB.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    line.trim().trim_end_matches(" kB").parse().context("VmRSS")
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_prompts_leave_bounded_memory() -> Result<()> {
    let mut setup = Setup::new(0, WORKERS);
    let mut engines = Vec::new();
    for number in 0..ENGINES {
        let engine = EchoEngine::start().await?;
        let name = format!("echo-{number}");
        setup.other_endpoints.push(Endpoint::new(name, engine.address));
        engines.push(engine);
    }
    let stack = Stack::start(setup).await?;
    let pid = stack.envoy.process.pid();
    let mut workers = one_each(stack.listen(), WORKERS).await?;
    let mut rss = Vec::new();
    for _ in 0..2 {
        pass(stack.listen(), HALF).await?;
        for worker in &mut workers {
            // Full, and not fuller than the engines; the last frames may still be on their way.
            let bounded = |state: &FilterState| state.prefix_blocks <= ROOM;
            let blocks = worker.until(PATIENCE, "eviction", bounded).await?.prefix_blocks;
            assert!(blocks > ROOM * 9 / 10, "{blocks} blocks of {ROOM}");
        }
        rss.push(resident(pid)?);
    }
    let (first, second) = (rss[0], rss[1]);
    // Buffers come and go by some MB. What is kept of 10,000 prompts would be 80 MB of text, or 100 MB of
    // table in four VMs.
    assert!(second < first + first / 8, "{first} KiB after half, {second} KiB after all prompts");
    Ok(())
}

/// Nothing of it is changed and nobody renders it, so its messages are hashed as they come.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_does_not_grow_with_the_size_of_a_prompt() -> Result<()> {
    const BODY: usize = 4 << 20;
    let mut setup = Setup::new(0, 1);
    let engine = EchoEngine::start().await?;
    setup.other_endpoints.push(Endpoint::new("echo", engine.address));
    let stack = Stack::start(setup).await?;
    let mut workers = one_each(stack.listen(), 1).await?;
    let worker = workers.first_mut().context("a worker")?;
    let request = Request::chat(&chat(&fresh_text(BODY), 1));
    worker.send(&Request::chat(&chat(&fresh_text(PROMPT_BYTES), 1))).await?;
    let before = worker.state().await?.memory_bytes;
    for _ in 0..3 {
        let answer = worker.send(&request).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let grown = worker.state().await?.memory_bytes.saturating_sub(before);
        assert!(grown < BODY as u64 / 2, "{grown} bytes for a body of {BODY}");
    }
    Ok(())
}
