//! `kv_transfer_params`, as vLLM's NIXL connector and llm-d's sidecar use them: one engine computes a prompt, another
//! gets its KV from there and decodes.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::errors::ApiError;
use super::fields::{Fields, wrong_type};

/// What a request is within prefill and decode at different engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// Its KV will be fetched by another engine, which the answer tells how.
    Prefill,
    /// The prompt's KV comes from another engine.
    Decode,
}

#[derive(Deserialize)]
struct Params {
    #[serde(default)]
    do_remote_decode: bool,
    #[serde(default)]
    do_remote_prefill: bool,
    #[serde(default)]
    remote_block_ids: Option<Vec<u64>>,
}

/// Reads a body's `kv_transfer_params`.
pub(super) fn read(fields: &Fields<'_>) -> Result<Option<Transfer>, ApiError> {
    let Some(raw) = fields.raw("kv_transfer_params") else { return Ok(None) };
    let params: Params = serde_json::from_str(raw.get())
        .map_err(|_| wrong_type("body.kv_transfer_params", "dictionary"))?;
    Ok(match params {
        Params { do_remote_decode: true, .. } => Some(Transfer::Prefill),
        // Without blocks there is nothing to fetch, and the prompt is computed here.
        Params { do_remote_prefill: true, remote_block_ids: Some(blocks), .. }
            if !blocks.is_empty() =>
        {
            Some(Transfer::Decode)
        }
        _ => None,
    })
}

/// What a sidecar asks of the engine that computes the prompt.
pub fn asked() -> Value {
    json!({
        "do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null, "remote_block_ids": null,
        "remote_host": null, "remote_port": null,
    })
}

/// What that engine, at `host` and `port`, answers: where the KV of a prompt of `blocks` blocks is.
pub fn offered(host: &str, port: u16, blocks: usize) -> Value {
    json!({
        "do_remote_prefill": true, "do_remote_decode": false, "remote_engine_id": format!("{host}:{port}"),
        "remote_block_ids": (0..blocks).collect::<Vec<_>>(), "remote_host": host, "remote_port": port, "tp_size": 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_and_what_is_offered_are_read() {
        let of = |params: Value| {
            let body = json!({ "kv_transfer_params": params }).to_string();
            read(&Fields::parse(body.as_bytes()).unwrap())
        };
        assert_eq!(of(asked()), Ok(Some(Transfer::Prefill)));
        assert_eq!(of(offered("127.0.0.1", 9101, 3)), Ok(Some(Transfer::Decode)));
        assert_eq!(of(offered("127.0.0.1", 9101, 0)), Ok(None));
        assert_eq!(of(Value::Null), Ok(None));
        assert_eq!(of(json!({})), Ok(None));
        assert!(of(json!(7)).is_err());
    }
}
