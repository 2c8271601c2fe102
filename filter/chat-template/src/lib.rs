//! The bytes that vLLM's renderer makes of a chat, without vLLM.
//!
//! ```text
//! TemplateSource ── Template::compile ──▶ Template ── render_chat(ChatRequest, clock) ──▶ bytes
//! ```
//! The truth is vLLM 0.32 (`vllm/renderers/hf.py`, `vllm/renderers/chat_utils.py`), which reshapes messages and
//! tools before it hands them to Jinja, and only then `transformers`' way of running Jinja:
//! - [`request`]: what a request says, as plain data;
//! - [`template`]: compiling and rendering;
//! - `conversation`, `message_value`, `tools`: messages and tools as vLLM hands them to the template;
//! - `probes`: what vLLM tries out on a template for the sake of Anthropic's API;
//! - `content_format`: whether a template wants contents as strings or as lists of parts, found as vLLM does;
//! - `environment`, `builtins`, `methods`, `clock`: Jinja as `transformers` sets it up;
//! - `python_json`: Python's `json.loads` and `json.dumps`;
//! - `shortening`, `audit`: the quick way for long texts, and for which templates it is open;
//! - `plans`, `plain_text`: prompts by their shape, without a run of the template;
//! - `continuation`: `continue_final_message`;
//! - `nfc`: the normalisation that some tokenizers apply afterwards.
//!
//! What cannot be rendered exactly is an error ([`RenderError`]), never a guess. Nothing here does I/O; the clock
//! is passed in.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
// What clients send must never trap the VM.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::string_slice
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::string_slice))]

mod audit;
mod builtins;
mod clock;
mod content_format;
mod continuation;
mod conversation;
mod environment;
mod error;
mod message_value;
mod methods;
mod nfc;
mod plain_text;
mod plans;
mod probes;
mod python_json;
pub mod request;
mod shortening;
mod syntax_tree;
pub mod template;
#[cfg(test)]
mod tests;
mod tools;

pub use error::{RenderError, TemplateError};
pub use nfc::normalize_nfc;
pub use request::{ChatRequest, Content, Message, Part, ToolCall, ToolCalls, Tools};
pub use template::{Template, TemplateSource};
