//! The simulator's answers against captures of a real vLLM.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use engine_sim::engine::EngineConfig;
use serde_json::{Value, json};
use support::{Call, Sim, chat, config, get, parse, post, send, shape};

fn fixture(name: &str) -> String {
    let path = format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[tokio::test]
async fn errors_are_those_of_the_captures() {
    let sim = Sim::start(config(), 1).await;
    for line in fixture("errors.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let request = &case["request"];
        if request.is_null() {
            continue; // Has a test of its own: it takes a full queue.
        }
        let body = match &request["body"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let kind = request["headers"]["Content-Type"].as_str().unwrap_or("application/json");
        let (method, path) =
            (request["method"].as_str().unwrap(), request["path"].as_str().unwrap());
        let reply = send(sim.addr(0), method, path, &[("content-type", kind)], body.as_bytes())
            .await
            .unwrap();
        assert_eq!(json!(reply.status), case["status"], "{}", case["name"]);
        assert_eq!(reply.json(), case["body"], "{}", case["name"]);
    }
}

#[tokio::test]
async fn a_full_queue_answers_as_captured() {
    let engine = EngineConfig { max_queued: Some(1), ..config().engine };
    let sim = Sim::start(slow(engine), 1).await;
    let mut first = Call::post(
        sim.addr(0),
        "/v1/chat/completions",
        &chat("x", json!({"max_tokens": 4000, "stream": true})),
    )
    .await
    .unwrap();
    first.read_until("data:").await.unwrap();
    let reply = post(sim.addr(0), "/v1/chat/completions", &chat("y", json!({}))).await.unwrap();
    let cases = fixture("errors.jsonl");
    let case: Value =
        serde_json::from_str(cases.lines().find(|line| line.contains("queue_full")).unwrap())
            .unwrap();
    assert_eq!((json!(reply.status), reply.json()), (case["status"].clone(), case["body"].clone()));
    let metrics = get(sim.addr(0), "/metrics").await.unwrap().text();
    assert!(metrics.contains(
        "vllm:admission_rejections_total{model_name=\"tiny\",reason=\"max_num_queued_reqs\"} 1.0\n"
    ));
}

fn slow(engine: EngineConfig) -> engine_sim::replica::SimConfig {
    engine_sim::replica::SimConfig { engine, time_scale: 1.0, ..config() }
}

#[tokio::test]
async fn streams_have_the_events_of_the_captures_in_their_order() {
    let sim = Sim::start(config(), 1).await;
    let usage = json!({"include_usage": true});
    let both = json!({"include_usage": true, "continuous_usage_stats": true});
    let cases = [
        ("sse_chat_include_usage.txt", "/v1/chat/completions", json!({"stream_options": usage})),
        ("sse_chat_no_usage.txt", "/v1/chat/completions", json!({})),
        ("sse_chat_continuous_usage.txt", "/v1/chat/completions", json!({"stream_options": both})),
        (
            "sse_chat_token_ids.txt",
            "/v1/chat/completions",
            json!({"return_token_ids": true, "stream_options": usage}),
        ),
        ("sse_completion_include_usage.txt", "/v1/completions", json!({"stream_options": usage})),
        ("sse_completion_continuous_usage.txt", "/v1/completions", json!({"stream_options": both})),
    ];
    for (name, path, more) in cases {
        let captured = fixture(name);
        let expected: Vec<_> =
            captured.split("\n\n").filter(|event| !event.is_empty()).map(shape).collect();
        let tokens = expected
            .iter()
            .filter(|event| event.contains("content:S},") || event.contains("text:S"))
            .count();
        let mut body = json!({"model": "tiny", "stream": true, "max_tokens": tokens});
        if path.ends_with("/v1/completions") {
            body["prompt"] = json!("Hello");
        } else {
            body["messages"] = json!([{"role": "user", "content": "Hi"}]);
            // The role event looks like a token's, but is none.
            body["max_tokens"] = json!(tokens - 1);
        }
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = post(sim.addr(0), path, &body).await.unwrap();
        assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
        assert!(reply.complete);
        let text = reply.text();
        let events: Vec<_> =
            text.split("\n\n").filter(|event| !event.is_empty()).map(shape).collect();
        assert_eq!(events, expected, "{name}");
    }
}

#[tokio::test]
async fn an_engine_that_dies_in_mid_stream_ends_it_as_captured() {
    let sim = Sim::start(slow(config().engine), 1).await;
    let body = chat("x", json!({"max_tokens": 1000, "stream": true}));
    let mut call = Call::post(sim.addr(0), "/v1/chat/completions", &body).await.unwrap();
    let seen = call.read_until("content\":\" ").await.unwrap();
    sim.fault(json!({"replica": 0, "fault": "crash_midstream"})).await;
    let reply = call.finish(seen).await.unwrap();
    let captured = fixture("sse_engine_crash.txt").replace('\n', "\r\n");
    let error = captured
        .find("data: {\"error\"")
        .map(|at| captured[at..].split("\r\n").next().unwrap())
        .unwrap();
    let events = reply.events();
    let tail: Vec<_> = events.iter().rev().take(2).map(|event| format!("data: {event}")).collect();
    assert_eq!(tail, ["data: [DONE]", error]);
    assert!(reply.complete, "the end itself is clean");
    assert!(!reply.text().contains("finish_reason\":\"length"));
    assert_eq!(
        post(sim.addr(0), "/v1/chat/completions", &body).await.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
}

#[tokio::test]
async fn bodies_in_one_piece_have_the_fields_of_the_captures() {
    let sim = Sim::start(config(), 1).await;
    let of = |name: &str| serde_json::from_str::<Value>(&fixture(name)).unwrap();
    let chat =
        post(sim.addr(0), "/v1/chat/completions", &chat("Hi", json!({}))).await.unwrap().json();
    assert_eq!(shape(&chat.to_string()), shape(&of("chat.json").to_string()));
    let body = json!({"model": "tiny", "prompt": "Hello", "max_tokens": 8});
    let completion = post(sim.addr(0), "/v1/completions", &body).await.unwrap().json();
    assert_eq!(shape(&completion.to_string()), shape(&of("completion.json").to_string()));
    let models = get(sim.addr(0), "/v1/models").await.unwrap().json();
    let (ours, captured) = (models["data"].as_array().unwrap(), of("models.json"));
    // A base model, then (after our alias) an adapter.
    for (our, theirs) in [(0, 0), (2, 1), (3, 2)] {
        assert_eq!(shape(&ours[our].to_string()), shape(&captured["data"][theirs].to_string()));
        assert_eq!(ours[our]["id"], captured["data"][theirs]["id"]);
        assert_eq!(ours[our]["parent"], captured["data"][theirs]["parent"]);
    }
}

/// Type, help and label keys of each family, and the labels' fixed values where the set is small.
type Families = BTreeMap<String, (String, String, BTreeSet<String>)>;

fn families(exposition: &str) -> Families {
    let mut families = Families::new();
    let mut current = String::new();
    for line in exposition.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            name.clone_into(&mut current);
            families.insert(current.clone(), (String::new(), help.to_owned(), BTreeSet::new()));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            families.get_mut(&current).unwrap().0 = rest.rsplit(' ').next().unwrap().to_owned();
        } else {
            let series = line.rsplit_once(' ').unwrap().0;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let mut keys = vec![name.to_owned()];
            for label in labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty())
            {
                let (key, value) = label.split_once("=\"").unwrap();
                let fixed = [
                    "le",
                    "reason",
                    "source",
                    "finished_reason",
                    "sleep_state",
                    "engine",
                    "model_name",
                ];
                let value = if fixed.contains(&key) { value.trim_end_matches('"') } else { "*" };
                keys.push(format!("{key}={value}"));
            }
            families.get_mut(&current).unwrap().2.insert(keys.join(" "));
        }
    }
    families
}

