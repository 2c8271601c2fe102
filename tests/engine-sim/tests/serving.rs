//! Serving as a client sees it, without faults.

mod support;

use engine_sim::engine::EngineConfig;
use engine_sim::replica::SimConfig;
use serde_json::{Value, json};
use support::{Call, Sim, chat, config, get, long_text, post, send};
use tokio::io::AsyncWriteExt;
use xxhash_rust::xxh3::xxh3_64;

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_client_that_leaves_frees_its_request_at_once_and_is_no_success() {
    let sim = Sim::start(SimConfig { time_scale: 1.0, ..config() }, 1).await;
    for body in [
        chat(&long_text(100), json!({"max_tokens": 3000, "stream": true})),
        chat(&long_text(100), json!({"max_tokens": 3000})),
        json!({"model": "tiny", "prompt": ["a b", "c d"], "max_tokens": 3000, "stream": true}),
    ] {
        let call = Call::post(sim.addr(0), "/v1/chat/completions", &body);
        let call = if body.get("prompt").is_some() {
            Call::post(sim.addr(0), "/v1/completions", &body).await
        } else {
            call.await
        };
        let call = call.unwrap();
        sim.until(0, |state| state["running"].as_u64() > Some(0)).await;
        drop(call);
        let state = sim.until(0, |state| state["running"] == 0).await;
        assert_eq!((&state["free_blocks"], &state["served"]), (&json!(1_000), &json!(0)));
    }
    let metrics = get(sim.addr(0), "/metrics").await.unwrap().text();
    assert!(
        !metrics
            .lines()
            .any(|line| line.starts_with("vllm:request_success_total{") && !line.ends_with(" 0.0"))
    );
    let state = sim.state(0).await;
    assert!(
        state["requests"].as_array().unwrap().iter().all(|request| request["outcome"] == "aborted")
    );
}

#[tokio::test]
async fn answers_are_deterministic_and_the_next_turn_finds_them_cached() {
    let sim = Sim::start(config(), 2).await;
    let first = chat(&long_text(60), json!({"max_tokens": 100}));
    let a = post(sim.addr(0), CHAT, &first).await.unwrap().json();
    let b = post(sim.addr(1), CHAT, &first).await.unwrap().json();
    assert_eq!(a["choices"][0]["message"]["content"], b["choices"][0]["message"]["content"]);
    let mut messages = first["messages"].as_array().unwrap().clone();
    messages.push(a["choices"][0]["message"].clone());
    messages.push(json!({"role": "user", "content": "go on"}));
    let next = json!({"model": "tiny", "messages": messages, "max_tokens": 1});
    let reply = post(sim.addr(0), CHAT, &next).await.unwrap();
    let prompt = a["usage"]["prompt_tokens"].as_u64().unwrap();
    // All but the last token of the answer were computed.
    let expected = (prompt + 99) / 16 * 16;
    assert_eq!(reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"], expected);
    assert_eq!(reply.header("x-sim-cached-tokens"), Some(&*expected.to_string()));
}

#[tokio::test]
async fn salts_adapters_and_replicas_share_nothing() {
    let sim = Sim::start(config(), 2).await;
    let text = long_text(100);
    let plain = chat(&text, json!({}));
    post(sim.addr(0), CHAT, &plain).await.unwrap();
    for (replica, more, hit) in [
        (0, json!({}), true),
        (0, json!({"cache_salt": "t1"}), false),
        (0, json!({"cache_salt": "t1"}), true),
        (0, json!({"model": "lora-a"}), false),
        (0, json!({"model": "tiny-alias"}), true),
        (1, json!({}), false),
    ] {
        let reply = post(sim.addr(replica), CHAT, &chat(&text, more.clone())).await.unwrap();
        assert_eq!(reply.header("x-sim-cached-tokens") != Some("0"), hit, "{replica} {more}");
    }
}

#[tokio::test]
async fn prompts_come_in_every_form() {
    let sim = Sim::start(config(), 1).await;
    let one =
        post(sim.addr(0), "/v1/completions", &json!({"model": "tiny", "prompt": "Hello world"}))
            .await
            .unwrap();
    let one = one.json();
    assert_eq!(one["usage"]["completion_tokens"], 16, "OpenAI's default");
    let count = one["usage"]["prompt_tokens"].as_u64().unwrap();
    let tokens = post(sim.addr(0), "/tokenize", &json!({"model": "tiny", "prompt": "Hello world"}))
        .await
        .unwrap()
        .json();
    assert_eq!(tokens["count"], count);
    for (prompt, choices) in [
        (json!(["Hello world"]), 1),
        (tokens["tokens"].clone(), 1),
        (json!(["Hello world", "Hello world"]), 2),
        (json!([tokens["tokens"], tokens["tokens"]]), 2),
    ] {
        let body = json!({"model": "tiny", "prompt": prompt});
        let reply = post(sim.addr(0), "/v1/completions", &body).await.unwrap().json();
        let texts: Vec<_> = reply["choices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|choice| choice["text"].clone())
            .collect();
        assert_eq!(texts, vec![one["choices"][0]["text"].clone(); choices]);
        assert_eq!(reply["usage"]["prompt_tokens"], count * choices as u64);
    }
    let text = |content: Value| json!({"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": content}]});
    let plain = post(sim.addr(0), CHAT, &text(json!("a\nb"))).await.unwrap().json();
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let parts = post(sim.addr(0), CHAT, &text(parts)).await.unwrap().json();
    assert_eq!(plain["choices"], parts["choices"]);
    assert_eq!(post(sim.addr(0), CHAT, &text(Value::Null)).await.unwrap().status, 200);
    let image = json!([{"type": "image_url", "image_url": {"url": "x"}}]);
    assert_eq!(post(sim.addr(0), CHAT, &text(image)).await.unwrap().status, 400);
}

