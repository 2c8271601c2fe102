//! What is sent: conversations whose prompts have an exact number of tokens, fixed in advance.
//!
//! Both sides of a comparison send the very same bytes in the very same order, so everything here
//! is built once from a seed, before the first request goes out.

mod conversation;
mod ideal;
mod simulated;
mod text;

use bytes::Bytes;
use serde::Serialize;

pub use conversation::{Shape, build};
pub use ideal::{BLOCK_TOKENS, PrefixLedger};
pub use simulated::SimulatedTokens;
pub use text::{Writer, one_token_words};

/// One chat message, as a request body carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// The text.
    pub content: String,
}

/// Counts tokens the way the engines do.
///
/// A trait, so that the builders can be tested with a tokenizer small enough to reason about.
pub trait Tokens {
    /// Token ids of a bare text, without any template.
    fn text(&self, text: &str) -> Vec<u32>;
    /// Token ids of a whole chat prompt, with the template and the opening of the answer.
    fn chat(&self, messages: &[Message]) -> Vec<u32>;
}

/// One request, ready to be sent.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// Which conversation it belongs to.
    pub conversation: usize,
    /// The JSON body.
    pub body: Bytes,
    /// Length of the rendered prompt in tokens.
    pub tokens: usize,
}

/// A whole case: turns in order, the prompts of a turn in the order they are sent.
#[derive(Clone, Debug)]
pub struct Workload {
    /// All of a turn is sent and answered before the next turn starts.
    pub turns: Vec<Vec<Prompt>>,
    /// Prompt tokens that an infinite cache shared by all replicas would have held.
    pub ideal_cached_tokens: u64,
}

impl Workload {
    /// Requests in all turns.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.turns.iter().map(Vec::len).sum()
    }
}

/// Why a workload could not be built.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WorkloadError {
    /// No text of this length comes out of the word list.
    #[error("no text of exactly {0} tokens: the word list needs a one-token filler word")]
    NoExactText(usize),
    /// The lengths asked for leave no room for the template.
    #[error("{what} of {tokens} tokens leaves no room for the chat template's own {template}")]
    TooShort {
        /// Which length.
        what: &'static str,
        /// As asked for.
        tokens: usize,
        /// What the template needs.
        template: usize,
    },
    /// The tokens of the parts did not add up to those of the whole prompt.
    #[error("prompt has {got} tokens, not {wanted}: the template merges tokens across messages")]
    NotAdditive {
        /// As built.
        got: usize,
        /// As asked for.
        wanted: usize,
    },
}