#[tokio::test]
async fn the_exposition_has_the_families_and_labels_of_the_capture() {
    let sim = Sim::start(config(), 1).await;
    for model in ["tiny", "lora-a"] {
        let reply = post(sim.addr(0), "/v1/chat/completions", &chat("Hi", json!({"model": model})))
            .await
            .unwrap();
        assert_eq!(reply.status, 200);
    }
    get(sim.addr(0), "/v1/models").await.unwrap();
    let reply = get(sim.addr(0), "/metrics").await.unwrap();
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let ours = families(&reply.text());
    let mut captured = families(&fixture("metrics.txt"));
    // What a Python process says about itself.
    captured.retain(|name, _| {
        !name.starts_with("python_")
            && (!name.starts_with("process_") || name == "process_start_time_seconds")
    });
    assert_eq!(ours.keys().collect::<Vec<_>>(), captured.keys().collect::<Vec<_>>());
    for (name, expected) in &captured {
        assert_eq!(&ours[name], expected, "{name}");
    }
}

#[tokio::test]
async fn counters_and_gauges_tell_what_happened() {
    let sim = Sim::start(config(), 1).await;
    let body = chat(&support::long_text(100), json!({"max_tokens": 5}));
    let mut usage = Vec::new();
    for _ in 0..2 {
        let reply = post(sim.addr(0), "/v1/chat/completions", &body).await.unwrap().json();
        usage.push(reply["usage"].clone());
    }
    let prompt = usage[0]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(usage[0]["prompt_tokens_details"]["cached_tokens"], 0);
    let cached = usage[1]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached, (prompt - 1) / 16 * 16);
    assert_eq!(usage[0]["prompt_tokens_details"]["created_cache_tokens"], prompt / 16 * 16);
    let text = get(sim.addr(0), "/metrics").await.unwrap().text();
    let base = "{engine=\"0\",model_name=\"tiny\"}";
    for (name, value) in [
        ("vllm:prompt_tokens_total", prompt * 2),
        ("vllm:prefix_cache_queries_total", prompt * 2),
        ("vllm:prefix_cache_hits_total", cached),
        ("vllm:generation_tokens_total", 10),
        ("vllm:time_to_first_token_seconds_count", 2),
        ("vllm:request_generation_tokens_sum", 10),
        ("vllm:num_requests_running", 0),
        ("vllm:kv_cache_usage_perc", 0),
    ] {
        let line = format!("{name}{base} {value}.0\n");
        assert!(text.contains(&line), "{line}");
    }
    assert!(text.contains("finished_reason=\"length\",model_name=\"tiny\"} 2.0\n"));
    assert!(text.contains("block_size=\"16\"") && text.contains("num_gpu_blocks=\"1001\""));
    assert!(text.contains("kv_cache_size_tokens=\"16016\""));
}

#[test]
fn the_test_client_tells_a_cut_body_from_a_whole_one() {
    let whole = parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n");
    let cut = parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n");
    assert_eq!(
        (whole.text(), whole.complete, cut.text(), cut.complete),
        ("ab".into(), true, "ab".into(), false)
    );
}