#[tokio::test]
async fn limits_end_an_answer_as_told() {
    let sim = Sim::start(config(), 1).await;
    for (more, tokens, reason) in [
        (json!({"max_tokens": 7}), 7, "length"),
        (json!({"max_completion_tokens": 5, "max_tokens": 7}), 5, "length"),
        (json!({"max_tokens": 7, "sim_reply_tokens": 3}), 3, "stop"),
        (json!({"max_tokens": null}), 8, "stop"),
    ] {
        let reply = post(sim.addr(0), CHAT, &chat("x", more.clone())).await.unwrap().json();
        assert_eq!(reply["usage"]["completion_tokens"], tokens, "{more}");
        assert_eq!(reply["choices"][0]["finish_reason"], reason, "{more}");
    }
    assert_eq!(post(sim.addr(0), CHAT, &chat("x", json!({"n": 2}))).await.unwrap().status, 400);
    assert_eq!(
        post(sim.addr(0), CHAT, &chat("x", json!({"max_tokens": 0}))).await.unwrap().status,
        400
    );
    assert_eq!(
        post(sim.addr(0), CHAT, &chat("x", json!({"max_tokens": 4_095}))).await.unwrap().status,
        400
    );
}

#[tokio::test]
async fn of_duplicate_fields_the_last_counts_and_junk_is_400() {
    let sim = Sim::start(config(), 1).await;
    let json_type = [("content-type", "application/json")];
    let body =
        br#"{"model":"nope","m\u006fdel":"tiny","prompt":"x","max_tokens":9,"max_tokens":2}"#;
    let reply = send(sim.addr(0), "POST", "/v1/completions", &json_type, body).await.unwrap();
    assert_eq!((reply.status, &reply.json()["usage"]["completion_tokens"]), (200, &json!(2)));
    let deep = "[".repeat(10_000);
    for body in [
        "",
        "null",
        "[]",
        "\"x\"",
        "{\"model\":",
        "\u{feff}{}",
        "{\"prompt\":\"\\ud800\"}",
        &deep,
        "{\"prompt\":{}}",
    ] {
        let reply = send(sim.addr(0), "POST", "/v1/completions", &json_type, body.as_bytes())
            .await
            .unwrap();
        assert_eq!(reply.status, 400, "{body:.40}");
        assert_eq!(reply.json()["error"]["code"], 400, "{body:.40}");
    }
    let reply =
        send(sim.addr(0), "POST", "/v1/completions", &json_type, b"\xff\xfe{}").await.unwrap();
    assert_eq!(reply.status, 400);
}

