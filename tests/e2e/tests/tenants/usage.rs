//! What is asked of engines, what clients see of it, and what the ledger has.

use crate::bed::{KEY_A, KEY_B, keyed, short, tenants, usage};
use anyhow::{Context as _, Result};
use e2e::client;
use e2e::raw_client::RawClient;
use e2e::scripted_engine::ScriptedEngine;
use e2e::{Endpoint, MODEL, Setup, Stack};
use serde_json::{Value, json};

/// The events of a stream as JSON, without `[DONE]`.
fn events(body: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(body);
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

fn streamed(options: &Value) -> Value {
    let mut body = json!({
        "model": MODEL,
        "stream": true,
        "max_tokens": 6,
        "messages": [{"role": "user", "content": "One, two, three."}],
    });
    if !options.is_null() {
        body["stream_options"] = options.clone();
    }
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_that_nobody_asked_for_is_seen_by_the_ledger_alone() -> Result<()> {
    let exact = "  accounting: {streamDisconnect: bill_exact}";
    let setup = Setup::new(1, 2).document(&tenants("", exact));
    let stack = Stack::start(setup).await?;
    for (key, tenant) in [(KEY_A, "a"), (KEY_B, "b")] {
        let engine = stack.simulated()[0].address;
        for (number, options) in [
            json!(null),
            json!({"include_usage": false}),
            json!({"include_usage": true}),
            json!({"include_usage": true, "continuous_usage_stats": true}),
        ]
        .into_iter()
        .enumerate()
        {
            let request = keyed(key, &streamed(&options));
            let through = client::send(stack.listen(), &request).await?;
            assert_eq!(through.status, 200, "{}", through.text());
            let direct = client::send(engine, &request).await?;
            // As without the gateway, but for what every answer has of its own, and the fingerprint, which an engine
            // puts in its last chunk, whichever that is.
            let plain = |body: &[u8]| {
                let mut all = events(body);
                for event in &mut all {
                    for own in ["id", "created", "system_fingerprint"] {
                        event[own] = Value::Null;
                    }
                    // The second has the prompt cached.
                    event["usage"]["prompt_tokens_details"] = Value::Null;
                    if event["usage"] == json!({"prompt_tokens_details": null}) {
                        event.as_object_mut().map(|event| event.remove("usage"));
                    }
                }
                all
            };
            assert_eq!(plain(&through.body), plain(&direct.body), "{tenant} {options}");
            let counted = events(&direct.body).len() as u64;
            assert!(counted > 6, "{}", direct.text());
            assert!(through.text().ends_with("data: [DONE]\n\n"), "{}", through.text());
            let requests = number as u64 + 1;
            let total = usage(&stack, tenant, |total| total["requests"] == requests).await?;
            assert_eq!(total["output"], 6 * requests, "{tenant} {options}: {total}");
        }
        // As the engine counted them.
        let engines = stack.engines().await?;
        let of_tenant = |request: &&e2e::state::EngineRequest| {
            request.header("x-llm-d-inference-fairness-id") == [tenant]
        };
        let arrived: Vec<_> = engines[0].requests.iter().filter(of_tenant).collect();
        assert_eq!(arrived.len(), 4, "{tenant}");
        let prompts: u64 = arrived.iter().map(|request| request.prompt_tokens).sum();
        let total = usage(&stack, tenant, |total| total["requests"] == 4).await?;
        assert_eq!(total["input"], prompts, "{tenant}: {total}");
    }
    Ok(())
}

fn chunk(text: &str, usage: Option<(u64, u64)>) -> Vec<u8> {
    let mut event = json!({
        "id": "c", "object": "chat.completion.chunk", "model": MODEL,
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}],
    });
    if let Some((input, output)) = usage {
        event["usage"] = json!({
            "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        });
    }
    format!("data: {event}\n\n").into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_pays_for_what_was_written() -> Result<()> {
    let exact = "  accounting: {streamDisconnect: bill_exact}";
    let limits = "  limits: [{model: '*', tpm: 100000}]";
    let engine = ScriptedEngine::start().await?;
    let mut setup = Setup::new(0, 2).document(&tenants(limits, exact));
    setup.other_endpoints.push(Endpoint::new("scripted", engine.address));
    let stack = Stack::start(setup).await?;
    for (key, tenant, with_usage) in [(KEY_A, "a", false), (KEY_B, "b", true)] {
        let id = format!("cut-{tenant}");
        let mut served = engine.expect(&id);
        let mut client = RawClient::connect(stack.listen()).await?;
        let body = streamed(&json!(null)).to_string();
        let header = format!("authorization: Bearer {key}");
        client.post(client::CHAT, &id, &[&header], body.as_bytes()).await?;
        let arrived = served.arrived().await.context("the request")?;
        let asked: Value = serde_json::from_slice(&arrived.body)?;
        assert_eq!(asked["stream_options"]["include_usage"], true, "{asked}");
        let continuous = &asked["stream_options"]["continuous_usage_stats"];
        assert_eq!(continuous == &json!(true), with_usage, "{asked}");
        served.send_stream_head();
        client.head().await?;
        for (index, word) in ["one ", "two ", "three "].into_iter().enumerate() {
            // Two tokens a chunk, as only the engine can know.
            let usage = with_usage.then_some((17, 2 * (index as u64 + 1)));
            served.send_chunk(&chunk(word, usage));
            let seen = client.data().await?.context("a chunk")?;
            let seen = String::from_utf8_lossy(&seen).into_owned();
            assert!(seen.contains(word) && !seen.contains("usage"), "{seen}");
        }
        client.close();
        served.hung_up().await;
        let total = usage(&stack, tenant, |total| total["requests"] == 1).await?;
        let expected = if with_usage { 6 } else { 3 };
        assert_eq!(total["output"], expected, "{tenant}: {total}");
        if with_usage {
            assert_eq!(total["input"], 17, "{total}");
        }
        let access = stack.access(&id).await?;
        assert_eq!(access.cause.as_deref(), Some("client_gone"), "{access:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_record_is_lost_or_doubled_while_the_agent_is_away() -> Result<()> {
    let mut stack = Stack::start(Setup::new(2, 4).document(&tenants("", ""))).await?;
    let send = async |stack: &Stack| -> Result<()> {
        for _ in 0..20 {
            let answer = client::send(stack.listen(), &short(KEY_A, 3)).await?;
            anyhow::ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
        }
        Ok(())
    };
    send(&stack).await?;
    // Its last records may be on their way.
    drop(stack.agent.take());
    send(&stack).await?;
    stack.start_agent().await?;
    send(&stack).await?;
    let total = usage(&stack, "a", |total| total["requests"].as_u64() >= Some(60)).await?;
    assert_eq!((&total["requests"], &total["output"]), (&json!(60), &json!(180)), "{total}");
    assert!(stack.stat("wasmcustom.warmroute.records.batches_failed").await? > 0);
    let engines = stack.engines().await?;
    let prompts: u64 =
        engines.iter().flat_map(|engine| &engine.requests).map(|r| r.prompt_tokens).sum();
    assert_eq!(total["input"], prompts, "{total}");
    Ok(())
}
