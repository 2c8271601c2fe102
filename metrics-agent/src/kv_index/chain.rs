//! Token ids to byte blocks.

use crate::tokenizer::bytes::TokenBytes;
use warmroute_shared_state::prefix::{BLOCK_BYTES, chain_step};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes before a block's end that are known in any case: what the decode check looks back on.
const LEAST_TAIL: usize = 32;

/// Largest id that has bytes: what is kept of a block has 23 bits for one.
pub(super) const MAX_ID: u32 = (1 << 23) - 1;

/// Bytes that are kept of a chain of `bytes` bytes: those of the unfinished byte block, and at
/// least the last few.
pub(super) fn tail_len(bytes: u32) -> usize {
    let open = bytes as usize % BLOCK_BYTES;
    open.max((bytes as usize).min(LEAST_TAIL))
}

/// A chain up to the end of some engine block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// Hash after the last whole byte block.
    pub(super) hash: u64,
    /// Bytes up to the end.
    pub(super) bytes: u32,
}

/// Where the ids' bytes are cut into byte blocks. Kept from block to block, to reuse its memory.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    /// Kept bytes of the parent, then those of the block.
    bytes: Vec<u8>,
    /// Byte blocks that the engine block ends: hash, and how many of its tokens lie before the end.
    pub(super) ended: Vec<(u64, u16)>,
    /// The block's ids, and how many bytes each has.
    ids: Vec<(u32, usize)>,
}

/// What became of an engine block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) end: End,
    /// An id had no bytes: the chain ends before it.
    pub(super) dead: bool,
}

impl Cutter {
    /// Continues the chain that ends at `start` with kept bytes `tail` by `ids`.
    pub(super) fn cut(&mut self, start: End, tail: &[u8], ids: &[u32], table: &TokenBytes) -> Cut {
        self.bytes.clear();
        self.bytes.extend_from_slice(tail);
        self.ended.clear();
        self.ids.clear();
        let open = start.bytes as usize % BLOCK_BYTES;
        let mut from = tail.len().saturating_sub(open);
        let mut end = start;
        for (before, id) in (0u16..).zip(ids) {
            let bytes = table.get(*id).filter(|_| *id <= MAX_ID);
            let sum = bytes.and_then(|b| end.bytes.checked_add(u32::try_from(b.len()).ok()?));
            let (Some(bytes), Some(sum)) = (bytes, sum) else {
                return Cut { end, dead: true };
            };
            self.bytes.extend_from_slice(bytes);
            self.ids.push((*id, bytes.len()));
            end.bytes = sum;
            while let Some(block) = self.bytes.get(from..from.saturating_add(BLOCK_BYTES)) {
                end.hash = chain_step(end.hash, xxh3_64(block));
                from = from.saturating_add(BLOCK_BYTES);
                let whole = from == self.bytes.len();
                self.ended.push((end.hash, before.saturating_add(u16::from(whole))));
            }
        }
        Cut { end, dead: false }
    }

    /// The fewest last ids of the block that have `len` bytes together.
    pub(super) fn last_ids(&self, len: usize) -> impl ExactSizeIterator<Item = u32> {
        let mut missing = len;
        let enough = |(_, len): &&(u32, usize)| {
            let more = missing > 0;
            missing = missing.saturating_sub(*len);
            more
        };
        let count = self.ids.iter().rev().take_while(enough).count();
        let last = self.ids.get(self.ids.len().saturating_sub(count)..).unwrap_or_default();
        last.iter().map(|(id, _)| *id)
    }

    /// The last `len` bytes of the chain that was cut.
    pub(super) fn last(&self, len: usize) -> &[u8] {
        self.bytes.get(self.bytes.len().saturating_sub(len)..).unwrap_or_default()
    }
}
