//! Waits until requests are really served.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use super::{ProcessError, wait_until};
use crate::load::{Target, send};

/// Path of the pool through Warmroute.
pub const WARMROUTE: &str = "/v1/chat/completions";
/// Path of the same pool without the filter.
pub const ROUND_ROBIN: &str = "/rr/v1/chat/completions";

/// Sends a tiny chat to `path` until it is answered. Envoy is ready before the filter has its first
/// table of endpoints, and the filter refuses requests until then.
///
/// # Errors
/// When no request is answered in time; `logs` tells where to look.
pub async fn first_answer(
    address: SocketAddr,
    path: &str,
    model: &str,
    logs: &Path,
) -> Result<(), ProcessError> {
    let target = Target::new(address, path, Duration::from_secs(5));
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let body = json!({"model": model, "max_tokens": 1, "messages": messages});
    let body = Bytes::from(body.to_string());
    let served = async || send(&target, body.clone()).await.failure.is_none().then_some(());
    wait_until(&format!("a first answer on {path}"), Duration::from_secs(20), logs, served).await
}
