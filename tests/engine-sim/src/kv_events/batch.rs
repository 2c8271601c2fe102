//! What one engine step did to the cache.

use crate::engine::blocks::BlockHash;
use crate::engine::events::{EventSink, StoredBlocks};

use super::line::Line;

/// One event as the wire will tell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Blocks of one request that became hittable.
    Stored(Stored),
    /// One physical block that was evicted.
    Removed(BlockHash),
    /// The whole cache was dropped.
    Cleared,
}

/// Blocks that one request filled in one step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    /// Their hashes, in prompt order.
    pub hashes: Vec<BlockHash>,
    /// Hash of the block before the first.
    pub parent: Option<BlockHash>,
    /// Tokens of all these blocks.
    pub tokens: Vec<u32>,
    /// Tokens per block.
    pub block_size: usize,
    /// LoRA adapter: its number from 1 on, and its name.
    pub adapter: Option<(usize, String)>,
    /// Cache salt; it is told with a prompt's first block only.
    pub cache_salt: Option<String>,
    /// Session that the client named.
    pub session: Option<String>,
}

/// Gathers the events of a step and hands them over at its end, as one batch.
pub struct StepEvents {
    line: Line,
    adapters: Vec<String>,
    events: Vec<Event>,
}

impl StepEvents {
    /// `adapters`: names of the LoRA adapters in the order of their numbers.
    pub fn new(line: Line, adapters: Vec<String>) -> Self {
        Self { line, adapters, events: Vec::new() }
    }
}

impl EventSink for StepEvents {
    fn stored(&mut self, blocks: &StoredBlocks<'_>) {
        let number = |name: &str| {
            self.adapters.iter().position(|known| known == name).map_or(0, |at| at + 1)
        };
        self.line.stored(blocks.hashes);
        self.events.push(Event::Stored(Stored {
            hashes: blocks.hashes.to_vec(),
            parent: blocks.parent,
            tokens: blocks.tokens.to_vec(),
            block_size: blocks.block_size,
            adapter: blocks.adapter.map(|name| (number(name), name.to_owned())),
            cache_salt: blocks.cache_salt.map(str::to_owned),
            session: blocks.session.map(str::to_owned),
        }));
    }

    fn removed(&mut self, hash: BlockHash) {
        self.line.removed(hash);
        self.events.push(Event::Removed(hash));
    }

    fn cleared(&mut self) {
        self.events.push(Event::Cleared);
    }

    fn step_ended(&mut self) {
        if !self.events.is_empty() {
            self.line.publish(std::mem::take(&mut self.events));
        }
    }
}
