//! The setting without which Envoy shows the filter no body.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::client::{Request, send};
use e2e::prompts::chat;
use e2e::{Setup, Stack};

use super::error_of;

const SETTING: &str = "allow_on_headers_stop_iteration: true";

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_requests_are_answered_with_advice() -> Result<()> {
    let setup = Setup::new(1, 1).template(|template| template.replace(SETTING, ""));
    let stack = Stack::start(setup).await?;
    // Without a body all is well.
    assert_eq!(send(stack.listen(), &Request::get("/v1/models")).await?.status, 200);
    for id in ["first", "second"] {
        let request = Request::chat(&chat("Hello", 1)).id(id);
        // The filter says so after some 3 s; hung requests would wait for Envoy's own limits, 120 s and more.
        let answer = tokio::time::timeout(Duration::from_secs(15), send(stack.listen(), &request));
        let error = error_of(id, &answer.await.context("hung")??, 500);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(SETTING), "{message}");
        let log = stack.access(id).await?;
        assert_eq!((log.status, log.details.as_deref()), (500, Some("warmroute_misconfigured")));
    }
    let log = std::fs::read_to_string(stack.envoy.process.log())?;
    assert!(log.contains(SETTING), "the log says nothing of it: {log}");
    Ok(())
}
