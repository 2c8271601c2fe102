//! The listener with the plugin's configuration is pushed anew.
//!
//! Each push brings a root context in every VM; the one before it drains and then goes.

use anyhow::Result;
use e2e::background_load::Load;
use e2e::client::{Request, Response, send};
use e2e::prompts::{chat, fresh_text};
use e2e::state::FilterState;
use e2e::workers::{WorkerConnection, one_each, some_each};
use e2e::{Setup, Stack};

use crate::held_streams::on_every_worker;
use crate::traps::{RECOVERY, all_workers_know, poison, taught};

/// Workers of every stack here.
pub(crate) const WORKERS: usize = 4;

/// Envoy's own drain time, long enough for a request under way and short enough to wait for.
const DRAIN: [&str; 2] = ["--drain-time-s", "2"];

/// A push replaces this, or what a former push put there.
pub(crate) const FIRST_LIMIT: usize = 1_000_000;

/// The same stack with a listener that can be pushed.
pub(crate) fn pushable(mut setup: Setup) -> Setup {
    setup.listener_file = true;
    setup.envoy_arguments = DRAIN.map(str::to_owned).to_vec();
    setup.plugin_config_extra = limit_field(FIRST_LIMIT);
    setup
}

async fn stack() -> Result<Stack> {
    // A stream of 30 tokens takes 1.5 s: it outlasts the push and not the drain.
    let engines = ["--decode-ms", "50", "--prefill-rate", "10000000", "--num-blocks", "100000"];
    Stack::start(pushable(Setup::new(4, WORKERS).simulator(&engines))).await
}

