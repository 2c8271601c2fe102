//! Anthropic's `/v1/messages` as vLLM answers it.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::ApiConfig;
use super::answer::Choice;
use super::errors::ApiError;
use super::fields::{Fields, wrong_type};
use super::sse::{Piece, StreamHead, Totals};
use crate::engine::FinishReason;
use crate::tokens::Tokenizer;
use crate::tokens::template::{self, Message};

/// The first line of a system prompt by which a client tells its billing: the engine drops the block.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Token ids of a body's system prompt and messages. Tools are not shown; of their calls and results there is the text.
pub fn tokens(fields: &Fields<'_>, tokenizer: &Tokenizer) -> Result<Vec<u32>, ApiError> {
    let raw = fields.raw("messages").ok_or_else(|| fields.missing("messages"))?;
    let list: Vec<&RawValue> =
        serde_json::from_str(raw.get()).map_err(|_| wrong_type("body.messages", "list"))?;
    let mut messages = Vec::with_capacity(list.len() + 1);
    if let Some(system) = fields.raw("system") {
        let texts = texts(system, "body.system")?;
        let system: String =
            texts.into_iter().filter(|text| !text.starts_with(BILLING_HEADER)).collect();
        if !system.is_empty() {
            messages.push(Message::new("system", system));
        }
    }
    for raw in list {
        let message = Fields::nested(raw, "body.messages")?;
        let role = message.text("role")?.ok_or_else(|| message.missing("role"))?;
        let content = message.raw("content").ok_or_else(|| message.missing("content"))?;
        let mut texts = texts(content, "body.messages.content")?;
        texts.retain(|text| !text.is_empty());
        messages.push(Message::new(role, texts.join("\n")));
    }
    if messages.is_empty() {
        let message = "Cannot apply chat template to an empty conversation.";
        return Err(ApiError::bad_request(message, None));
    }
    Ok(template::tokenize(tokenizer, &messages, true)?)
}

/// The texts of a string, or of a list of blocks.
fn texts(raw: &RawValue, path: &'static str) -> Result<Vec<String>, ApiError> {
    if let Ok(text) = serde_json::from_str::<String>(raw.get()) {
        return Ok(vec![text]);
    }
    let blocks: Vec<Value> =
        serde_json::from_str(raw.get()).map_err(|_| wrong_type(path, "list"))?;
    blocks.iter().map(block_text).collect()
}

fn block_text(block: &Value) -> Result<String, ApiError> {
    let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    match block.get("type").and_then(Value::as_str) {
        Some("text") => Ok(text("text")),
        Some("thinking") => Ok(text("thinking")),
        Some("tool_use") => Ok(block
            .get("input")
            .map(|input| format!("{} {input}", text("name")))
            .unwrap_or_default()),
        Some("tool_result") => match block.get("content") {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Array(blocks)) => {
                let texts: Result<Vec<_>, _> = blocks.iter().map(block_text).collect();
                Ok(texts?.join("\n"))
            }
            _ => Ok(String::new()),
        },
        _ => Err(ApiError::bad_request("This model takes text blocks only.", Some("messages"))),
    }
}

/// `POST /v1/messages/count_tokens`.
pub fn count(body: &[u8], config: &ApiConfig, tokenizer: &Tokenizer) -> Result<Value, ApiError> {
    let fields = Fields::parse(body)?;
    let model = fields.text("model")?.ok_or_else(|| fields.missing("model"))?;
    config.resolve(&model)?;
    let count = tokens(&fields, tokenizer)?.len();
    Ok(json!({ "input_tokens": count, "context_management": { "original_input_tokens": count } }))
}

/// An error in the API's own shape. The request schema's faults have OpenAI's.
pub fn error(error: &ApiError) -> Vec<u8> {
    if error.kind == "Bad Request" {
        return error.body();
    }
    // In the order of the captures, which a map would not keep.
    let text = |value: &str| Value::from(value).to_string();
    let (kind, message) = (text(error.kind), text(&error.message));
    format!("{{\"type\":\"error\",\"error\":{{\"type\":{kind},\"message\":{message}}}}}")
        .into_bytes()
}

fn stop_reason(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop => "end_turn",
        FinishReason::Length => "max_tokens",
    }
}

/// Cached tokens are no input here. `details`: whether they are told at all.
fn usage(totals: Totals, details: bool) -> String {
    let Totals { prompt, completion, cached, .. } = totals;
    if details {
        let input = prompt.saturating_sub(cached);
        format!(
            "{{\"input_tokens\":{input},\"output_tokens\":{completion},\"cache_creation_input_tokens\":0,\
             \"cache_read_input_tokens\":{cached}}}"
        )
    } else {
        format!("{{\"input_tokens\":{prompt},\"output_tokens\":{completion}}}")
    }
}

/// The answer in one piece.
pub fn body(head: &StreamHead, choice: &Choice, totals: Totals, details: bool) -> Vec<u8> {
    let [id, model, text] =
        [&head.id, &head.model, &choice.text].map(|text| Value::from(text.as_str()).to_string());
    format!(
        "{{\"id\":{id},\"type\":\"message\",\"role\":\"assistant\",\"content\":[{{\"type\":\"text\",\"text\":{text}}}],\
         \"model\":{model},\"stop_reason\":\"{}\",\"usage\":{}}}",
        stop_reason(choice.finish),
        usage(totals, details),
    )
    .into_bytes()
}

fn event(name: &str, rest: &str) -> Vec<u8> {
    let comma = if rest.is_empty() { "" } else { "," };
    format!("event: {name}\ndata: {{\"type\":\"{name}\"{comma}{rest}}}\n\n").into_bytes()
}

/// The events before the first token.
pub(super) fn begin(head: &StreamHead, totals: Totals) -> Vec<Vec<u8>> {
    let [id, model] = [&head.id, &head.model].map(|text| Value::from(text.as_str()).to_string());
    let message = format!(
        "\"message\":{{\"id\":{id},\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"model\":{model},\
         \"stop_reason\":null,\"stop_sequence\":null,\"usage\":{{\"input_tokens\":{},\"output_tokens\":0}}}}",
        totals.prompt
    );
    let block = "\"content_block\":{\"type\":\"text\",\"text\":\"\"},\"index\":0";
    vec![event("message_start", &message), event("content_block_start", block)]
}

/// The event of a token.
pub(super) fn token(piece: Piece<'_>) -> Vec<u8> {
    let text = Value::from(piece.text);
    let delta = format!("\"delta\":{{\"type\":\"text_delta\",\"text\":{text}}},\"index\":0");
    event("content_block_delta", &delta)
}

/// The events after the last token.
pub(super) fn end(totals: Totals, details: bool, finish: FinishReason) -> Vec<Vec<u8>> {
    let delta = format!(
        "\"delta\":{{\"stop_reason\":\"{}\",\"stop_sequence\":null}},\"usage\":{}",
        stop_reason(finish),
        usage(totals, details),
    );
    vec![
        event("content_block_stop", "\"index\":0"),
        event("message_delta", &delta),
        event("message_stop", ""),
    ]
}

/// The event of an engine that is gone.
pub(super) fn failure(error: &ApiError) -> Vec<u8> {
    [b"event: error\ndata: ", self::error(error).as_slice(), b"\n\n"].concat()
}
