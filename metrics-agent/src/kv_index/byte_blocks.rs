//! How many engine blocks end each byte block, per tier, and what has to be told of it.
//!
//! Two engine chains may have the same bytes (other token ids, another rank), so byte blocks are
//! counted. What is told is the difference between two looks, not every step between them.

use super::changes::{Changes, TierChanges};
use super::entries::{Entries, Entry};
use warmroute_shared_state::block::{Block, Tier};

/// Most tokens of a chain.
pub(super) const MAX_TOKENS: u32 = (1 << 29) - 1;

const TOKENS: u32 = MAX_TOKENS;
const TOLD_DEVICE: u32 = 1 << 29;
const TOLD_ANY: u32 = 1 << 30;
const DIRTY: u32 = 1 << 31;

impl Entry {
    /// A count of 65,535 chains with the same bytes sticks.
    fn count(&mut self, tier: Tier) -> &mut u16 {
        match tier {
            Tier::Device => &mut self.device,
            Tier::Any => &mut self.any,
        }
    }
}

/// All byte blocks of one endpoint.
#[derive(Default)]
pub(super) struct ByteBlocks {
    entries: Entries,
    dirty: Vec<u64>,
    cleared: bool,
    tell_any: bool,
}

impl ByteBlocks {
    /// One more engine block ends this byte block.
    pub(super) fn add(&mut self, tier: Tier, block: Block) {
        let packed = block.tokens.clamp(1, MAX_TOKENS);
        let new = Entry { hash: block.hash, packed, device: 0, any: 0 };
        let Some(entry) = self.entries.get_or_insert(new) else { return };
        let count = entry.count(tier);
        *count = count.saturating_add(1);
        if *count == 1 {
            mark(entry, &mut self.dirty);
        }
    }

    /// One less.
    pub(super) fn remove(&mut self, tier: Tier, hash: u64) {
        if let Some(entry) = self.entries.get_mut(hash) {
            let count = entry.count(tier);
            if *count < u16::MAX {
                *count = count.saturating_sub(1);
            }
            if *count == 0 {
                mark(entry, &mut self.dirty);
            }
        }
    }

    /// There is a slower tier: from now on tier `Any` is told too.
    pub(super) fn tell_any(&mut self) {
        if !self.tell_any {
            self.tell_any = true;
            for entry in self.entries.iter_mut() {
                mark(entry, &mut self.dirty);
            }
        }
    }

    pub(super) fn tells_any(&self) -> bool {
        self.tell_any
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.entries = Entries::default();
        self.dirty.clear();
        self.cleared = true;
    }

    /// Nothing counts as told: the next look tells all that is covered.
    pub(super) fn tell_anew(&mut self) {
        self.cleared = true;
        for entry in self.entries.iter_mut() {
            entry.packed &= !(TOLD_DEVICE | TOLD_ANY);
            mark(entry, &mut self.dirty);
        }
    }

    /// Byte blocks covered in some tier.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Writes what is to be told since the last call.
    pub(super) fn drain(&mut self, changes: &mut Changes) {
        changes.reset();
        changes.cleared = std::mem::take(&mut self.cleared);
        for hash in self.dirty.drain(..) {
            let Some(entry) = self.entries.get_mut(hash) else { continue };
            entry.packed &= !DIRTY;
            tell(entry, entry.device > 0, TOLD_DEVICE, &mut changes.device);
            if self.tell_any {
                tell(entry, entry.any > 0, TOLD_ANY, &mut changes.any);
            }
            if entry.device == 0 && entry.any == 0 {
                self.entries.remove(hash);
            }
        }
        // A batch that voids much must not keep its memory for ever.
        if self.dirty.capacity() > 1 << 12 {
            self.dirty = Vec::new();
        }
    }
}

fn mark(entry: &mut Entry, dirty: &mut Vec<u64>) {
    if entry.packed & DIRTY == 0 {
        entry.packed |= DIRTY;
        dirty.push(entry.hash);
    }
}

fn tell(entry: &mut Entry, now: bool, told: u32, changes: &mut TierChanges) {
    if now && entry.packed & told == 0 {
        entry.packed |= told;
        changes.stored.push(Block { hash: entry.hash, tokens: entry.packed & TOKENS });
    } else if !now && entry.packed & told != 0 {
        entry.packed &= !told;
        changes.removed.push(entry.hash);
    }
}
