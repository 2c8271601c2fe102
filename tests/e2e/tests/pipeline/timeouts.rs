//! How long a request may take is the route's to say, and how often it is tried the gateway's: not the client's.

use crate::bed::{pool_config, short};
use anyhow::{Context as _, Result};
use e2e::client::{self, CHAT, Request, Response};
use e2e::scripted_engine::{ScriptedEngine, Served};
use e2e::{Endpoint, Setup, Stack};
use tokio::task::JoinHandle;

/// Completions may take a second, anything else as long as it likes.
const ROUTE: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: llama, namespace: default}
spec:
  parentRefs: [{name: gateway}]
  rules:
  - matches: [{path: {type: Exact, value: /v1/completions}}]
    backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: llama}]
    timeouts: {request: 1s}
  - matches: [{path: {type: PathPrefix, value: /}}]
    backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: llama}]
";

const ANSWER: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
const FAILURE: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

async fn start() -> Result<(Stack, ScriptedEngine)> {
    let engine = ScriptedEngine::start().await?;
    let mut setup = Setup::new(0, 1).document(&pool_config(ROUTE));
    let endpoint = Endpoint::new("scripted", engine.address);
    let labels = vec![("app".to_owned(), "llama".to_owned())];
    setup.other_endpoints.push(Endpoint { labels, ..endpoint });
    Ok((Stack::start(setup).await?, engine))
}

fn completion() -> Request {
    let body = serde_json::json!({"model": e2e::MODEL, "prompt": "Hi"});
    let request = Request::post("/v1/completions", e2e::prompts::body(&body));
    request.header("content-type", "application/json")
}

/// A request that is at the engine, and waits for its answer.
async fn at_the_engine(
    stack: &Stack,
    engine: &ScriptedEngine,
    request: Request,
    id: &str,
) -> Result<(JoinHandle<Result<Response>>, Served)> {
    let mut served = engine.expect(id);
    let (listen, request) = (stack.listen(), request.id(id));
    let answer = tokio::spawn(async move { client::send(listen, &request).await });
    served.arrived().await.with_context(|| format!("{id} at the engine"))?;
    Ok((answer, served))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_routes_timeout_ends_a_request_and_a_clients_does_nothing() -> Result<()> {
    let (stack, engine) = start().await?;
    // The client asks for less than there is, where there is none, and for more.
    let impatient = short()
        .header("x-envoy-upstream-rq-timeout-ms", "50")
        .header("x-envoy-upstream-rq-per-try-timeout-ms", "50");
    let patient = completion().header("x-envoy-upstream-rq-timeout-ms", "600000");
    let (unlimited, held) = at_the_engine(&stack, &engine, impatient, "unlimited").await?;
    let (limited, mut dropped) = at_the_engine(&stack, &engine, patient, "limited").await?;
    let ended = limited.await??;
    assert_eq!(ended.status, 504, "{}", ended.text());
    assert_eq!(ended.json()["error"]["code"], 504, "{}", ended.text());
    dropped.hung_up().await;
    let access = stack.access("limited").await?;
    assert_eq!((access.flags.as_deref(), access.attempts), (Some("UT"), Some(1)));
    // By now the other one has had a second, too.
    assert!(!unlimited.is_finished());
    held.send(ANSWER);
    held.done();
    assert_eq!(unlimited.await??.status, 200);
    let nothing = async || {
        let state = stack.filter_state().await.ok()?;
        ((state.in_flight, state.in_flight_here) == (0, 0)).then_some(())
    };
    stack.until("nothing in flight", nothing).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_have_its_request_tried_again() -> Result<()> {
    let (stack, engine) = start().await?;
    let insisting = short()
        .header("x-envoy-retry-on", "5xx,gateway-error")
        .header("x-envoy-max-retries", "5")
        .header("x-envoy-hedge-on-per-try-timeout", "true")
        .header("x-envoy-retriable-status-codes", "500");
    assert_eq!(insisting.path, CHAT);
    let (failed, served) = at_the_engine(&stack, &engine, insisting, "insisting").await?;
    served.send(FAILURE);
    served.done();
    assert_eq!(failed.await??.status, 500);
    assert_eq!(stack.access("insisting").await?.attempts, Some(1));
    assert_eq!(engine.order(), ["insisting"]);
    Ok(())
}
