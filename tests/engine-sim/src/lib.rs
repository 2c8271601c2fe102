//! Simulated vLLM replicas for tests and the demo: many in one process, one port each.
//!
//! The binary `engine-sim` is what tests start; see `README.md`. The library offers the engine's
//! core, the tokenizer and the chat template, so that others can count tokens as the replicas do.
//!
//! ```
//! use engine_sim::tokens::template::Message;
//!
//! let messages = [Message::new("system", "Be brief."), Message::new("user", "Hi")];
//! assert_eq!(engine_sim::count_chat_tokens(&messages)?, 23);
//! # Ok::<(), engine_sim::tokens::TokenizerError>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod admin;
pub mod api;
pub mod engine;
pub mod kv_events;
pub mod metrics;
pub mod model_folder;
pub mod replica;
pub mod sidecar;
pub mod tokens;

/// Prompt tokens of a chat with these messages, the start of the answer included, as `usage` will
/// tell them.
pub fn count_chat_tokens(
    messages: &[tokens::template::Message<'_>],
) -> Result<usize, tokens::TokenizerError> {
    tokens::template::tokenize(tokens::shared()?, messages, true).map(|ids| ids.len())
}

/// Tokens of a plain text, as a completion's prompt or inside a message's content.
pub fn count_text_tokens(text: &str) -> Result<usize, tokens::TokenizerError> {
    tokens::shared()?.encode(&[text]).map(|ids| ids.len())
}
