//! Which endpoint holds which prefix block: one replica a VM, in its own memory.
//!
//! A hash maps to the set of columns that hold the block. Entries lie in the order in which they came ([`entries`]);
//! where is told by an index, which is cut into the same segments as the checkpoints ([`segment`]): a chunk is one
//! segment, and growth moves one segment's slots at a time, never a million inside one request.

mod column_mask;
mod column_sets;
mod entries;
mod lru;
mod segment;
mod walk;

pub use column_mask::{ColumnMask, MAX_COLUMNS};
pub use lru::RecencyList;
pub use walk::PrefixMatch;

use column_sets::{ColumnRef, ColumnSets};
use entries::{Entries, Entry, Place};
use segment::Segment;
use warmroute_shared_state::block::Block;
use warmroute_shared_state::checkpoint::{SEGMENTS, segment_of};
use warmroute_shared_state::table_op::Column;

/// One entry, for checkpoints.
#[derive(Debug, Clone, Copy)]
pub struct TableEntry {
    /// Chain hash.
    pub hash: u64,
    /// When one of our picks last used it, in units of 64 ms (wrapping).
    pub stamp: u32,
    /// Tokens that the chain up to its end stands for; 0 = no event said.
    pub tokens: u32,
    /// Who holds it.
    pub columns: ColumnMask,
}

/// The table: chain hash to columns.
#[derive(Debug)]
pub struct PrefixTable {
    segments: Vec<Segment>,
    entries: Entries,
    sets: ColumnSets,
    len: usize,
}

impl Default for PrefixTable {
    fn default() -> Self {
        Self {
            segments: (0..SEGMENTS).map(|_| Segment::default()).collect(),
            entries: Entries::default(),
            sets: ColumnSets::default(),
            len: 0,
        }
    }
}

impl PrefixTable {
    /// How many blocks are held somewhere.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no block is held anywhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Records that `column` is believed to hold the block. Doing it twice changes nothing but the stamp.
    pub fn insert(&mut self, column: Column, stamp: u32, hash: u64) {
        self.enter(column, hash, |entry| entry.stamp = stamp);
    }

    /// Records that `column` told that it holds the block.
    pub fn store(&mut self, column: Column, block: Block) {
        self.enter(column, block.hash, |entry| entry.tokens = block.tokens);
    }

    /// Puts a column of a checkpoint's entry back.
    pub fn restore(&mut self, column: Column, stamp: u32, tokens: u32, hash: u64) {
        self.enter(column, hash, |entry| {
            entry.stamp = stamp;
            entry.tokens = tokens;
        });
    }

    fn enter(&mut self, column: Column, hash: u64, change: impl FnOnce(&mut Entry)) {
        let Self { segments, entries, sets, len } = self;
        let Some(segment) = segments.get_mut(segment_of(hash)) else { return };
        let found = segment.find(hash, entries);
        if let Some(entry) = found.and_then(|place| entries.get_mut(place)) {
            change(entry);
            sets.insert(&mut entry.columns, column);
            return;
        }
        let mut entry = Entry::new(hash, ColumnRef::one(column));
        if entry.columns.is_empty() {
            return;
        }
        change(&mut entry);
        let Some(place) = entries.add(entry) else { return };
        segment.insert(hash, place, entries);
        *len = len.saturating_add(1);
    }

    /// Whether `column` holds the block.
    #[must_use]
    pub fn holds(&self, column: Column, hash: u64) -> bool {
        self.find(hash).is_some_and(|entry| self.sets.contains(entry.columns, column))
    }

    /// Records that `column` no longer holds the block.
    pub fn remove(&mut self, column: Column, hash: u64) {
        let Some(place) = self.place(hash) else { return };
        let Some(entry) = self.entries.get_mut(place) else { return };
        self.sets.remove(&mut entry.columns, column);
        if entry.columns.is_empty() {
            self.forget(place, hash);
        }
    }

    /// Whether `column` holds the block and its stamp is at most `age` older than `stamp`.
    #[must_use]
    pub fn holds_since(&self, column: Column, stamp: u32, age: u32, hash: u64) -> bool {
        self.find(hash).is_some_and(|entry| {
            stamp.wrapping_sub(entry.stamp) <= age && self.sets.contains(entry.columns, column)
        })
    }

