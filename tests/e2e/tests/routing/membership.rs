//! Endpoints come, go and move under load, by the agent's YAML alone.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use e2e::access_log;
use e2e::background_load::{Load, Outcome};
use e2e::client::{CHAT, Request, send};
use e2e::prompts::{chat, fresh_text};
use e2e::stack::PATIENCE;
use e2e::state::FilterState;
use e2e::workers::one_each;
use e2e::{Endpoint, Setup, Stack};
use serde_json::json;

const CLIENTS: usize = 6;
const WORKERS: usize = 2;

async fn stack() -> Result<Stack> {
    Stack::start(Setup::new(3, WORKERS).simulator(&["--time-scale", "5"])).await
}

/// One more simulated engine, which nobody knows yet.
async fn one_more(stack: &Stack) -> Result<SocketAddr> {
    let answer = stack.simulator.order("/replicas", &json!({"port": 0})).await?.json();
    Ok(answer["endpoint"].as_str().context("no endpoint")?.parse()?)
}

/// Requests that ever arrived at an engine.
async fn arrived(stack: &Stack, address: SocketAddr) -> Result<u64> {
    let engines = stack.engines().await?;
    let engine = engines.iter().find(|engine| engine.endpoint == address.to_string());
    Ok(engine.with_context(|| format!("{address} is gone"))?.arrived)
}

/// Waits until `count` more requests of the load are over.
async fn go_on(stack: &Stack, load: &Load, count: usize) -> Result<()> {
    let target = load.done() + count;
    let over = async || (load.done() >= target).then_some(());
    stack.until(&format!("{count} more requests"), over).await
}

fn failed(outcomes: &[Outcome]) -> Vec<&Outcome> {
    outcomes.iter().filter(|outcome| !outcome.fine()).collect()
}

/// Once no worker has this address any more and all requests from before are over, none arrives there; no request of
/// `load` or afterwards failed.
async fn never_again(stack: &Stack, load: Load, gone: SocketAddr) -> Result<()> {
    let address = gone.to_string();
    for worker in &mut one_each(stack.listen(), WORKERS).await? {
        let forgotten =
            |state: &FilterState| state.endpoints.iter().all(|known| known.address != address);
        worker.until(PATIENCE, "the address is gone", forgotten).await?;
    }
    let mut outcomes = load.stop().await;
    let before = arrived(stack, gone).await?;
    assert!(before > 0, "{gone} had never been picked");
    let load = Load::on_new_connections(stack.listen(), CLIENTS);
    go_on(stack, &load, 300).await?;
    outcomes.extend(load.stop().await);
    assert_eq!(arrived(stack, gone).await?, before, "picked afterwards");
    assert!(failed(&outcomes).is_empty(), "{:?}", failed(&outcomes));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_added_and_another_removed_without_a_failed_request() -> Result<()> {
    let stack = stack().await?;
    let load = Load::on_new_connections(stack.listen(), CLIENTS);
    go_on(&stack, &load, 50).await?;

    let address = one_more(&stack).await?;
    let mut endpoints = stack.simulated();
    endpoints.push(Endpoint::new("engine-3", address));
    stack.write_endpoints(&endpoints)?;
    let picked = async || arrived(&stack, address).await.ok().filter(|&count| count > 0);
    stack.until("the new endpoint is picked", picked).await?;

    let removed = endpoints.remove(1);
    stack.write_endpoints(&endpoints)?;
    never_again(&stack, load, removed.address).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_at_a_new_address_starts_cold_without_a_failed_request() -> Result<()> {
    let stack = stack().await?;
    let load = Load::on_new_connections(stack.listen(), CLIENTS);
    // A prompt that the endpoint holds which is going to move.
    let moving = stack.simulated().remove(2);
    let mut tries = 0;
    let prompt = loop {
        let prompt = chat(&fresh_text(4000), 2);
        let answer = send(stack.listen(), &Request::chat(&prompt)).await?;
        if answer.engine() == Some(moving.address.to_string().as_str()) {
            break prompt;
        }
        tries += 1;
        ensure!(tries < 200, "{} of {} equal endpoints is never picked", moving.name, 3);
    };
    send(stack.listen(), &Request::chat(&prompt).id("before")).await?;
    let log = stack.access("before").await?;
    assert_eq!(log.endpoint, Some(moving.address.to_string()));
    assert!(log.matched_tokens() > Some(0), "{log:?}");

    let address = one_more(&stack).await?;
    let mut endpoints = stack.simulated();
    endpoints[2].address = address;
    stack.write_endpoints(&endpoints)?;
    let moved = async || {
        let state = stack.filter_state().await.ok()?;
        let endpoint = state.endpoint(&moving.name)?;
        (endpoint.ready && endpoint.address == address.to_string()).then_some(())
    };
    stack.until("the endpoint has its new address", moved).await?;
    send(stack.listen(), &Request::chat(&prompt).id("after")).await?;
    let log = stack.access("after").await?;
    // Nobody else ever had it.
    assert_eq!((log.matched_tokens(), log.reason.as_deref()), (Some(0), Some("load")), "{log:?}");

    let picked = async || arrived(&stack, address).await.ok().filter(|&count| count > 0);
    stack.until("the new address is picked", picked).await?;
    never_again(&stack, load, moving.address).await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_dead_endpoint_only_what_it_worked_on_fails() -> Result<()> {
    let stack = stack().await?;
    let load = Load::on_new_connections(stack.listen(), CLIENTS);
    go_on(&stack, &load, 50).await?;
    let mut endpoints = stack.simulated();
    let dead = endpoints.remove(0);
    stack.simulator.fault(&json!({"replica": 0, "fault": "crash_midstream_silent"})).await?;
    stack.write_endpoints(&endpoints)?;
    stack.wait_ready(2).await?;
    go_on(&stack, &load, 200).await?;
    let outcomes = load.stop().await;

    let path = stack.dir().join(access_log::FILE);
    let logged = async || {
        let chats =
            access_log::read(&path).into_iter().filter(|log| log.path.as_deref() == Some(CHAT));
        Some(chats.collect::<Vec<_>>()).filter(|chats| chats.len() == outcomes.len())
    };
    let log = stack.until("all requests are in the access log", logged).await?;
    let lost: Vec<_> = log.iter().filter(|log| log.cause.as_deref() != Some("completed")).collect();
    let address = dead.address.to_string();
    assert!(lost.iter().all(|log| log.upstream.as_ref() == Some(&address)), "{lost:?}");
    // A client has one request under way at a time.
    assert!(lost.len() <= CLIENTS && failed(&outcomes).len() <= lost.len(), "{lost:?}");
    let served = log.iter().filter(|log| log.upstream.as_ref() == Some(&address)).count();
    assert!(served > lost.len(), "the dead endpoint had never served");
    Ok(())
}
