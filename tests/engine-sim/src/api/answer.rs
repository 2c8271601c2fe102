//! Answers in one piece.

use serde::Serialize;
use serde_json::{Value, json};

use super::generate::Api;
use super::sse::{StreamHead, Totals};
use super::{FINGERPRINT, embeddings, messages, responses, token_answer};
use crate::engine::FinishReason;

/// One finished choice.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The whole text.
    pub text: String,
    /// Why it ended.
    pub finish: FinishReason,
    /// Ids of the answer, if asked for.
    pub token_ids: Option<Vec<u32>>,
    /// Ids of the prompt, if asked for.
    pub prompt_token_ids: Option<Vec<u32>>,
}

#[derive(Serialize)]
struct Body<'a> {
    id: &'a str,
    object: &'a str,
    created: u64,
    model: &'a str,
    choices: Vec<Value>,
    service_tier: (),
    system_fingerprint: &'a str,
    usage: Usage,
    #[serde(flatten)]
    chat_only: Option<ChatOnly<'a>>,
    kv_transfer_params: Value,
    ec_transfer_params: (),
    metrics: (),
}

#[derive(Serialize)]
struct ChatOnly<'a> {
    prompt_logprobs: (),
    prompt_token_ids: Option<&'a [u32]>,
    prompt_text: (),
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
    completion_tokens: usize,
    prompt_tokens_details: Option<Details>,
    completion_tokens_details: (),
}

#[derive(Serialize)]
struct Details {
    cached_tokens: usize,
    created_cache_tokens: Option<usize>,
    multimodal_tokens: (),
}

/// The JSON body. `details`: whether usage says what was cached. `offer`: where another engine finds the prompt's KV,
/// or null.
pub fn body(
    head: &StreamHead,
    choices: &[Choice],
    totals: Totals,
    details: bool,
    offer: Value,
) -> Vec<u8> {
    match (head.api, choices) {
        (Api::Messages, [choice, ..]) => messages::body(head, choice, totals, details),
        (Api::Responses, [choice, ..]) => responses::body(head, choice, totals, details),
        (Api::Tokens, _) => token_answer::body(head, choices, totals, details, &offer),
        (Api::Embedding, _) => embeddings::body(head, choices, totals),
        _ => openai(head, choices, totals, details, offer),
    }
}

fn openai(
    head: &StreamHead,
    choices: &[Choice],
    totals: Totals,
    details: bool,
    offer: Value,
) -> Vec<u8> {
    let chat = head.api == Api::Chat;
    let listed = choices
        .iter()
        .enumerate()
        .map(|(index, choice)| choice_json(chat, index, choice))
        .collect();
    let prompt_token_ids = choices.first().and_then(|choice| choice.prompt_token_ids.as_deref());
    let body = Body {
        id: &head.id,
        object: if chat { "chat.completion" } else { "text_completion" },
        created: head.created,
        model: &head.model,
        choices: listed,
        service_tier: (),
        system_fingerprint: FINGERPRINT,
        usage: Usage {
            prompt_tokens: totals.prompt,
            total_tokens: totals.prompt + totals.completion,
            completion_tokens: totals.completion,
            prompt_tokens_details: details.then_some(Details {
                cached_tokens: totals.cached,
                created_cache_tokens: chat.then_some(totals.created),
                multimodal_tokens: (),
            }),
            completion_tokens_details: (),
        },
        chat_only: chat.then_some(ChatOnly {
            prompt_logprobs: (),
            prompt_token_ids,
            prompt_text: (),
        }),
        kv_transfer_params: offer,
        ec_transfer_params: (),
        metrics: (),
    };
    serde_json::to_vec(&body).unwrap_or_default()
}

fn choice_json(chat: bool, index: usize, choice: &Choice) -> Value {
    if chat {
        json!({
            "index": index,
            "message": {
                "role": "assistant", "content": choice.text, "refusal": null, "annotations": null, "audio": null,
                "function_call": null, "reasoning": null,
            },
            "logprobs": null, "finish_reason": choice.finish.as_str(), "stop_reason": null,
            "token_ids": choice.token_ids, "routed_experts": null,
        })
    } else {
        json!({
            "index": index, "text": choice.text, "logprobs": null, "finish_reason": choice.finish.as_str(),
            "stop_reason": null, "token_ids": choice.token_ids, "prompt_logprobs": null,
            "prompt_token_ids": choice.prompt_token_ids, "routed_experts": null,
        })
    }
}