    /// Takes the columns of `dead` out of every entry of one segment.
    pub fn sweep_segment(&mut self, segment: usize, dead: &ColumnMask) {
        let Some(places) = self.segments.get(segment).map(|s| s.places().collect::<Vec<_>>())
        else {
            return;
        };
        for place in places {
            let Some(entry) = self.entries.get_mut(place) else { continue };
            let hash = entry.hash();
            self.sets.remove_all(&mut entry.columns, dead);
            if entry.columns.is_empty() {
                self.forget(place, hash);
            }
        }
    }

    /// Calls `each` with every entry of one segment.
    pub fn for_each_in_segment(&self, segment: usize, mut each: impl FnMut(TableEntry)) {
        let places = self.segments.get(segment).into_iter().flat_map(Segment::places);
        for entry in places.filter_map(|place| self.entries.get(place)) {
            let Entry { stamp, tokens, columns, .. } = *entry;
            each(TableEntry {
                hash: entry.hash(),
                stamp,
                tokens,
                columns: self.sets.mask(columns),
            });
        }
    }

    /// Takes out an entry that nobody holds any more; it still has its hash.
    fn forget(&mut self, place: Place, hash: u64) {
        let Some(segment) = self.segments.get_mut(segment_of(hash)) else { return };
        segment.remove(hash, place, &self.entries);
        self.entries.remove(place);
        self.len = self.len.saturating_sub(1);
    }

    fn place(&self, hash: u64) -> Option<Place> {
        self.segments.get(segment_of(hash))?.find(hash, &self.entries)
    }

    fn find(&self, hash: u64) -> Option<&Entry> {
        self.entries.get(self.place(hash)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmroute_shared_state::prefix::{ChainScope, chain};

    fn columns(table: &PrefixTable, hash: u64) -> Vec<u16> {
        let mask = table.find(hash).map(|entry| table.sets.mask(entry.columns)).unwrap_or_default();
        mask.iter().map(|c| c.0).collect()
    }

    crate::tests! {
        fn inserting_twice_and_removing_once_leaves_nothing() {
            let mut table = PrefixTable::default();
            table.insert(Column(4), 1, 99);
            table.insert(Column(4), 2, 99);
            assert_eq!(columns(&table, 99), [4]);
            table.remove(Column(4), 99);
            table.remove(Column(4), 99);
            assert!(table.is_empty());
        }

        fn a_block_is_held_since_its_stamp() {
            let mut table = PrefixTable::default();
            table.insert(Column(4), 100, 99);
            for (column, stamp, hash, held) in
                [(4, 100, 99, true), (4, 110, 99, true), (4, 111, 99, false), (5, 100, 99, false), (4, 100, 98, false)]
            {
                assert_eq!(table.holds_since(Column(column), stamp, 10, hash), held, "{column} {stamp} {hash}");
            }
        }

        fn a_block_can_be_held_by_every_column() {
            let mut table = PrefixTable::default();
            for c in 0..MAX_COLUMNS {
                table.insert(Column(c), 0, 7);
            }
            assert_eq!(columns(&table, 7).len(), usize::from(MAX_COLUMNS));
            for c in (0..MAX_COLUMNS).filter(|c| c % 3 != 0) {
                table.remove(Column(c), 7);
            }
            assert!(columns(&table, 7).iter().all(|c| c % 3 == 0));
            for c in 0..MAX_COLUMNS {
                table.remove(Column(c), 7);
            }
            assert!(table.is_empty());
        }

        fn sweeping_takes_a_dead_column_out_and_leaves_the_others() {
            let mut table = PrefixTable::default();
            let scope = ChainScope { model: "m", ..ChainScope::default() };
            let hashes = chain(&scope, &[7u8; 128 * 400]);
            for (i, hash) in hashes.iter().enumerate() {
                table.insert(Column(1), 0, *hash);
                if i % 2 == 0 {
                    table.insert(Column(2), 0, *hash);
                }
            }
            let mut dead = ColumnMask::default();
            dead.insert(Column(1));
            for segment in 0..SEGMENTS {
                table.sweep_segment(segment, &dead);
            }
            assert_eq!(table.len(), 200);
            assert!(hashes.iter().all(|hash| !columns(&table, *hash).contains(&1)));
        }
    }
}
