//! What clients are told when a request can't be served.
#![cfg(feature = "e2e")]

mod bodies;
mod misconfigured;
mod no_endpoint;
mod too_large;

use e2e::client::Response;
use serde_json::{Value, json};

/// The `error` of an answer, after a check that it has OpenAI's shape and says what `status` says.
fn error_of(what: &str, answer: &Response, status: u16) -> Value {
    let text = answer.text();
    assert_eq!(answer.status, status, "{what}: {text}");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
    let error = &answer.json()["error"];
    assert_eq!(error["code"], json!(status), "{what}: {text}");
    assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{what}: {text}");
    assert!(error.get("param").is_some(), "{what}: {text}");
    let kind = match status {
        400..=499 => "invalid_request_error",
        503 => "service_unavailable_error",
        _ => "server_error",
    };
    assert_eq!(error["type"], json!(kind), "{what}: {text}");
    error.clone()
}