fn limit_field(limit: usize) -> String {
    format!(r#", "max_body_bytes": {limit}"#)
}

/// The listener with the plugin's limit `to` instead of `from`.
fn limited(from: usize, to: usize) -> impl Fn(&str) -> String {
    move |listener| listener.replace(&limit_field(from), &limit_field(to))
}

/// Pushes that, and waits until Envoy has taken it up.
pub(crate) async fn push_limit(stack: &Stack, from: usize, to: usize) -> Result<()> {
    stack.push_listener_taken(limited(from, to)).await
}

/// Waits until nothing drains any more.
pub(crate) async fn drained(stack: &Stack) -> Result<()> {
    let gone = async || {
        let listeners = stack.stat("listener_manager.total_listeners_draining").await.ok()?;
        let chains = stack.stat("listener_manager.total_filter_chains_draining").await.ok()?;
        (listeners + chains == 0).then_some(())
    };
    stack.until("the end of the drain", gone).await
}

async fn post_of(stack: &Stack, bytes: usize) -> Result<Response> {
    send(stack.listen(), &Request::chat(&chat(&fresh_text(bytes), 1))).await
}

/// All VMs are alive, current, know `taught` prompts and have nothing in flight.
pub(crate) async fn all_is_well(stack: &Stack) -> Result<Vec<WorkerConnection>> {
    let mut workers = one_each(stack.listen(), WORKERS).await?;
    let known = taught(&mut workers[0], 8).await?;
    for worker in &mut workers {
        let start = worker.state().await?.applied;
        let well = |state: &FilterState| {
            state.applied > start && state.vms == WORKERS + 1 && state.in_flight == 0
        };
        worker.until(RECOVERY, "new frames, all VMs, nothing in flight", well).await?;
    }
    all_workers_know(&mut workers, &known).await?;
    Ok(workers)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_configuration_comes_into_force_and_nothing_is_lost() -> Result<()> {
    let stack = stack().await?;
    let mut workers = one_each(stack.listen(), WORKERS).await?;
    let known = taught(&mut workers[0], 8).await?;
    drop(workers);
    assert_eq!(post_of(&stack, 20_000).await?.status, 200);
    let mut held = on_every_worker(stack.listen(), WORKERS, 30).await?;

    push_limit(&stack, FIRST_LIMIT, 10_000).await?;
    let in_force = async || (post_of(&stack, 20_000).await.ok()?.status == 413).then_some(());
    stack.until_for(RECOVERY, "the new limit", in_force).await?;
    // Streams that began before come to their end.
    for stream in &mut held {
        assert!(stream.whole().await?, "a stream was cut");
    }
    let mut workers = all_is_well(&stack).await?;
    all_workers_know(&mut workers, &known[..4]).await?;
    drop(workers);

    drained(&stack).await?;
    let mut workers = all_is_well(&stack).await?;
    all_workers_know(&mut workers, &known[4..]).await?;
    for worker in &mut workers {
        assert_eq!(worker.state().await?.in_flight_here, 0);
        let large = Request::chat(&chat(&fresh_text(20_000), 1));
        assert_eq!(worker.send(&large).await?.status, 413);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_pushes_under_load_fail_no_request() -> Result<()> {
    let stack = stack().await?;
    let load = Load::on_new_connections(stack.listen(), 4);
    for step in 0..20 {
        let before = load.done();
        push_limit(&stack, FIRST_LIMIT + step, FIRST_LIMIT + step + 1).await?;
        stack.until("load", async || (load.done() >= before + 10).then_some(())).await?;
    }
    drained(&stack).await?;
    let failed: Vec<_> = load.stop().await.into_iter().filter(|o| !o.fine()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    all_is_well(&stack).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refused_or_withdrawn_configuration_the_last_good_one_works_on() -> Result<()> {
    let stack = stack().await?;
    // The filter itself refuses this one.
    assert!(!stack.push_listener(limited(FIRST_LIMIT, 1)).await?);
    assert_eq!(post_of(&stack, 20_000).await?.status, 200);
    push_limit(&stack, 1, 10_000).await?;
    all_is_well(&stack).await?;

    // Nothing is wrong with the filter's part of this one: Envoy configures it, and drops it again.
    let twice = |listener: &str| {
        let chain = listener.find("    - filters:\n").unwrap_or(listener.len());
        limited(10_000, 5_000)(&format!("{}\n{}", listener.trim_end(), &listener[chain..]))
    };
    assert!(!stack.push_listener(twice).await?);
    all_is_well(&stack).await?;
    assert_eq!(post_of(&stack, 7_000).await?.status, 200);
    assert_eq!(post_of(&stack, 20_000).await?.status, 413);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_returns_while_it_still_drains_is_in_force_again() -> Result<()> {
    let stack = stack().await?;
    push_limit(&stack, FIRST_LIMIT, 10_000).await?;
    let status =
        async |wanted| (post_of(&stack, 20_000).await.ok()?.status == wanted).then_some(());
    stack.until("the second limit", async || status(413).await).await?;
    push_limit(&stack, 10_000, FIRST_LIMIT).await?;
    stack.until("the first limit", async || status(200).await).await?;
    drained(&stack).await?;
    all_is_well(&stack).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_may_trap_while_an_old_configuration_drains() -> Result<()> {
    let mut setup = pushable(Setup::new(4, WORKERS));
    setup.fault_injection = true;
    let stack = Stack::start(setup).await?;
    let mut old = one_each(stack.listen(), WORKERS).await?;
    push_limit(&stack, FIRST_LIMIT, 10_000).await?;
    let in_force = async || (post_of(&stack, 20_000).await.ok()?.status == 413).then_some(());
    stack.until("the new limit", in_force).await?;
    let mut new = some_each(stack.listen(), WORKERS, 2).await?;
    for (old, new) in old.iter_mut().zip(&mut new).take(2) {
        assert_eq!(old.incarnation, new[0].incarnation, "one VM serves both listeners");
        assert_eq!(new[0].send(&poison()).await?.status, 503);
        // The fresh VM gets the new configuration, and then, as it still drains, the old one.
        let fresh = new[1].reloaded(RECOVERY).await?.incarnation;
        assert_eq!(old.state().await?.incarnation, fresh);
    }
    drained(&stack).await?;
    all_is_well(&stack).await?;
    assert_eq!(post_of(&stack, 20_000).await?.status, 413);
    Ok(())
}
