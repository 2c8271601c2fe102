//! Messages, responses, embeddings, token ids and conversations.

mod support;

use serde_json::{Value, json};
use support::{Call, Reply, Sim, config, get, long_text, post, send, shape};

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

fn fixture(name: &str) -> String {
    let path = format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

async fn ask(sim: &Sim, path: &str, body: Value) -> Reply {
    let reply = post(sim.addr(0), path, &body).await.unwrap();
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply
}

fn messages(text: &str) -> Value {
    json!({
        "model": "tiny", "max_tokens": 4, "system": "Be brief.",
        "messages": [{"role": "user", "content": text}],
    })
}

async fn embeddings(sim: &Sim, input: Value) -> Value {
    ask(sim, "/v1/embeddings", json!({"model": "tiny", "input": input})).await.json()
}

async fn count(sim: &Sim, body: Value) -> Value {
    ask(sim, "/v1/messages/count_tokens", body).await.json()["input_tokens"].clone()
}

fn events(text: &str) -> Vec<String> {
    text.split("\n\n").filter(|event| !event.trim().is_empty()).map(shape).collect()
}

#[tokio::test]
async fn answers_in_one_piece_have_the_fields_of_the_captures() {
    let sim = Sim::start(config(), 1).await;
    let reply = ask(&sim, MESSAGES, messages("Hi")).await;
    assert_eq!(shape(&reply.text()), shape(fixture("messages.json").trim()));
    assert_eq!(reply.json()["stop_reason"], "max_tokens");
    let body = json!({"model": "lora-a", "input": "Hi", "max_output_tokens": 4});
    let reply = ask(&sim, RESPONSES, body).await;
    assert_eq!(shape(&reply.text()), shape(fixture("responses.json").trim()));
    assert_eq!(reply.json()["model"], "lora-a");
    let body = json!({"model": "tiny", "token_ids": [100, 101, 102], "sampling_params": {"max_tokens": 4}});
    let ours = ask(&sim, "/inference/v1/generate", body).await.json();
    let captured: Value = serde_json::from_str(&fixture("generate.json")).unwrap();
    // A map has no order; its own would be the alphabet's on both sides.
    assert_eq!(shape(&ours.to_string()), shape(&captured.to_string()));
    assert_eq!(ours["choices"][0]["token_ids"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn streams_have_the_events_of_the_captures_in_their_order() {
    let sim = Sim::start(config(), 1).await;
    for (name, path, delta, mut body) in [
        ("sse_messages.txt", MESSAGES, "text_delta", messages("Hi")),
        (
            "sse_responses.txt",
            RESPONSES,
            "output_text.delta",
            json!({"model": "tiny", "input": "Hi"}),
        ),
    ] {
        let captured = fixture(name);
        let tokens = captured
            .matches(&format!("\"{delta}\""))
            .count()
            .max(captured.matches(&format!("\"type\":\"response.{delta}\"")).count());
        let limit = if path == MESSAGES { "max_tokens" } else { "max_output_tokens" };
        body[limit] = json!(tokens);
        body["stream"] = json!(true);
        let reply = ask(&sim, path, body).await;
        assert!(reply.complete);
        assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
        assert_eq!(events(&reply.text()), events(&captured), "{name}");
    }
}

#[tokio::test]
async fn usage_tells_what_was_cached_in_each_apis_way() {
    let sim = Sim::start(config(), 1).await;
    let text = long_text(60);
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.push(ask(&sim, MESSAGES, messages(&text)).await.json()["usage"].clone());
    }
    let count = messages(&text);
    let counted = ask(&sim, "/v1/messages/count_tokens", count).await.json();
    let whole = counted["input_tokens"].as_u64().unwrap();
    let cached = (whole - 1) / 16 * 16;
    assert_eq!(seen[0]["input_tokens"], whole);
    assert_eq!(
        (&seen[1]["input_tokens"], &seen[1]["cache_read_input_tokens"]),
        (&json!(whole - cached), &json!(cached))
    );
    // The same prompt, as a chat and as a response.
    let chat = json!({"model": "tiny", "max_tokens": 4, "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": text},
    ]});
    let chat = ask(&sim, "/v1/chat/completions", chat).await.json();
    assert_eq!(chat["usage"]["prompt_tokens_details"]["cached_tokens"], cached);
    let body = json!({"model": "tiny", "instructions": "Be brief.", "max_output_tokens": 4, "input": [
        {"role": "user", "content": [{"type": "input_text", "text": text}]},
    ]});
    let response = ask(&sim, RESPONSES, body).await.json();
    assert_eq!(response["usage"]["input_tokens_details"]["cached_tokens"], cached);
    assert_eq!(
        response["output"][0]["content"][0]["text"],
        chat["choices"][0]["message"]["content"]
    );
}

#[tokio::test]
async fn blocks_of_messages_are_read_and_a_billing_line_is_dropped() {
    let sim = Sim::start(config(), 1).await;
    let plain = json!({"model": "tiny", "system": "Be brief.", "messages": [
        {"role": "user", "content": "one\ntwo"}, {"role": "assistant", "content": "three"},
        {"role": "user", "content": "four"},
    ]});
    let blocks = json!({"model": "tiny",
    "system": [{"type": "text", "text": "x-anthropic-billing-header: a"}, {"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "three"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "four"}]},
    ]});
    assert_eq!(count(&sim, plain).await, count(&sim, blocks).await);
    let image = json!({"model": "tiny", "messages": [
        {"role": "user", "content": [{"type": "image", "source": {}}]},
    ]});
    let reply = post(sim.addr(0), "/v1/messages/count_tokens", &image).await.unwrap();
    assert_eq!((reply.status, &reply.json()["type"]), (400, &json!("error")));
}

#[tokio::test]
async fn inputs_of_embeddings_become_vectors_that_depend_on_them() {
    let sim = Sim::start(config(), 1).await;
    let one = embeddings(&sim, json!("a b")).await;
    let several = embeddings(&sim, json!(["a b", "c d e"])).await;
    let tokens = embeddings(&sim, json!([[1, 2, 3]])).await;
    assert_eq!(several["data"].as_array().unwrap().len(), 2);
    assert_eq!(several["data"][0]["embedding"], one["data"][0]["embedding"]);
    assert_ne!(several["data"][1]["embedding"], one["data"][0]["embedding"]);
    assert_eq!(
        tokens["usage"],
        json!({
            "prompt_tokens": 3, "total_tokens": 3, "completion_tokens": 0, "prompt_tokens_details": null,
        })
    );
    assert_eq!(one["model"], "tiny");
}

#[tokio::test]
async fn every_api_is_recorded_and_knows_no_unknown_model() {
    let sim = Sim::start(config(), 1).await;
    let bodies = [
        (MESSAGES, messages("x")),
        ("/v1/messages/count_tokens", messages("x")),
        (RESPONSES, json!({"model": "tiny", "input": "x", "max_output_tokens": 1})),
        ("/v1/embeddings", json!({"model": "tiny", "input": "x"})),
        ("/inference/v1/generate", json!({"model": "tiny", "token_ids": [1]})),
    ];
    for (path, body) in &bodies {
        let mut unknown = body.clone();
        unknown["model"] = json!("nobody");
        assert_eq!(post(sim.addr(0), path, &unknown).await.unwrap().status, 404, "{path}");
        ask(&sim, path, body.clone()).await;
    }
    let conversation = ask(&sim, "/v1/conversations", json!({"items": []})).await.json();
    assert_eq!(conversation["object"], "conversation");
    let state = sim.state(0).await;
    let requests = state["requests"].as_array().unwrap();
    let outcomes: Vec<_> =
        requests.iter().map(|request| (&request["path"], &request["outcome"])).collect();
    let mut expected = Vec::new();
    for (path, _) in &bodies {
        expected.extend([(json!(path), json!("rejected")), (json!(path), json!("finished"))]);
    }
    expected.push((json!("/v1/conversations"), json!("finished")));
    assert_eq!(
        outcomes,
        expected.iter().map(|(path, outcome)| (path, outcome)).collect::<Vec<_>>()
    );
    assert_eq!(get(sim.addr(0), MESSAGES).await.unwrap().status, 405);
    let wrong =
        send(sim.addr(0), "POST", "/v1/embeddings", &[("content-type", "text/plain")], b"{}");
    assert_eq!(wrong.await.unwrap().status, 400);
}

#[tokio::test]
async fn an_engine_that_dies_in_a_stream_of_messages_says_so_in_their_way() {
    let sim = Sim::start(engine_sim::replica::SimConfig { time_scale: 1.0, ..config() }, 1).await;
    let mut body = messages("x");
    body["max_tokens"] = json!(1000);
    body["stream"] = json!(true);
    let mut call = Call::post(sim.addr(0), MESSAGES, &body).await.unwrap();
    let seen = call.read_until("content_block_delta").await.unwrap();
    sim.fault(json!({"replica": 0, "fault": "crash_midstream"})).await;
    let reply = call.finish(seen).await.unwrap();
    let text = reply.text();
    let last = text.trim_end().rsplit("\n\n").next().unwrap();
    assert!(last.starts_with("event: error\ndata: {\"type\":\"error\",\"error\":{"), "{last}");
    assert!(!text.contains("message_stop") && !text.contains("[DONE]"));
}
