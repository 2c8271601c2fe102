//! Prefill at one engine, decode at another, through the sidecar.

mod support;

use std::net::SocketAddr;

use engine_sim::replica::SimConfig;
use serde_json::{Value, json};
use support::{Reply, Sim, chat, config, get, long_text, send};

const CHAT: &str = "/v1/chat/completions";

async fn start(replicas: usize) -> Sim {
    Sim::start(SimConfig { sidecars: true, ..config() }, replicas).await
}

fn sidecar(sim: &Sim, index: usize) -> SocketAddr {
    sim.fleet.sidecar(index).unwrap()
}

async fn through(sim: &Sim, index: usize, prefiller: Option<&str>, body: &Value) -> Reply {
    let mut headers = vec![("content-type", "application/json"), ("x-request-id", "r-1")];
    headers.extend(prefiller.map(|prefiller| ("x-prefiller-host-port", prefiller)));
    let body = body.to_string();
    send(sidecar(sim, index), "POST", CHAT, &headers, body.as_bytes()).await.unwrap()
}

fn number(state: &Value, name: &str) -> u64 {
    state[name].as_u64().unwrap()
}

#[tokio::test]
async fn the_prompt_is_computed_where_the_header_says_and_decoded_here() {
    let sim = start(2).await;
    let (prefill, decode) = (1, 0);
    let target = sim.addr(prefill).to_string();
    for stream in [false, true] {
        let text = format!("{stream} {}", long_text(200));
        let body = chat(&text, json!({"max_tokens": 6, "stream": stream, "temperature": 0.10}));
        let before = (sim.state(prefill).await, sim.state(decode).await);
        let reply = through(&sim, decode, Some(&target), &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.complete);
        assert_eq!(reply.header("x-sim-endpoint"), Some(&*sim.addr(decode).to_string()));
        assert_eq!(reply.header("x-sim-sidecar"), Some(&*sidecar(&sim, decode).to_string()));
        assert_eq!(reply.header("x-sim-prefiller"), Some(&*target));
        let now = (sim.state(prefill).await, sim.state(decode).await);
        let asked = now.0["requests"].as_array().unwrap().last().unwrap().clone();
        let answered = now.1["requests"].as_array().unwrap().last().unwrap().clone();
        let prompt = number(&answered, "prompt_tokens");
        assert_eq!(number(&asked, "prompt_tokens"), prompt);
        assert_eq!(
            (&asked["transfer"], &answered["transfer"]),
            (&json!("prefill"), &json!("decode"))
        );
        assert_eq!(number(&answered, "transferred_tokens"), prompt - 1);
        assert_eq!((&asked["request_id"], &answered["request_id"]), (&json!("r-1"), &json!("r-1")));
        let headers = answered["headers"].as_array().unwrap();
        assert!(headers.iter().all(|header| header[0] != "x-prefiller-host-port"));
        let more = |name, of: fn(&(Value, Value)) -> &Value| {
            number(of(&now), name) - number(of(&before), name)
        };
        assert_eq!(more("prefilled_tokens", |states| &states.0), prompt);
        assert_eq!(more("prefilled_tokens", |states| &states.1), 1);
        assert_eq!(more("transferred_tokens", |states| &states.1), prompt - 1);
        if stream {
            // A role, six tokens and the end.
            assert_eq!(reply.events().len(), 8);
        } else {
            let json = reply.json();
            assert_eq!(json["usage"]["completion_tokens"], 6);
            assert_eq!(json["usage"]["prompt_tokens_details"]["cached_tokens"], prompt - 1);
            assert_eq!(json["kv_transfer_params"], Value::Null);
        }
        // What was transferred is cached here as if it had been computed here.
        let again = through(&sim, decode, None, &body).await;
        assert_eq!(again.header("x-sim-cached-tokens"), Some(&*(prompt / 16 * 16).to_string()));
    }
    let metrics = get(sim.addr(decode), "/metrics").await.unwrap().text();
    let transferred = number(&sim.state(decode).await, "transferred_tokens");
    let line = format!("source=\"external_kv_transfer\"}} {transferred}.0\n");
    assert!(metrics.contains(&line), "{line}");
    let state = &sim.state(decode).await["sidecar"];
    assert_eq!(
        (&state["prefills"], &state["fallbacks"], &state["local"]),
        (&json!(2), &json!(0), &json!(2))
    );
}

#[tokio::test]
async fn answers_are_those_of_one_engine() {
    let sim = start(3).await;
    let body = chat(&long_text(60), json!({"max_tokens": 20}));
    let alone = through(&sim, 0, None, &body).await.json();
    let apart = through(&sim, 1, Some(&sim.addr(2).to_string()), &body).await.json();
    assert_eq!(alone["choices"], apart["choices"]);
    assert_eq!(sim.state(0).await["transferred_tokens"], 0);
}

#[tokio::test]
async fn a_prefill_that_cannot_be_had_is_done_here() {
    let sim = start(2).await;
    let body = chat(&long_text(60), json!({}));
    sim.fault(json!({"replica": 1, "fault": "error", "status": 503, "count": 1})).await;
    let refused = sim.addr(1).to_string();
    assert_eq!(through(&sim, 0, Some(&refused), &body).await.status, 200);
    sim.fault(json!({"replica": 1, "fault": "die"})).await;
    assert_eq!(through(&sim, 0, Some(&refused), &body).await.status, 200);
    let state = sim.state(0).await;
    assert_eq!(
        (&state["sidecar"]["fallbacks"], &state["transferred_tokens"]),
        (&json!(2), &json!(0))
    );
}

#[tokio::test]
async fn a_request_that_no_engine_takes_is_refused_by_the_first() {
    let sim = start(2).await;
    let target = sim.addr(1).to_string();
    let unknown = chat("x", json!({"model": "nobody"}));
    assert_eq!(through(&sim, 0, Some(&target), &unknown).await.status, 404);
    let elsewhere = through(&sim, 0, Some("192.0.2.1:80"), &chat("x", json!({}))).await;
    assert_eq!(elsewhere.status, 400);
    assert_eq!(sim.state(0).await["arrived"], 0);
}

#[tokio::test]
async fn everything_else_is_passed_on_and_a_dead_engine_takes_its_sidecar_along() {
    let sim = start(1).await;
    let sidecar = sidecar(&sim, 0);
    assert!(get(sidecar, "/metrics").await.unwrap().text().contains("vllm:num_requests_running"));
    assert_eq!(get(sidecar, "/v1/models").await.unwrap().json()["data"][0]["id"], "tiny");
    assert_eq!(get(sidecar, "/nothing").await.unwrap().status, 404);
    sim.fault(json!({"replica": 0, "fault": "die"})).await;
    let gone = support::Call::open(sidecar, "GET", "/metrics", &[], b"").await.unwrap();
    let mut stream = gone.0;
    let mut bytes = Vec::new();
    // A reset is as good as an end.
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut bytes).await;
    assert!(bytes.is_empty(), "{}", String::from_utf8_lossy(&bytes));
}
