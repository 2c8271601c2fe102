//! Who serves a request, and why.
#![cfg(feature = "e2e")]

use anyhow::Result;
use e2e::client::{Request, send};
use e2e::prompts::{chat, fresh_text};
use e2e::{Setup, Stack};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_served_and_logged() -> Result<()> {
    let stack = Stack::start(Setup::new(2, 2)).await?;
    let answer = send(stack.listen(), &Request::chat(&chat(&fresh_text(500), 4)).id("r-1")).await?;
    assert_eq!(answer.status, 200);
    assert_eq!(stack.access("r-1").await?.endpoint.as_deref(), answer.engine());
    Ok(())
}
