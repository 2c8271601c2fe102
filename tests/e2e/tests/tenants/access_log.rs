//! The access log as the ledger's second path.

use crate::bed::{KEY_A, KEY_B, short, tenants, usage};
use crate::queues::{Bed, flow_control, prioritized};
use anyhow::{Context as _, Result};
use e2e::client::{self, Request};
use e2e::prompts::chat;
use e2e::{Setup, Stack};

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_says_of_tenants_what_the_ledger_says() -> Result<()> {
    let of_a = "  limits: [{model: '*', tpm: 1000}]";
    let stack = Stack::start(Setup::new(2, 4).document(&tenants(of_a, ""))).await?;
    let mut charged = 0;
    for turn in 0..3 {
        let id = format!("of-a-{turn}");
        let answer = client::send(stack.listen(), &short(KEY_A, 20 + turn).id(&id)).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let access = stack.access(&id).await?;
        assert_eq!(access.tenant.as_deref(), Some("a"));
        assert_eq!(access.fairness_id.as_deref(), Some("a"));
        let (input, output) = (access.prompt_tokens(), access.completion_tokens());
        let used = input.context("input")? + output.context("output")?;
        assert_eq!(access.charged_tokens(), Some(used), "{access:?}");
        // Its longest answer, and some input.
        assert!(access.reserved_tokens() > Some(20), "{access:?}");
        assert_eq!((access.dropped, access.cause.as_deref()), (None, Some("completed")));
        charged += used;
    }
    let total = usage(&stack, "a", |total| total["requests"] == 3).await?;
    assert_eq!(total["charged"], charged, "{total}");
    // What was refused took nothing.
    let refused = client::send(stack.listen(), &short(KEY_A, 960).id("refused")).await?;
    assert_eq!(refused.status, 429, "{}", refused.text());
    let access = stack.access("refused").await?;
    assert_eq!((access.tenant.as_deref(), access.charged_tokens().unwrap_or(0)), (Some("a"), 0));
    assert_eq!(access.details.as_deref(), Some("warmroute_budget"));
    let total = usage(&stack, "a", |total| total["requests"] == 4).await?;
    assert_eq!(total["charged"], charged, "{total}");
    // Nobody's.
    let nobody = Request::chat(&chat("Hi", 2)).header("x-api-key", "sk-nobody").id("nobody");
    assert_eq!(client::send(stack.listen(), &nobody).await?.status, 401);
    assert_eq!(stack.access("nobody").await?.tenant, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_says_who_waited_and_why_one_was_dropped() -> Result<()> {
    let bands = "  priorityBands: [{priority: 0, maxRequests: 1}]\n";
    let mut bed = Bed::start(&(prioritized() + &flow_control(1, bands))).await?;
    let mut first = bed.call(KEY_B, "first");
    first.arrived().await?;
    let mut waits = bed.call(KEY_B, "waits");
    bed.settled(1, 1).await?;
    assert_eq!(bed.call(KEY_B, "dropped").refused().await?.status, 429);
    first.finish().await?;
    waits.arrived().await?;
    waits.finish().await?;
    let waited = bed.stack.access("waits").await?;
    assert!(waited.queue_ms() > Some(0), "{waited:?}");
    assert_eq!((waited.tenant.as_deref(), waited.dropped.as_deref()), (Some("b"), None));
    let first = bed.stack.access("first").await?.queue_ms();
    assert!(first < waited.queue_ms(), "{first:?}");
    let dropped = bed.stack.access("dropped").await?;
    assert_eq!(dropped.dropped.as_deref(), Some("rejected-saturated"), "{dropped:?}");
    Ok(())
}
