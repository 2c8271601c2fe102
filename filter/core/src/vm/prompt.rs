//! A request's prompt, as it is matched.

use crate::replica::EndpointState;
use warmroute_shared_state::prefix::BLOCK_BYTES;

/// How a prompt's bytes were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptSource {
    /// Nothing is known of the model: the approximate stream.
    #[default]
    Approximate,
    /// As the engine renders them.
    Rendered,
    /// The model is known, but these could not be rendered: the approximate stream.
    Unrendered,
}

impl PromptSource {
    /// One word, for logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approximate => "approximate",
            Self::Rendered => "rendered",
            Self::Unrendered => "unrendered",
        }
    }
}

/// A prompt as the scheduler sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Which byte stream it is: 0 = the approximate one, else that of a model.
    pub stream: u64,
    /// How it was found.
    pub source: PromptSource,
    /// Chain hashes of its blocks: whole ones, but for the tools' last in approximate mode.
    pub chain: Vec<u64>,
    /// Its bytes, the tail that fills no block included.
    pub bytes: u64,
}

impl Prompt {
    /// What the endpoint's engine can cache of a rendered prompt: it keeps whole blocks of its own, so what lies in
    /// the last, unfinished one is never told. Of the approximate stream, all.
    pub(super) fn cacheable(&self, endpoint: &EndpointState) -> &[u64] {
        if !endpoint.tells(self.stream) {
            return &self.chain;
        }
        // Twice the mean: the last tokens may be longer than others.
        let unfinished = endpoint.record.block_tokens.saturating_sub(1).saturating_mul(2);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let unfinished = (unfinished as f32 * endpoint.bytes_per_token) as u64;
        let blocks = self.bytes.saturating_sub(unfinished).div_euclid(BLOCK_BYTES as u64);
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX).min(self.chain.len());
        self.chain.get(..blocks).unwrap_or_default()
    }
}
