//! One request inside the engine.

use std::sync::Arc;

use super::SimTime;
use super::blocks::{BlockHash, BlockId, chain_hashes, chain_root};

/// Names a request; unique for as long as the process runs.
pub type RequestId = u64;

/// Why a request ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// `max_tokens` was reached.
    Length,
}

impl FinishReason {
    /// The word in `finish_reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// A request as handed to the engine. The answer is settled beforehand: the engine only decides
/// when each token of it appears.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Name of the request.
    pub id: RequestId,
    /// Prompt tokens, at least one, followed by the planned answer, at least one.
    pub tokens: Vec<u32>,
    /// How many of `tokens` are the prompt.
    pub prompt_len: usize,
    /// What the end of the planned answer means.
    pub finish: FinishReason,
    /// The `max_tokens` in force, for the statistics.
    pub max_tokens: usize,
    /// LoRA adapter.
    pub adapter: Option<Arc<str>>,
    /// Cache salt.
    pub cache_salt: Option<Arc<str>>,
    /// Session that the client named, for the events.
    pub session: Option<Arc<str>>,
    /// Another engine computed the prompt, and its KV comes from there: all but the last token, which is always
    /// computed.
    pub transferred: bool,
}

/// Something that a request's owner is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// Whose output.
    pub id: RequestId,
    /// What happened.
    pub kind: OutputKind,
}

/// Kinds of [`Output`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputKind {
    /// Token `index` (from 0) of the planned answer appeared.
    Token {
        /// Position in the answer.
        index: usize,
        /// Prompt tokens that came from the cache when the request was first admitted.
        cached: usize,
        /// Set on the last token.
        finish: Option<FinishReason>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    /// Work left in billionths of a token, in all and up to the end of the current chunk.
    Prefill {
        left: u64,
        chunk_left: u64,
    },
    Decode {
        next: SimTime,
    },
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) sub: Submission,
    pub(super) hashes: Vec<BlockHash>,
    pub(super) blocks: Vec<BlockId>,
    /// Tokens whose KV is in `blocks`.
    pub(super) computed: usize,
    /// Leading blocks that can be found by hash.
    pub(super) published: usize,
    /// Tokens of the answer that appeared.
    pub(super) generated: usize,
    pub(super) phase: Phase,
    pub(super) arrived: SimTime,
    pub(super) admitted: Option<SimTime>,
    pub(super) first_token: Option<SimTime>,
    pub(super) last_token: SimTime,
    pub(super) cached: Option<usize>,
    pub(super) preemptions: u32,
}

impl Request {
    pub(super) fn new(sub: Submission, block_size: usize, now: SimTime) -> Self {
        let root = chain_root(sub.adapter.as_deref(), sub.cache_salt.as_deref());
        let hashes = chain_hashes(root, &sub.tokens, block_size);
        Self {
            sub,
            hashes,
            blocks: Vec::new(),
            computed: 0,
            published: 0,
            generated: 0,
            phase: Phase::Waiting,
            arrived: now,
            admitted: None,
            first_token: None,
            last_token: now,
            cached: None,
            preemptions: 0,
        }
    }

    /// Tokens to compute before the next one can appear: the prompt, and after a preemption also
    /// what was generated before it.
    pub(super) fn prefill_target(&self) -> usize {
        self.sub.prompt_len + self.generated
    }

    /// Hashes that a prompt of this length may hit: its last token is always computed, since that
    /// is what yields the next one.
    pub(super) fn hittable(&self, block_size: usize) -> &[BlockHash] {
        let blocks = self.prefill_target().saturating_sub(1) / block_size;
        self.hashes.get(..blocks).unwrap_or(&self.hashes)
    }

    pub(super) fn answer_len(&self) -> usize {
        self.sub.tokens.len() - self.sub.prompt_len
    }
}
