//! What the engine tells about its cache: the hook that a KV-event publisher hangs on.

use super::blocks::BlockHash;

/// Blocks that became hittable in one step of one request.
#[derive(Debug)]
pub struct StoredBlocks<'a> {
    /// Their chained hashes, in prompt order.
    pub hashes: &'a [BlockHash],
    /// Hash of the block before the first, `None` at the start of a prompt.
    pub parent: Option<BlockHash>,
    /// The tokens of all these blocks: `hashes.len() * block_size` of them.
    pub tokens: &'a [u32],
    /// Tokens per block.
    pub block_size: usize,
    /// LoRA adapter of the request.
    pub adapter: Option<&'a str>,
    /// Cache salt of the request; it enters the first block's hash only.
    pub cache_salt: Option<&'a str>,
    /// Session that the client named; it enters no hash.
    pub session: Option<&'a str>,
}

/// Receives the engine's cache events in the order in which they happen.
pub trait EventSink: Send {
    /// Blocks filled by prefill or by decode can be hit from now on.
    fn stored(&mut self, blocks: &StoredBlocks<'_>);
    /// One physical block with this hash was evicted.
    fn removed(&mut self, hash: BlockHash);
    /// The whole cache was dropped.
    fn cleared(&mut self);
    /// What came since the last call happened in one step of the engine.
    fn step_ended(&mut self) {}
}

/// Ignores every event.
#[derive(Debug, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn stored(&mut self, _: &StoredBlocks<'_>) {}
    fn removed(&mut self, _: BlockHash) {}
    fn cleared(&mut self) {}
}

/// One event as [`CollectingSink`] keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectedEvent {
    /// See [`EventSink::stored`].
    Stored {
        /// Hashes of the blocks.
        hashes: Vec<BlockHash>,
        /// Hash before the first.
        parent: Option<BlockHash>,
        /// Tokens of all the blocks.
        tokens: Vec<u32>,
    },
    /// See [`EventSink::removed`].
    Removed(BlockHash),
    /// See [`EventSink::cleared`].
    Cleared,
}

/// Keeps every event; for tests, as it grows without bound.
#[derive(Debug, Default)]
pub struct CollectingSink {
    /// Events, oldest first.
    pub events: Vec<CollectedEvent>,
}

impl EventSink for CollectingSink {
    fn stored(&mut self, blocks: &StoredBlocks<'_>) {
        self.events.push(CollectedEvent::Stored {
            hashes: blocks.hashes.to_vec(),
            parent: blocks.parent,
            tokens: blocks.tokens.to_vec(),
        });
    }

    fn removed(&mut self, hash: BlockHash) {
        self.events.push(CollectedEvent::Removed(hash));
    }

    fn cleared(&mut self) {
        self.events.push(CollectedEvent::Cleared);
    }
}

/// Lets a test keep a handle on the sink that an engine owns.
impl<S: EventSink> EventSink for std::sync::Arc<std::sync::Mutex<S>> {
    fn stored(&mut self, blocks: &StoredBlocks<'_>) {
        if let Ok(mut sink) = self.lock() {
            sink.stored(blocks);
        }
    }

    fn removed(&mut self, hash: BlockHash) {
        if let Ok(mut sink) = self.lock() {
            sink.removed(hash);
        }
    }

    fn cleared(&mut self) {
        if let Ok(mut sink) = self.lock() {
            sink.cleared();
        }
    }
}
