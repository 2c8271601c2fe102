//! Waits until requests are really served, and until every worker knows.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{ProcessError, get, wait_until};
use crate::load::{Target, send};

/// Path of the pool through Warmroute.
pub const WARMROUTE: &str = "/v1/chat/completions";
/// Path of the same pool without the filter.
pub const ROUND_ROBIN: &str = "/rr/v1/chat/completions";

/// The page on which the filter shows its state, where it is configured.
pub const DEBUG_PATH: &str = "/warmroute/debug";

/// Answers in a row that have to say the same: each connection lands on any worker.
const AGREED: usize = 24;

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
    first_answer_of(&Target::new(address, path, Duration::from_secs(5)), model, logs).await
}

/// The same with a target's own headers.
///
/// # Errors
/// When no request is answered in time; `logs` tells where to look.
pub async fn first_answer_of(
    target: &Target,
    model: &str,
    logs: &Path,
) -> Result<(), ProcessError> {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let body = json!({"model": model, "max_tokens": 1, "messages": messages});
    let body = Bytes::from(body.to_string());
    let served = async || send(target, body.clone()).await.failure.is_none().then_some(());
    wait_until(&format!("a first answer on {}", target.path), Duration::from_secs(20), logs, served)
        .await
}

/// Waits until `condition` holds in so many states of the filter in a row that every worker's is
/// among them.
///
/// # Errors
/// When it does not in time; `logs` tells where to look.
pub async fn agreed(
    listen: SocketAddr,
    what: &str,
    logs: &Path,
    condition: impl Fn(&Value) -> bool,
) -> Result<(), ProcessError> {
    let all = async || {
        for _ in 0..AGREED {
            let state = get(listen, DEBUG_PATH).await.ok()?.json();
            condition(&state).then_some(())?;
        }
        Some(())
    };
    wait_until(what, Duration::from_secs(60), logs, all).await
}

/// Endpoints in a state of the filter whose events are followed.
#[must_use]
pub fn precise(state: &Value) -> usize {
    let endpoints = state["endpoints"].as_array().into_iter().flatten();
    endpoints.filter(|endpoint| endpoint["precise"] == true).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precise_endpoints_are_counted() {
        let state = json!({"endpoints": [{"precise": true}, {"precise": false}, {}]});
        assert_eq!((precise(&state), precise(&Value::Null)), (1, 0));
    }
}
