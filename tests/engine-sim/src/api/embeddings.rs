//! OpenAI's `/v1/embeddings`.

use serde_json::json;

use super::answer::Choice;
use super::sse::{StreamHead, Totals};

/// Numbers of a vector.
const DIMENSIONS: usize = 8;

/// The answer: vectors that the inputs' token ids settle.
pub fn body(head: &StreamHead, choices: &[Choice], totals: Totals) -> Vec<u8> {
    let data: Vec<_> = choices
        .iter()
        .enumerate()
        .map(|(index, choice)| {
            let seed = xxhash_rust::xxh3::xxh3_64(choice.text.as_bytes());
            json!({ "index": index, "object": "embedding", "embedding": vector(seed) })
        })
        .collect();
    json!({
        "id": head.id, "object": "list", "created": head.created, "model": head.model, "data": data,
        "usage": {
            "prompt_tokens": totals.prompt, "total_tokens": totals.prompt, "completion_tokens": 0,
            "prompt_tokens_details": null,
        },
    })
    .to_string()
    .into_bytes()
}

fn vector(seed: u64) -> Vec<f64> {
    (0..DIMENSIONS).map(|at| ((seed >> (at * 8)) & 0xff) as f64 / 127.5 - 1.0).collect()
}
