//! The endpoint that served is the one that is charged, remembered and written down.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use e2e::access_log::{self, Access};
use e2e::client::CHAT;
use e2e::prompts::{body, chat, fresh_text};
use e2e::raw_client::RawClient;
use e2e::state::Charged;
use e2e::{Setup, Stack};
use serde_json::{Value, json};

use crate::conversation::{Conversation, go_on};
use crate::settled::{engine_ports, nothing_is_left};

fn index_of(stack: &Stack, engine: &str) -> Result<usize> {
    let at = stack.simulator.replicas.iter().position(|address| address.to_string() == engine);
    at.with_context(|| format!("no engine {engine}"))
}

async fn charges(stack: &Stack) -> Option<BTreeMap<String, Charged>> {
    let state = stack.filter_state().await.ok()?;
    Some(state.endpoints.into_iter().map(|e| (e.address, e.in_flight)).collect())
}

/// Sends the next turn as a stream that lasts, to an engine that is going to refuse it; returns who served.
async fn served_elsewhere(
    stack: &Stack,
    conversation: &mut Conversation,
    picked: &str,
) -> Result<(String, Access)> {
    let (id, mut turn) = conversation.turn(5000);
    turn["stream"] = json!(true);
    let mut client = RawClient::connect(stack.listen()).await?;
    client.post(CHAT, &id, &[], &body(&turn)).await?;
    let head = client.head().await?;
    ensure!(head.status == 200, "{id}: status {}", head.status);
    let served = head.header("x-sim-endpoint").context("x-sim-endpoint")?.to_owned();
    ensure!(served != picked, "{id}: {picked} served although it refuses");
    client.data().await?;

    let moved = async || {
        let charges = charges(stack).await?;
        let at = |engine: &str| charges.get(engine).map(|c| (c.requests, c.uncached_tokens));
        (at(&served)? == (1, 0) && at(picked)? == (0, 0)).then_some(())
    };
    stack.until(&format!("{served} is charged, {picked} is not"), moved).await?;
    client.reset();
    nothing_is_left(stack).await?;
    Ok((served, stack.access(&id).await?))
}

fn assert_moved(record: &Access, served: &str) {
    assert_eq!(record.endpoint.as_deref(), Some(served), "{record:?}");
    assert_eq!(record.upstream.as_deref(), Some(served), "{record:?}");
    assert_eq!(record.attempts, Some(2), "{record:?}");
    assert_eq!(record.reason.as_deref(), Some("retried_elsewhere"), "{record:?}");
}

/// The next turn knows that `served` holds the conversation.
async fn assert_followed(
    stack: &Stack,
    conversation: &mut Conversation,
    served: &str,
) -> Result<()> {
    let turn = go_on(stack, conversation).await?;
    assert_eq!(turn.engine, served, "the conversation went on elsewhere");
    // All turns so far, but for this one and the end of the last.
    assert!(turn.cached * 10 > turn.prompt * 7, "{} of {} cached", turn.cached, turn.prompt);
    let record = stack.access(&turn.id).await?;
    assert_eq!(record.reason.as_deref(), Some("prefix"));
    assert!(record.matched_tokens() > Some(0), "{record:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_moves_charge_and_memory_to_who_served() -> Result<()> {
    let setup = Setup::new(3, 2).simulator(&["--ports", &engine_ports::<3>()?]);
    let mut stack = Stack::start(setup).await?;

    // Its own "not now".
    let mut conversation = Conversation::new("busy", 2000);
    let first = go_on(&stack, &mut conversation).await?;
    let picked = index_of(&stack, &first.engine)?;
    stack.simulator.fault(&json!({"replica": picked, "fault": "error", "status": 503})).await?;
    let (served, record) = served_elsewhere(&stack, &mut conversation, &first.engine).await?;
    assert_moved(&record, &served);
    stack.simulator.fault(&json!({"replica": picked, "fault": "none"})).await?;
    assert_followed(&stack, &mut conversation, &served).await?;

    // Refused connections. Without the agent nobody takes the dead engine out, so it is picked.
    let mut conversation = Conversation::new("refused", 2000);
    let first = go_on(&stack, &mut conversation).await?;
    let picked = index_of(&stack, &first.engine)?;
    if let Some(agent) = &mut stack.agent {
        agent.process.kill();
    }
    stack.simulator.fault(&json!({"replica": picked, "fault": "refuse"})).await?;
    let (served, record) = served_elsewhere(&stack, &mut conversation, &first.engine).await?;
    assert_moved(&record, &served);
    assert_followed(&stack, &mut conversation, &served).await?;
    stack.simulator.fault(&json!({"replica": picked, "fault": "none"})).await?;
    stack.start_agent().await?;
    stack.wait_ready(3).await?;
    // The engine that was restarted meanwhile is cold, the one that served is not.
    assert_followed(&stack, &mut conversation, &served).await
}

/// Clients choose the ids, and may all choose the same.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_streams_with_one_request_id_are_told_apart() -> Result<()> {
    const STREAMS: usize = 50;
    let stack = Stack::start(Setup::new(4, 4).simulator(&["--decode-ms", "100"])).await?;
    let mut open = Vec::new();
    for index in 0..STREAMS {
        let mut ask = chat(&fresh_text(300 + 40 * index), u32::try_from(20 + index % 7)?);
        ask["stream"] = json!(true);
        ask["stream_options"] = json!({"include_usage": true});
        let mut client = RawClient::connect(stack.listen()).await?;
        client.post(CHAT, "a", &[], &body(&ask)).await?;
        open.push(client);
    }
    let mut expected_charges: BTreeMap<String, u64> = BTreeMap::new();
    let mut engines = Vec::new();
    for client in &mut open {
        let head = client.head().await?;
        assert_eq!(head.status, 200);
        let engine = head.header("x-sim-endpoint").context("x-sim-endpoint")?.to_owned();
        *expected_charges.entry(engine.clone()).or_default() += 1;
        engines.push(engine);
    }
    // They take two seconds and more: all are open now.
    let all_charged = async || {
        let charges = charges(&stack).await?;
        let requests = charges.into_iter().map(|(engine, c)| (engine, c.requests));
        (requests.filter(|(_, n)| *n > 0).collect::<BTreeMap<_, _>>() == expected_charges)
            .then_some(())
    };
    stack.until("each engine is charged for its streams", all_charged).await?;

    let mut expected = Vec::new();
    for (client, engine) in open.iter_mut().zip(engines) {
        let text = String::from_utf8(client.rest().await?)?;
        let chunks = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
        let usage = chunks.filter_map(|chunk| chunk.get("usage").cloned()).find(Value::is_object);
        let usage = usage.context("a stream without usage")?;
        let count = |name: &str| usage[name].as_u64();
        expected.push((engine, count("prompt_tokens"), count("completion_tokens")));
    }
    let path = stack.dir().join(access_log::FILE);
    let logged = async || {
        let mut records = access_log::read(&path);
        records.retain(|record| record.request_id.as_deref() == Some("a"));
        (records.len() == STREAMS).then_some(records)
    };
    let records = stack.until("50 records of the id", logged).await?;
    let told = |r: &Access| (r.endpoint.clone(), r.prompt_tokens(), r.completion_tokens());
    let mut found: Vec<_> = records.iter().map(told).collect();
    let mut expected: Vec<_> = expected
        .into_iter()
        .map(|(engine, prompt, answer)| (Some(engine), prompt, answer))
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    nothing_is_left(&stack).await
}
