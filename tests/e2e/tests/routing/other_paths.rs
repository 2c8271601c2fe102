//! Requests that are no chat and no completion are routed too, unread.

use anyhow::{Context as _, Result};
use e2e::client::{Request, send};
use e2e::echo_engine::EchoEngine;
use e2e::raw_client::RawClient;
use e2e::{Endpoint, Setup, Stack};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_models_and_tokens_are_answered_by_a_picked_engine() -> Result<()> {
    let stack = Stack::start(Setup::new(2, 1)).await?;
    let models = send(stack.listen(), &Request::get("/v1/models").id("models")).await?;
    assert_eq!((models.status, &models.json()["data"][0]["id"]), (200, &json!("llama-70b")));
    let tokens = json!({"model": "llama-70b", "prompt": "Hello"}).to_string();
    let tokens =
        Request::post("/tokenize", tokens.into()).header("content-type", "application/json");
    let tokens = send(stack.listen(), &tokens.id("tokens")).await?;
    assert_eq!(tokens.status, 200, "{}", tokens.text());
    assert!(tokens.json()["count"].as_u64() > Some(0), "{}", tokens.text());
    for (id, answer) in [("models", models), ("tokens", tokens)] {
        let log = stack.access(id).await?;
        assert_eq!(
            (log.endpoint.as_deref(), log.reason.as_deref()),
            (answer.engine(), Some("load"))
        );
        assert_eq!(log.upstream.as_deref(), answer.engine());
    }
    let idle = async || (stack.filter_state().await.ok()?.in_flight == 0).then_some(());
    stack.until("nothing is in flight", idle).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_streams_through_whole_and_is_not_held_back() -> Result<()> {
    const UPLOAD: usize = 25 << 20;
    let echo = EchoEngine::start().await?;
    let mut setup = Setup::new(0, 1);
    setup.other_endpoints = vec![Endpoint::new("echo", echo.address)];
    let stack = Stack::start(setup).await?;

    // Not even close to JSON, and more than a chat may have.
    let body: Vec<u8> = (0..UPLOAD).map(|_| fastrand::u8(..)).collect();
    let head = format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: e2e\r\nx-request-id: upload\r\n\
         content-type: multipart/form-data; boundary=x\r\ncontent-length: {UPLOAD}\r\n\r\n"
    );
    let mut client = RawClient::connect(stack.listen()).await?;
    client.send(head.as_bytes()).await?;
    let (some, rest) = body.split_at(64 << 10);
    client.send(some).await?;
    // The rest is only sent once this has come through.
    let through = async || (echo.received() == some.len() as u64).then_some(());
    stack.until("the first part of the upload at the engine", through).await?;
    client.send(rest).await?;
    assert_eq!(client.head().await?.status, 200);
    let seen: Value = serde_json::from_slice(&client.rest().await?)?;
    assert_eq!(seen["body_bytes"], json!(UPLOAD));
    assert_eq!(seen["body_xxh3"], json!(format!("{:016x}", xxh3_64(&body))));
    let log = stack.access("upload").await?;
    assert_eq!(log.endpoint, Some(echo.address.to_string()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_attempts_never_reaches_a_client() -> Result<()> {
    let mut stack = Stack::start(Setup::new(3, 1)).await?;
    // Nobody tells the filter what happens to the engines.
    drop(stack.agent.take());
    let chat = |id: &str| Request::chat(&e2e::prompts::chat("Hello", 1)).id(id);
    let answer = send(stack.listen(), &chat("plain")).await?;
    assert_eq!((answer.status, answer.header("x-envoy-attempt-count")), (200, None));

    // Two of three refuse, so sooner or later a pick has to be retried.
    for replica in [0, 1] {
        stack.simulator.fault(&json!({"replica": replica, "fault": "refuse"})).await?;
    }
    let mut retried = false;
    for n in 0..20 {
        let id = format!("refused-{n}");
        let answer = send(stack.listen(), &chat(&id)).await?;
        assert_eq!((answer.status, answer.header("x-envoy-attempt-count")), (200, None));
        let log = stack.access(&id).await?;
        retried |= log.attempts.context("no attempts in the access log")? > 1;
        assert_eq!(log.upstream, log.endpoint, "{log:?}");
    }
    assert!(retried);

    stack.simulator.fault(&json!({"replica": 2, "fault": "refuse"})).await?;
    // A connection that Envoy kept open may serve one more request before it closes.
    let refused = async || {
        let answer = send(stack.listen(), &chat("all-refuse")).await.ok()?;
        (answer.status != 200).then_some(answer)
    };
    let answer = stack.until("a request that no engine takes", refused).await?;
    assert_eq!((answer.status, answer.header("x-envoy-attempt-count")), (503, None));
    assert_eq!(answer.json()["error"]["type"], "service_unavailable_error", "{}", answer.text());
    let bad = send(stack.listen(), &Request::post(e2e::client::CHAT, "{".into())).await?;
    assert_eq!((bad.status, bad.header("x-envoy-attempt-count")), (400, None));
    Ok(())
}