#[tokio::test]
async fn what_arrived_can_be_read_back() {
    let sim = Sim::start(config(), 1).await;
    let body = chat("hello", json!({"metadata": {"odd": "\u{e9}"}})).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("x-request-id", "r-7"),
        ("x-gateway-hint", "a"),
        ("authorization", "Bearer k"),
    ];
    send(sim.addr(0), "POST", "/v1/chat/completions?beta=true", &headers, body.as_bytes())
        .await
        .unwrap();
    let record = sim.state(0).await["requests"][0].clone();
    assert_eq!(record["path"], "/v1/chat/completions?beta=true");
    assert_eq!(record["request_id"], "r-7");
    assert_eq!(record["body_bytes"], body.len());
    assert_eq!(record["body_xxh3"], format!("{:016x}", xxh3_64(body.as_bytes())));
    assert_eq!((&record["status"], &record["outcome"]), (&json!(200), &json!("finished")));
    let listed = record["headers"].as_array().unwrap();
    assert!(
        listed.contains(&json!(["x-gateway-hint", "a"]))
            && listed.contains(&json!(["authorization", "***"]))
    );
}

#[tokio::test]
async fn request_ids_are_echoed_only_when_told() {
    for (request_id_headers, echoed) in [(false, None), (true, Some("my-req-1"))] {
        let sim = Sim::start(SimConfig { request_id_headers, ..config() }, 1).await;
        let headers = [("content-type", "application/json"), ("x-request-id", "my-req-1")];
        let body = chat("x", json!({})).to_string();
        let reply = send(sim.addr(0), "POST", CHAT, &headers, body.as_bytes()).await.unwrap();
        assert_eq!(reply.json()["id"], "chatcmpl-my-req-1");
        assert_eq!(reply.header("x-request-id"), echoed);
    }
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_waits_for_a_slow_body() {
    let sim = Sim::start(config(), 1).await;
    let mut call =
        Call::post(sim.addr(0), CHAT, &chat("x", json!({"stream": true}))).await.unwrap();
    call.read_until("[DONE]\n\n\r\n0\r\n\r\n").await.unwrap();
    let body = chat("x", json!({})).to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    call.0.write_all(head.as_bytes()).await.unwrap();
    call.read_until("100 Continue\r\n\r\n").await.unwrap();
    for byte in body.as_bytes() {
        call.0.write_all(&[*byte]).await.unwrap();
    }
    call.read_until("\"usage\"").await.unwrap();
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive_by_comments_when_told() {
    let engine = EngineConfig { max_num_seqs: 1, ..config().engine };
    let sim = Sim::start(
        SimConfig { engine, time_scale: 1.0, sse_keep_alive: Some(0.01), ..config() },
        1,
    )
    .await;
    let mut first =
        Call::post(sim.addr(0), CHAT, &chat("x", json!({"stream": true, "max_tokens": 2000})))
            .await
            .unwrap();
    first.read_until("data:").await.unwrap();
    let mut second =
        Call::post(sim.addr(0), CHAT, &chat("y", json!({"stream": true}))).await.unwrap();
    let waiting = second.read_until(": keep-alive\n\n\r\n").await.unwrap();
    // The head came before any token, as vLLM sends it.
    assert!(
        waiting.starts_with(b"HTTP/1.1 200 OK")
            && !String::from_utf8_lossy(&waiting).contains("data:")
    );
    drop(first);
    second.read_until("[DONE]").await.unwrap();
}

#[tokio::test]
async fn usage_comes_on_every_event_where_the_server_forces_it() {
    let mut forced = config();
    forced.api.force_include_usage = true;
    forced.api.prompt_tokens_details = false;
    let sim = Sim::start(forced, 1).await;
    let events =
        post(sim.addr(0), CHAT, &chat("x", json!({"stream": true}))).await.unwrap().events();
    let (done, events) = events.split_last().unwrap();
    assert_eq!(done, "[DONE]");
    assert!(events.iter().all(|event| event.contains("\"usage\":{")));
    assert!(events.iter().all(|event| !event.contains("prompt_tokens_details")));
}
