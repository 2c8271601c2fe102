//! Producers: what is known of endpoints and requests, and what is made of their parameters.

use crate::bed::{Bed, configure, long, picker_config, short};
use anyhow::{Context as _, Result};
use e2e::agent_files::{MODEL_FOLDER, write_model};
use e2e::client::{self, Request};
use e2e::prompts::{chat, fresh_text};
use e2e::{MODEL, Setup, Stack};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::task::JoinSet;

/// Of exactly so many bytes.
fn text_of(bytes: usize) -> String {
    let mut text = fresh_text(bytes);
    text.truncate(bytes);
    text
}

/// Tokens of the same prompt that are believed to be held when it comes for the second time.
async fn matched_again(bed: &Bed, text: &str, id: &str) -> Result<u64> {
    bed.served_by(&long(text)).await?;
    bed.served_by(&long(text).id(id)).await?;
    bed.stack.access(id).await?.matched_tokens().context("no matched tokens")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approximate_index_keeps_to_its_caps() -> Result<()> {
    let with = |parameters: &str| {
        let plugins = format!(
            "- type: approx-prefix-cache-producer\n  parameters: {{{parameters}}}\n\
             - type: prefix-cache-scorer"
        );
        picker_config(&plugins, &["prefix-cache-scorer"])
    };
    let mut bed =
        Bed::start(&[&[]], &with("blockSizeTokens: 64, maxPrefixTokensToMatch: 16384")).await?;
    let all = matched_again(&bed, &text_of(8000), "all").await?;
    assert!(all > 1000, "{all}");
    // In whole blocks: 512 of 550.
    bed.configure(&with("blockSizeTokens: 64, maxPrefixTokensToMatch: 550")).await?;
    let capped = matched_again(&bed, &text_of(8000), "capped").await?;
    assert!((256..=512).contains(&capped), "{capped}");
    // 2,560 tokens of 4 bytes each are 80 blocks of 128 bytes: one such prompt, and some of the one before.
    let room = "autoTune: false, blockSizeTokens: 64, lruCapacityPerServer: 40";
    bed.configure(&with(room)).await?;
    for _ in 0..3 {
        bed.served_by(&long(&text_of(8000))).await?;
    }
    let forgotten = async || {
        let blocks = bed.stack.filter_state().await.ok()?.prefix_blocks;
        (blocks == 80).then_some(())
    };
    bed.stack.until("the oldest blocks forgotten", forgotten).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn expected_output_counts_as_load_until_the_end() -> Result<()> {
    let config = |parameters: &str| {
        let plugins = format!(
            "- type: inflight-load-producer\n  parameters: {{{parameters}}}\n\
             - type: token-load-scorer"
        );
        picker_config(&plugins, &["token-load-scorer"])
    };
    // Requests last for as long as the test.
    let setup = Setup::new(1, 1).simulator(&["--decode-ms", "1000"]).document(&config(""));
    let mut stack = Stack::start(setup).await?;
    let listen = stack.listen();
    let mut running = JoinSet::new();
    let mut totals = Vec::new();
    for (parameters, reply_tokens) in [
        ("", 500),
        // What the client asks for is the least of the three.
        ("addEstimatedOutputTokens: true, outputRatio: 2, maxEstimatedOutputTokens: 300", 100),
        // The cap is.
        ("addEstimatedOutputTokens: true, outputRatio: 2, maxEstimatedOutputTokens: 301", 500),
        // The ratio is: none at all.
        ("addEstimatedOutputTokens: true, outputRatio: 0", 500),
    ] {
        if !parameters.is_empty() {
            configure(&mut stack, &config(parameters)).await?;
        }
        let request = Request::chat(&chat(&text_of(4000), reply_tokens));
        running.spawn(async move { client::send(listen, &request).await });
        let count = running.len() as u64;
        let charged = async || {
            let state = stack.filter_state().await.ok()?;
            let charged = state.endpoints.first()?.in_flight;
            (charged.requests == count).then_some(charged.uncached_tokens)
        };
        totals.push(stack.until("the request in flight", charged).await?);
    }
    let [prompt, client_max, cap, ratio] = totals[..] else { panic!("{totals:?}") };
    assert!(prompt > 500, "{totals:?}");
    let added = (client_max - 2 * prompt, cap - client_max - prompt, ratio - cap - prompt);
    assert_eq!(added, (100, 301, 0), "{totals:?}");
    Ok(())
}

/// A configuration in which a session's id, from `source`, pins it, and all else is chance.
fn pinned(producer: &str, source: &str) -> String {
    let plugins = format!(
        "{producer}
- type: session-affinity-filter
  parameters:
    strategy: session_id
    sessionIdConfig: {{sources: [{source}]}}
- type: random-picker"
    );
    picker_config(&plugins, &["session-affinity-filter", "random-picker"])
}

/// Requests like `mine` all go to one endpoint, and those of nobody don't.
async fn assert_pinned(bed: &Bed, mine: &Request) -> Result<()> {
    let at = bed.served_by(mine).await?;
    let mut others = BTreeSet::new();
    for _ in 0..12 {
        assert_eq!(bed.served_by(mine).await?, at);
        others.insert(bed.served_by(&short()).await?);
    }
    assert!(others.len() > 1, "the picker spreads: {others:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_known_by_what_a_producer_reads() -> Result<()> {
    let cookie = "- type: session-id-producer\n  name: by-cookie\n  parameters: {cookieName: sid}";
    let source = "{attribute: SessionID, producer: by-cookie}";
    let mut bed = Bed::start(&[&[], &[], &[]], &pinned(cookie, source)).await?;
    assert_pinned(&bed, &short().header("cookie", "a=b; sid=one")).await?;
    let header = "- type: session-id-producer\n  parameters: {headerName: X-My-Session}";
    let source = "{attribute: SessionID, producer: session-id-producer}";
    bed.configure(&pinned(header, source)).await?;
    assert_pinned(&bed, &short().header("x-my-session", "two")).await?;
    let agent =
        "- type: agent-identity\n  parameters: {additionalSessionHeaders: [x-agent-of-mine]}";
    bed.configure(&pinned(agent, "{attribute: agent-identity}")).await?;
    assert_pinned(&bed, &short().header("x-claude-code-session-id", "three")).await?;
    assert_pinned(&bed, &short().header("x-agent-of-mine", "four")).await?;
    // Without a fairness ID that an outer gateway or a tenant gives it, it is the agent's.
    bed.send(&short().header("x-claude-code-session-id", "five").id("of-an-agent")).await?;
    let log = bed.stack.access("of-an-agent").await?;
    assert_eq!(log.fairness_id.as_deref(), Some("five"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_producer_loads_and_changes_no_pick() -> Result<()> {
    let config = |producer: &str| {
        picker_config(&format!("{producer}\n- type: prefix-cache-scorer"), &["prefix-cache-scorer"])
    };
    let picked_again = async |bed: &Bed| -> Result<()> {
        let text = fresh_text(3000);
        let first = bed.served_by(&long(&text)).await?;
        for _ in 0..6 {
            assert_eq!(bed.served_by(&long(&text)).await?, first);
        }
        Ok(())
    };
    let estimate = "- type: token-producer\n  parameters: {estimate: {image: {mode: static, static: {staticToken: 500}}}}";
    let mut bed = Bed::start(&[&[], &[], &[]], &config(estimate)).await?;
    picked_again(&bed).await?;
    let between = picker_config("- type: random-picker", &["random-picker"]);
    for other in [
        "- type: tokenizer\n  parameters: {modelName: llama-70b, udsTokenizerConfig: {socketFile: /tmp/tokenizer.sock}}",
        "- type: token-producer\n  parameters: {modelName: llama-70b, vllm: {url: http://127.0.0.1:1}}",
    ] {
        // The revision tells of contents, and those of a token producer are none.
        bed.configure(&between).await?;
        bed.configure(&config(other)).await?;
        picked_again(&bed).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_precise_producer_follows_the_engines_events() -> Result<()> {
    let events = "
  parameters:
    tokenProcessorConfig: {blockSizeTokens: 16}
    indexerConfig: {kvBlockIndexConfig: {enableMetrics: true}}
    kvEventsConfig:
      topicFilter: kv@
      concurrency: 4
      discoverPods: true
      podDiscoveryConfig: {socketPort: 5557}";
    let producer = picker_config(
        &format!("- type: precise-prefix-cache-producer{events}\n- type: prefix-cache-scorer"),
        &["prefix-cache-scorer"],
    );
    let scorer = picker_config(
        &format!("- type: precise-prefix-cache-scorer{events}"),
        &["precise-prefix-cache-scorer"],
    );
    let without = picker_config("- type: prefix-cache-scorer", &["prefix-cache-scorer"]);
    let setup = Setup::new(2, 1).simulator(&["--kv-events"]).document(&without);
    let mut stack = Stack::start(setup).await?;
    write_model(stack.dir())?;
    let model = format!("kind: Model\nname: {MODEL}\nfolder: {MODEL_FOLDER}\n");
    assert!(stack.filter_state().await?.endpoints.iter().all(|endpoint| !endpoint.precise));
    for (name, config) in [("producer", producer), ("scorer", scorer)] {
        configure(&mut stack, &format!("{model}---\n{config}")).await?;
        stack.wait_precise(2).await?;
        let request = Request::chat(&chat(&fresh_text(4000), 1));
        let first = client::send(stack.listen(), &request).await?;
        assert_eq!(first.status, 200, "{}", first.text());
        let tries = AtomicU32::new(0);
        let told = async || {
            let id = format!("{name}-{}", tries.fetch_add(1, Ordering::Relaxed));
            let answer = client::send(stack.listen(), &request.clone().id(&id)).await.ok()?;
            let log = stack.access(&id).await.ok()?;
            let told = log.matched_kind.as_deref() == Some("events");
            told.then(|| (answer.engine().map(str::to_owned), log.matched_tokens()))
        };
        let (engine, matched) = stack.until("a belief that rests on events", told).await?;
        assert_eq!(engine.as_deref(), first.engine(), "{name}");
        assert!(matched > Some(500), "{name}: {matched:?}");
        // Nobody follows events any more.
        configure(&mut stack, &without).await?;
        let none = async || {
            let state = stack.filter_state().await.ok()?;
            state.endpoints.iter().all(|endpoint| !endpoint.precise).then_some(())
        };
        stack.until("no precise endpoint", none).await?;
    }
    Ok(())
}
