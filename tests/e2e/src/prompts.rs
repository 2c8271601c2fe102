//! Prompts that no other request has.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::stack::MODEL;

/// Text of about `bytes` bytes that never comes again.
#[must_use]
pub fn fresh_text(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        for _ in 0..fastrand::usize(2..8) {
            text.push(fastrand::lowercase());
        }
        text.push(' ');
    }
    text
}

/// A chat of one user message, answered with `reply_tokens` tokens.
#[must_use]
pub fn chat(text: &str, reply_tokens: u32) -> Value {
    chat_of(&json!([{"role": "user", "content": text}]), reply_tokens)
}

/// A chat of these messages.
#[must_use]
pub fn chat_of(messages: &Value, reply_tokens: u32) -> Value {
    json!({"model": MODEL, "max_tokens": reply_tokens, "messages": messages})
}

/// The body of a request.
#[must_use]
pub fn body(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}
