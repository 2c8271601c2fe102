//! What one endpoint is known to hold, by its KV events, as the stream tells it.

use super::block_list::BlockList;
use std::sync::Arc;
use warmroute_shared_state::block::{Block, Tier};
use warmroute_shared_state::endpoint::{EndpointId, EndpointRecord};
use warmroute_shared_state::stream::AgentOp;

/// Blocks that one operation carries at most.
pub const BLOCKS_PER_OPERATION: usize = 4096;

/// How an endpoint's events are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Following {
    /// They come, and none is missing.
    pub precise: bool,
    /// Worth of a block in a slower tier, in percent; 0 = the endpoint has none.
    pub lower_tier_percent: u8,
}

/// One period of following an endpoint's events: what is told of one says nothing of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period(pub(super) u64);

/// Blocks of one endpoint in one period.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) period: Period,
    following: Following,
    device: BlockList,
    any: BlockList,
}

impl Held {
    pub(super) fn new(period: Period, following: Following) -> Self {
        Self { period, following, device: BlockList::default(), any: BlockList::default() }
    }

    /// The same blocks, in another period.
    pub(super) fn resumed(self, period: Period, following: Following) -> Self {
        Self { period, following, ..self }
    }

    /// How many blocks the device holds.
    pub(super) fn len(&self) -> usize {
        self.device.blocks().count()
    }

    pub(super) fn is_precise(&self) -> bool {
        self.following.precise
    }

    fn tier(&mut self, tier: Tier) -> &mut BlockList {
        match tier {
            Tier::Device => &mut self.device,
            Tier::Any => &mut self.any,
        }
    }

    pub(super) fn store(&mut self, tier: Tier, blocks: &[Block]) {
        self.tier(tier).store(blocks);
    }

    pub(super) fn evict(&mut self, tier: Tier, hashes: &[u64]) {
        self.tier(tier).evict(hashes);
    }

    /// All of it, as operations.
    pub(super) fn operations(&self, id: EndpointId) -> Vec<AgentOp> {
        let mut operations = Vec::new();
        for (tier, held) in [(Tier::Device, &self.device), (Tier::Any, &self.any)] {
            let blocks: Vec<Block> = held.blocks().collect();
            operations.extend(blocks.chunks(BLOCKS_PER_OPERATION).map(|blocks| AgentOp::Store {
                id,
                tier,
                at_ms: 0,
                blocks: Arc::from(blocks),
            }));
        }
        operations
    }
}

/// The endpoint's record as the stream tells it: a new period voids what the endpoint held.
pub(super) fn effective(record: &EndpointRecord, held: Option<&Held>) -> EndpointRecord {
    let mut record = record.clone();
    if let Some(held) = held {
        let seed = record.generation;
        record.generation =
            xxhash_rust::xxh3::xxh3_64_with_seed(&held.period.0.to_le_bytes(), seed);
        record.precise = held.following.precise;
        record.lower_tier_percent = held.following.lower_tier_percent;
    }
    record
}
