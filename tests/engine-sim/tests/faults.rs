//! Every fault on command, as a client sees it.

mod support;

use std::io::ErrorKind;

use engine_sim::replica::SimConfig;
use serde_json::{Value, json};
use support::{Call, Sim, chat, config, get, post, send};

const CHAT: &str = "/v1/chat/completions";

/// Real time, so that a stream is still going when the fault comes.
fn slow() -> SimConfig {
    SimConfig { time_scale: 1.0, ..config() }
}

fn stream(tokens: usize) -> Value {
    chat("hello", json!({"stream": true, "max_tokens": tokens}))
}

async fn open_stream(sim: &Sim, tokens: usize) -> (Call, Vec<u8>) {
    let mut call = Call::post(sim.addr(0), CHAT, &stream(tokens)).await.unwrap();
    let seen = call.read_until("\"content\":\" ").await.unwrap();
    (call, seen)
}

async fn refused(sim: &Sim) -> bool {
    matches!(get(sim.addr(0), "/health").await, Err(error) if error.kind() == ErrorKind::ConnectionRefused)
}

#[tokio::test]
async fn die_refuses_connections_and_leaves_open_streams_without_data_or_end() {
    let sim = Sim::start(slow(), 1).await;
    let (mut call, _) = open_stream(&sim, 3_000).await;
    sim.fault(json!({"replica": 0, "fault": "die"})).await;
    assert!(refused(&sim).await);
    let state = sim.state(0).await;
    assert_eq!((&state["running"], &state["accepts"]), (&json!(0), &json!(false)));
    // What was under way may still arrive; then nothing, not even an end. A restart is what ends it.
    sim.fault(json!({"replica": 0, "fault": "restart"})).await;
    let rest = call.read_until("[DONE]").await;
    assert_eq!(rest.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(post(sim.addr(0), CHAT, &chat("hello", json!({}))).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_stream_on_a_dead_engine_hangs_until_the_client_leaves() {
    let sim = Sim::start(slow(), 1).await;
    let (mut call, _) = open_stream(&sim, 3_000).await;
    sim.fault(json!({"replica": 0, "fault": "die"})).await;
    // Everything that was sent before is drained first; the read that then stays pending is shown by
    // a second replica's whole life passing meanwhile.
    let second = sim.fleet.add(0).await.unwrap();
    let silent = call.read_until("[DONE]");
    tokio::pin!(silent);
    let ten = chat("hello", json!({"max_tokens": 10}));
    tokio::select! {
        end = &mut silent => panic!("the stream ended: {end:?}"),
        reply = post(second.addr, CHAT, &ten) => assert_eq!(reply.unwrap().status, 200),
    }
}

#[tokio::test]
async fn a_silent_crash_cuts_the_stream_and_refuses() {
    let sim = Sim::start(slow(), 1).await;
    let (call, seen) = open_stream(&sim, 3_000).await;
    sim.fault(json!({"replica": 0, "fault": "crash_midstream_silent"})).await;
    let reply = call.finish(seen).await.unwrap();
    assert!(!reply.complete && !reply.text().contains("[DONE]") && !reply.text().contains("error"));
    assert!(refused(&sim).await);
}

#[tokio::test]
async fn a_crash_answers_what_is_not_streamed_with_500() {
    let sim = Sim::start(slow(), 1).await;
    let call =
        Call::post(sim.addr(0), CHAT, &chat("hello", json!({"max_tokens": 3000}))).await.unwrap();
    sim.until(0, |state| state["running"] == 1).await;
    sim.fault(json!({"replica": 0, "fault": "crash_midstream"})).await;
    let reply = call.finish(Vec::new()).await.unwrap();
    assert_eq!(
        (reply.status, &reply.json()["error"]["type"]),
        (500, &json!("InternalServerError"))
    );
}

#[tokio::test]
async fn drain_finishes_streams_then_refuses() {
    let sim = Sim::start(slow(), 1).await;
    let (call, seen) = open_stream(&sim, 30).await;
    sim.fault(json!({"replica": 0, "fault": "drain"})).await;
    assert_eq!(get(sim.addr(0), "/health").await.unwrap().status, 200, "health does not tell");
    assert_eq!(post(sim.addr(0), CHAT, &stream(2)).await.unwrap().status, 503);
    // The connection is closed after its answer, though the client would have kept it.
    let reply = call.finish(seen).await.unwrap();
    assert!(reply.complete && reply.text().ends_with("data: [DONE]\n\n"));
    sim.until(0, |state| state["accepts"] == false).await;
    assert!(refused(&sim).await);
}

#[tokio::test]
async fn refuse_lets_open_answers_finish_and_none_brings_the_port_back() {
    let sim = Sim::start(slow(), 1).await;
    let (call, seen) = open_stream(&sim, 20).await;
    sim.fault(json!({"replica": 0, "fault": "refuse"})).await;
    assert!(refused(&sim).await);
    assert!(call.finish(seen).await.unwrap().text().ends_with("data: [DONE]\n\n"));
    sim.fault(json!({"replica": 0, "fault": "none"})).await;
    assert_eq!(get(sim.addr(0), "/health").await.unwrap().status, 200);
}

#[tokio::test]
async fn hang_accepts_and_answers_nothing_until_it_is_lifted() {
    let sim = Sim::start(slow(), 2).await;
    let (mut call, _) = open_stream(&sim, 40).await;
    sim.fault(json!({"replica": 0, "fault": "hang"})).await;
    let mut health = Call::open(sim.addr(0), "GET", "/health", &[], b"").await.unwrap();
    let before = sim.state(0).await;
    let answer = health.read_until("200 OK");
    tokio::pin!(answer);
    let ten = chat("hello", json!({"max_tokens": 10}));
    tokio::select! {
        early = &mut answer => panic!("answered while hanging: {early:?}"),
        reply = post(sim.addr(1), CHAT, &ten) => assert_eq!(reply.unwrap().status, 200),
    }
    let after = sim.state(0).await;
    assert_eq!(
        (&after["running"], &after["served"]),
        (&before["running"], &before["served"]),
        "it stands still"
    );
    sim.fault(json!({"replica": 0, "fault": "none"})).await;
    answer.await.unwrap();
    call.read_until("[DONE]").await.unwrap();
}

#[tokio::test]
async fn errors_and_resets_hit_as_many_requests_as_told() {
    let sim = Sim::start(config(), 1).await;
    sim.fault(json!({"replica": 0, "fault": "error", "status": 500, "count": 2})).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(post(sim.addr(0), CHAT, &chat("hello", json!({}))).await.unwrap().status);
    }
    assert_eq!(statuses, [500, 500, 200]);
    assert_eq!(get(sim.addr(0), "/health").await.unwrap().status, 200);

    sim.fault(json!({"replica": 0, "fault": "reset", "count": 1})).await;
    let error = post(sim.addr(0), CHAT, &stream(4)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(post(sim.addr(0), CHAT, &stream(4)).await.unwrap().status, 200);

    sim.fault(json!({"replica": 0, "fault": "reset", "after_tokens": 2})).await;
    for _ in 0..2 {
        let mut call = Call::post(sim.addr(0), CHAT, &stream(1_000)).await.unwrap();
        assert_eq!(call.read_until("[DONE]").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    sim.fault(json!({"replica": 0, "fault": "none"})).await;
    assert_eq!(post(sim.addr(0), CHAT, &stream(4)).await.unwrap().status, 200);
    let outcomes: Vec<_> = sim.state(0).await["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|request| request["outcome"].clone())
        .collect();
    assert_eq!(
        outcomes,
        [
            "rejected", "rejected", "finished", "aborted", "finished", "aborted", "aborted",
            "finished"
        ]
    );
}

#[tokio::test]
async fn a_restart_is_cold_and_new() {
    let sim = Sim::start(config(), 1).await;
    let body = chat(&support::long_text(200), json!({}));
    for cached in ["0", "208"] {
        let reply = post(sim.addr(0), CHAT, &body).await.unwrap();
        assert_eq!(reply.header("x-sim-cached-tokens"), Some(cached));
    }
    let created = |text: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix("process_start_time_seconds "))
            .unwrap()
            .to_owned()
    };
    let before = get(sim.addr(0), "/metrics").await.unwrap().text();
    sim.fault(json!({"replica": 0, "fault": "restart"})).await;
    let after = get(sim.addr(0), "/metrics").await.unwrap().text();
    assert_ne!(created(&before), created(&after));
    assert!(after.contains("vllm:prompt_tokens_total{engine=\"0\",model_name=\"tiny\"} 0.0\n"));
    let reply = post(sim.addr(0), CHAT, &body).await.unwrap();
    assert_eq!(reply.header("x-sim-cached-tokens"), Some("0"));
}

#[tokio::test]
async fn metrics_fail_in_every_way_while_inference_is_fine() {
    let sim = Sim::start(config(), 1).await;
    let metrics = || get(sim.addr(0), "/metrics");
    let usage = "vllm:kv_cache_usage_perc{";
    type Check = fn(&str) -> bool;
    let cases: [(&str, u16, Check); 6] = [
        ("metrics_blank", 200, |text| text.is_empty()),
        ("metrics_500", 500, |text| !text.contains("vllm:")),
        ("metrics_truncate", 200, |text| {
            text.contains("vllm:kv_cache_usage_perc{") && !text.ends_with('\n')
        }),
        ("metrics_old_names", 200, |text| {
            text.contains("vllm:gpu_cache_usage_perc{") && !text.contains("kv_cache_usage")
        }),
        ("metrics_nan", 200, |text| {
            text.contains("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} NaN\n")
                && text
                    .contains("vllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} NaN\n")
        }),
        ("none", 200, |text| text.contains("vllm:kv_cache_usage_perc{")),
    ];
    for (fault, status, check) in cases {
        sim.fault(json!({"replica": 0, "fault": fault})).await;
        let reply = metrics().await.unwrap();
        assert_eq!(reply.status, status, "{fault}");
        assert!(check(&reply.text()), "{fault}: {}", reply.text());
        assert_eq!(post(sim.addr(0), CHAT, &chat("hello", json!({}))).await.unwrap().status, 200);
    }

    sim.fault(json!({"replica": 0, "fault": "metrics_freeze"})).await;
    let frozen = metrics().await.unwrap().text();
    post(sim.addr(0), CHAT, &chat("hello", json!({}))).await.unwrap();
    assert_eq!(metrics().await.unwrap().text(), frozen);
    assert!(frozen.contains(usage));

    sim.fault(json!({"replica": 0, "fault": "metrics_drop"})).await;
    let mut call = Call::open(sim.addr(0), "GET", "/metrics", &[], b"").await.unwrap();
    assert_eq!(call.read_until("HTTP").await.unwrap_err().kind(), ErrorKind::UnexpectedEof);

    sim.fault(json!({"replica": 0, "fault": "metrics_hang"})).await;
    let mut call = Call::open(sim.addr(0), "GET", "/metrics", &[], b"").await.unwrap();
    assert_eq!(post(sim.addr(0), CHAT, &chat("hello", json!({}))).await.unwrap().status, 200);
    sim.fault(json!({"replica": 0, "fault": "none"})).await;
    call.read_until(usage).await.unwrap();
}

#[tokio::test]
async fn replicas_come_and_go() {
    let sim = Sim::start(config(), 1).await;
    let added = sim.command("/replicas", &json!({})).await;
    assert_eq!(added["index"], 1);
    let addr = added["endpoint"].as_str().unwrap().parse().unwrap();
    let reply = post(addr, CHAT, &chat("hello", json!({}))).await.unwrap();
    assert_eq!(reply.header("x-sim-endpoint"), added["endpoint"].as_str());
    let gone = send(sim.admin, "DELETE", "/replicas/1", &[], b"").await.unwrap();
    assert_eq!(gone.status, 200);
    assert_eq!(get(addr, "/health").await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(send(sim.admin, "DELETE", "/replicas/1", &[], b"").await.unwrap().status, 404);
    // The same address again, as when an IP is reused.
    let again = sim.command("/replicas", &json!({"port": addr.port()})).await;
    assert_eq!((&again["index"], &again["endpoint"]), (&json!(2), &added["endpoint"]));
}

#[tokio::test]
async fn occupied_blocks_make_others_wait_until_reset() {
    let sim = Sim::start(config(), 1).await;
    let held = sim.command("/occupy", &json!({"replica": 0, "fraction": 0.95})).await;
    assert_eq!(held["blocks"], 950);
    let state = sim.state(0).await;
    assert_eq!((&state["running"], &state["free_blocks"]), (&json!(1), &json!(50)));
    let mut call =
        Call::post(sim.addr(0), CHAT, &chat(&support::long_text(1_000), json!({}))).await.unwrap();
    sim.until(0, |state| state["waiting"] == 1).await;
    sim.command("/occupy", &json!({"replica": 0, "fraction": 0.0})).await;
    call.read_until("\"usage\"").await.unwrap();
    sim.command("/occupy", &json!({"replica": 0, "fraction": 0.5})).await;
    sim.command("/reset", &json!({})).await;
    let state = sim.state(0).await;
    assert_eq!(
        (&state["running"], &state["free_blocks"], &state["arrived"]),
        (&json!(0), &json!(1_000), &json!(0))
    );
}

#[tokio::test]
async fn the_admin_port_says_what_is_wrong() {
    let sim = Sim::start(config(), 1).await;
    for (method, path, body, status, hint) in [
        ("POST", "/faults", r#"{"replica":7,"fault":"die"}"#, 404, "replica 7"),
        ("POST", "/faults", r#"{"replica":0,"fault":"explode"}"#, 400, "unknown variant"),
        (
            "POST",
            "/faults",
            r#"{"replica":0,"fault":"error","status":200}"#,
            400,
            "between 400 and 599",
        ),
        ("POST", "/faults", r#"{"replica":0"#, 400, "not valid"),
        ("POST", "/occupy", r#"{"replica":0,"fraction":2}"#, 400, "between 0 and 1"),
        ("GET", "/nope", "", 404, "GET /state"),
    ] {
        let reply = send(sim.admin, method, path, &[], body.as_bytes()).await.unwrap();
        assert_eq!(reply.status, status, "{path} {body}");
        assert!(reply.text().contains(hint), "{}", reply.text());
    }
    let taken = sim.addr(0).port();
    let reply =
        send(sim.admin, "POST", "/replicas", &[], json!({"port": taken}).to_string().as_bytes())
            .await
            .unwrap();
    assert_eq!(reply.status, 409, "{}", reply.text());
}

#[tokio::test]
async fn a_deleted_replica_leaves_nothing_behind() {
    let mut sim = Sim::start(slow(), 1).await;
    let (mut call, _) = open_stream(&sim, 3_000).await;
    let weak = std::sync::Arc::downgrade(&sim.replicas.remove(0));
    assert_eq!(send(sim.admin, "DELETE", "/replicas/0", &[], b"").await.unwrap().status, 200);
    assert!(call.read_until("[DONE]").await.is_err(), "its streams are cut");
    while weak.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
}
