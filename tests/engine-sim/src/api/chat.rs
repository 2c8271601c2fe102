//! A chat body's prompt.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::errors::ApiError;
use super::fields::{Fields, Text, wrong_type};
use crate::tokens::Tokenizer;
use crate::tokens::template::{self, Message};
use crate::tokens::tools;

/// Token ids of a chat body's messages and tools, as the template renders them.
pub fn tokens(
    fields: &Fields<'_>,
    tokenizer: &Tokenizer,
    generate: bool,
) -> Result<Vec<u32>, ApiError> {
    let raw = fields.raw("messages").ok_or_else(|| fields.missing("messages"))?;
    let raw_messages: Vec<&RawValue> =
        serde_json::from_str(raw.get()).map_err(|_| wrong_type("body.messages", "list"))?;
    if raw_messages.is_empty() {
        return Err(ApiError::bad_request(
            "Cannot apply chat template to an empty conversation. Provide at least one message.",
            None,
        ));
    }
    let tools = fields.raw("tools").map(RawValue::get).filter(|tools| *tools != "[]");
    let mut messages = Vec::with_capacity(raw_messages.len());
    let mut calls = Vec::with_capacity(raw_messages.len());
    for raw in raw_messages {
        let (message, tool_calls) = message(raw)?;
        messages.push(message);
        calls.push(tool_calls.map(RawValue::get));
    }
    if tools.is_none() && calls.iter().all(Option::is_none) {
        return Ok(template::tokenize(tokenizer, &messages, generate)?);
    }
    let prompt = tools::render(&messages, &calls, tools, generate)
        .map_err(|error| ApiError::bad_request(error.to_string(), Some("tools")))?;
    Ok(tokenizer.encode(&[&prompt])?.to_vec())
}

fn message(raw: &RawValue) -> Result<(Message<'_>, Option<&RawValue>), ApiError> {
    let fields = Fields::nested(raw, "body.messages")?;
    let role = fields.text("role")?.ok_or_else(|| fields.missing("role"))?;
    Ok((Message { role, content: content(&fields)? }, fields.raw("tool_calls")))
}

/// The text of a message's `content`.
pub(super) fn content<'a>(message: &Fields<'a>) -> Result<Cow<'a, str>, ApiError> {
    Ok(match message.raw("content") {
        None => Cow::Borrowed(""),
        Some(raw) if raw.get().starts_with('"') => message.text("content")?.unwrap_or_default(),
        Some(raw) => Cow::Owned(parts(raw)?),
    })
}

fn parts(raw: &RawValue) -> Result<String, ApiError> {
    let list: Vec<&RawValue> =
        serde_json::from_str(raw.get()).map_err(|_| wrong_type("body.messages.content", "list"))?;
    let mut texts = Vec::with_capacity(list.len());
    for raw in list {
        if raw.get().starts_with('"') {
            let Text(text) = serde_json::from_str(raw.get())
                .map_err(|_| wrong_type("body.messages.content", "string"))?;
            texts.push(text);
            continue;
        }
        let part = Fields::nested(raw, "body.messages.content")?;
        match part.text("text")? {
            Some(text) => texts.push(text),
            None => {
                return Err(ApiError::bad_request(
                    "This model takes text parts only.",
                    Some("messages"),
                ));
            }
        }
    }
    Ok(texts.join("\n"))
}
