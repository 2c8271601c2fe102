//! KV cache events over ZMQ, as vLLM publishes them: what each engine step did to the cache, as one numbered batch on a
//! PUB socket, and a replay of the latest batches on a ROUTER socket.

pub mod batch;
pub mod encoding;
pub mod evictions;
pub mod faults;
pub mod flood;
pub mod line;
mod replay;
pub mod source;

use std::time::Duration;

/// How a replica publishes its events.
#[derive(Debug, Clone)]
pub struct KvEventsConfig {
    /// Spelling of batches and replay answers.
    pub encoding: encoding::Encoding,
    /// Spelling of block hashes.
    pub hashes: encoding::Hashes,
    /// Batches that can be replayed.
    pub buffer_steps: usize,
    /// How much later than it happened a batch is published.
    pub delay: Duration,
}

impl Default for KvEventsConfig {
    fn default() -> Self {
        Self {
            encoding: encoding::Encoding::Map,
            hashes: encoding::Hashes::Int,
            buffer_steps: 10_000,
            delay: Duration::ZERO,
        }
    }
}
