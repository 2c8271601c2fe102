//! vLLM's `/inference/v1/generate`: token ids in, token ids out.

use serde_json::{Value, json};

use super::answer::Choice;
use super::sse::{StreamHead, Totals};

/// The answer. `offer`: where another engine finds the prompt's KV, or null.
pub fn body(
    head: &StreamHead,
    choices: &[Choice],
    totals: Totals,
    details: bool,
    offer: &Value,
) -> Vec<u8> {
    let listed: Vec<_> = choices
        .iter()
        .enumerate()
        .map(|(index, choice)| {
            json!({
                "index": index, "finish_reason": choice.finish.as_str(), "stop_reason": null,
                "token_ids": choice.token_ids, "routed_experts": null, "sampling_mask": null,
                "weight_versions": [{ "version": "default", "start": 0, "end": totals.completion }],
                "logprobs": null,
            })
        })
        .collect();
    let cached = details.then(|| {
        json!({
            "cached_tokens": totals.cached, "created_cache_tokens": null, "multimodal_tokens": null,
        })
    });
    json!({
        "request_id": head.id, "model": head.model, "created": head.created,
        "usage": {
            "prompt_tokens": totals.prompt, "total_tokens": totals.prompt + totals.completion,
            "completion_tokens": totals.completion, "prompt_tokens_details": cached,
            "completion_tokens_details": null,
        },
        "prompt_logprobs": null, "prompt_token_id_logprobs": null, "prompt_token_ids": null,
        "mm_placeholders": null, "metrics": null, "kv_transfer_params": offer,
        "ec_transfer_params": null, "output_mode": "tokens", "choices": listed,
    })
    .to_string()
    .into_bytes()
}
