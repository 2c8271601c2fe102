//! Nobody to send a request to.

use anyhow::Result;
use e2e::client::{CHAT, Request, send};
use e2e::prompts::chat;
use e2e::{AgentPresence, Setup, Stack};
use serde_json::json;

use super::error_of;

const REASON: &str = "x-llm-d-request-dropped-reason";

fn hello() -> Request {
    Request::chat(&chat("Hello", 1))
}

/// Waits until the filter has `count` endpoints, `ready` of them ready.
async fn endpoints(stack: &Stack, count: usize, ready: usize) -> Result<()> {
    let as_wanted = async || {
        let endpoints = stack.filter_state().await.ok()?.endpoints;
        let found = endpoints.iter().filter(|endpoint| endpoint.ready).count();
        (endpoints.len() == count && found == ready).then_some(())
    };
    stack.until(&format!("{ready} of {count} endpoints ready"), as_wanted).await
}

async fn expect_no_endpoint(stack: &Stack, id: &str, details: &str) -> Result<()> {
    let requests = [
        ("chat", hello()),
        (
            "completion",
            Request::post("/v1/completions", br#"{"model":"m","prompt":"x"}"#.to_vec().into()),
        ),
        ("models", Request::get("/v1/models")),
    ];
    for (what, request) in requests {
        let id = format!("{id}-{what}");
        let answer = send(stack.listen(), &request.id(&id)).await?;
        error_of(what, &answer, 503);
        assert_eq!(answer.header(REASON), Some("rejected-no-endpoints"), "{what}");
        let log = stack.access(&id).await?;
        assert_eq!((log.details.as_deref(), log.endpoint), (Some(details), None), "{what}");
    }
    // What is wrong with the request itself is still said.
    error_of("bad JSON", &send(stack.listen(), &Request::post(CHAT, "{".into())).await?, 400);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn with_all_endpoints_out_or_gone_it_is_503_until_one_is_back() -> Result<()> {
    let stack = Stack::start(Setup::new(2, 2)).await?;
    for replica in 0..2 {
        stack.simulator.fault(&json!({"replica": replica, "fault": "refuse"})).await?;
    }
    endpoints(&stack, 2, 0).await?;
    expect_no_endpoint(&stack, "out", "warmroute_no_endpoint").await?;

    stack.simulator.fault(&json!({"replica": 1, "fault": "none"})).await?;
    endpoints(&stack, 2, 1).await?;
    let answer = send(stack.listen(), &hello()).await?;
    let back = stack.simulated()[1].address.to_string();
    assert_eq!((answer.status, answer.engine()), (200, Some(back.as_str())));

    stack.write_endpoints(&[])?;
    endpoints(&stack, 0, 0).await?;
    expect_no_endpoint(&stack, "gone", "warmroute_no_endpoint").await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_ever_an_agent_fail_close_is_503() -> Result<()> {
    let mut setup = Setup::new(2, 2);
    setup.agent = AgentPresence::Gone;
    let mut stack = Stack::start(setup).await?;
    expect_no_endpoint(&stack, "closed", "warmroute_no_table").await?;
    // The agent need not have been first.
    stack.start_agent().await?;
    stack.wait_ready(2).await?;
    assert_eq!(send(stack.listen(), &hello()).await?.status, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_ever_an_agent_fail_open_is_envoys_choice_and_counted() -> Result<()> {
    const REQUESTS: u64 = 8;
    let mut setup = Setup::new(2, 2);
    setup.agent = AgentPresence::Gone;
    setup.plugin_config_extra = r#", "failure_mode": "FailOpen""#.to_owned();
    let mut stack = Stack::start(setup).await?;
    for n in 0..REQUESTS {
        let id = format!("open-{n}");
        let answer = send(stack.listen(), &hello().id(&id)).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let log = stack.access(&id).await?;
        assert_eq!((log.reason.as_deref(), log.endpoint), (Some("no_table"), None));
    }
    // Round robin, so both have got some.
    assert!(stack.engines().await?.iter().all(|engine| engine.arrived > 0));
    assert_eq!(stack.stat("wasmcustom.warmroute.fail_open").await?, REQUESTS);
    stack.start_agent().await?;
    stack.wait_ready(2).await?;
    send(stack.listen(), &hello().id("table")).await?;
    assert_eq!(stack.access("table").await?.reason.as_deref(), Some("load"));
    Ok(())
}
