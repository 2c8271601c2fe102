//! `GET /v1/models`.

use serde_json::{Value, json};

use super::ApiConfig;

/// The model list; `created` in Unix seconds.
pub fn list(config: &ApiConfig, created: u64) -> Value {
    let entry = |id: &str, parent: Option<&str>, max_model_len: Option<usize>| {
        json!({
            "id": id, "object": "model", "created": created, "owned_by": "vllm", "root": id, "parent": parent,
            "max_model_len": max_model_len,
            "permission": [{
                "id": format!("modelperm-{id}"), "object": "model_permission", "created": created,
                "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
                "allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false, "organization": "*",
                "group": null, "is_blocking": false,
            }],
        })
    };
    let base = config.models.first().map(String::as_str);
    let models = config.models.iter().map(|id| entry(id, None, Some(config.max_model_len)));
    let loras = config.loras.iter().map(|id| entry(id, base, None));
    json!({"object": "list", "data": models.chain(loras).collect::<Vec<_>>()})
}
