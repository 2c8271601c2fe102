//! What an engine is told, and what it tells about itself.

/// What an engine is made of.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Tokens per KV block.
    pub block_size: usize,
    /// KV blocks as reported; as in vLLM, one of them is never used.
    pub num_blocks: usize,
    /// Most requests in prefill or decode at a time.
    pub max_num_seqs: usize,
    /// Most requests in the engine, waiting ones included; `None` for no limit.
    pub max_queued: Option<usize>,
    /// Most distinct LoRA adapters running at a time.
    pub max_loras: usize,
    /// Prefill speed, shared by the requests in prefill.
    pub prefill_tokens_per_s: u64,
    /// Tokens after which prefilled blocks become hittable.
    pub prefill_chunk: usize,
    /// Simulated nanoseconds per decoded token.
    pub decode_ns: u64,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            block_size: 16,
            num_blocks: 10_000,
            max_num_seqs: 256,
            max_queued: None,
            max_loras: 2,
            prefill_tokens_per_s: 16_000,
            prefill_chunk: 2_048,
            decode_ns: 10_000_000,
        }
    }
}

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// `max_queued` requests are already in the engine.
    #[error("the engine already holds its limit of {limit} requests; retry later or elsewhere")]
    QueueFull {
        /// The limit.
        limit: usize,
    },
    /// The request could never fit into the cache, or is empty.
    #[error("a request of {tokens} tokens cannot be served by {capacity} KV blocks; shorten it")]
    Unservable {
        /// Prompt and answer.
        tokens: usize,
        /// Usable blocks.
        capacity: usize,
    },
}

/// Numbers that change from moment to moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gauges {
    /// Requests in prefill or decode; a pseudo request made by [`Engine::occupy`](super::Engine::occupy) counts.
    pub running: usize,
    /// Requests waiting for blocks or a place.
    pub waiting_capacity: usize,
    /// Requests waiting for their adapter's turn.
    pub waiting_deferred: usize,
    /// Share of usable blocks that live requests hold, 0 to 1.
    pub kv_usage: f64,
    /// Blocks without a reference, cached ones included.
    pub free_blocks: usize,
    /// Blocks that can be hit.
    pub cached_blocks: usize,
    /// Adapters of running requests, by name.
    pub running_loras: Vec<String>,
    /// Adapters of waiting requests, by name.
    pub waiting_loras: Vec<String>,
}
