//! What tenants may use.

use crate::bed::{KEY_A, KEY_B, short, tenants, usage};
use anyhow::Result;
use e2e::client;
use e2e::{Setup, Stack};
use serde_json::Value;
use tokio::task::JoinSet;

fn number(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_reserved_and_not_used_comes_back() -> Result<()> {
    // Room for one reservation of 900, and many of what they use.
    let of_a = "  limits: [{model: llama-70b, tpm: 1000}]";
    let stack = Stack::start(Setup::new(2, 4).document(&tenants(of_a, ""))).await?;
    for turn in 1..=3u64 {
        let mut body: Value = serde_json::from_slice(&short(KEY_A, 900).body)?;
        body["sim_reply_tokens"] = 5.into();
        let answer = client::send(stack.listen(), &crate::bed::keyed(KEY_A, &body)).await?;
        assert_eq!(answer.status, 200, "{turn}: {}", answer.text());
        // Settled before it is in the ledger.
        usage(&stack, "a", |total| total["requests"] == turn).await?;
    }
    let body = short(KEY_A, 2000);
    let refused = client::send(stack.listen(), &body).await?;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "request_too_large");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_up_budget_refuses_one_tenant_and_no_other() -> Result<()> {
    let of_a = "  limits: [{model: llama-70b, tpm: 300}]";
    let stack = Stack::start(Setup::new(2, 4).document(&tenants(of_a, ""))).await?;
    let first = client::send(stack.listen(), &short(KEY_A, 240)).await?;
    assert_eq!(first.status, 200, "{}", first.text());
    let remaining = number(first.header("x-ratelimit-remaining-tokens")).expect("what remains");
    assert!(remaining < 60, "{remaining}");
    let refused = client::send(stack.listen(), &short(KEY_A, 240)).await?;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(refused.json()["error"]["type"], "tokens");
    // 240 of 300 a minute: most of a minute.
    let after = number(refused.header("retry-after")).expect("when to come back");
    assert!((10..=60).contains(&after), "{after}");
    assert_eq!(refused.header("x-ratelimit-limit-tokens"), Some("300"));
    assert!(number(refused.header("x-ratelimit-remaining-tokens")).is_some());
    let other = client::send(stack.listen(), &short(KEY_B, 240)).await?;
    assert_eq!(other.status, 200, "{}", other.text());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_at_once_on_a_budget_for_five() -> Result<()> {
    let of_a = "  limits: [{model: '*', rpm: 5}]";
    let setup = Setup::new(2, 4).document(&tenants(of_a, "")).simulator(&["--time-scale", "10"]);
    let stack = Stack::start(setup).await?;
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let listen = stack.listen();
        calls.spawn(async move { client::send(listen, &short(KEY_A, 1)).await });
    }
    let (mut admitted, mut refused) = (0, 0);
    while let Some(answer) = calls.join_next().await {
        let answer = answer??;
        match answer.status {
            200 => admitted += 1,
            429 => refused += 1,
            other => panic!("{other}: {}", answer.text()),
        }
    }
    assert_eq!((admitted, refused), (5, 45));
    let arrived: u64 = stack.engines().await?.iter().map(|engine| engine.arrived).sum();
    assert_eq!(arrived, 5);
    let total = usage(&stack, "a", |total| total["requests"] == 50).await?;
    assert_eq!(total["requests"], 50, "{total}");
    Ok(())
}
