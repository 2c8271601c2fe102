//! The sets of columns of all blocks, small for the common case: most blocks are held by one or two endpoints.
//!
//! What more of them hold is mostly held by the same ones, block after block: a conversation, or a system prompt. Each
//! different set is there once, so that blocks of one chain have the same reference, which tells a walk that nothing
//! changed, and so that a widely held block takes no more memory than another.

use super::column_mask::{ColumnMask, MAX_COLUMNS};
use hashbrown::HashTable;
use warmroute_shared_state::table_op::Column;

const NONE: u16 = 0x7FFF;
/// Set in the first half: both halves are the index of a mask.
const IS_MASK: u16 = 0x8000;

/// A set of columns in four bytes: up to two of them ([`NONE`] where there is none), or the index of a
/// mask in [`ColumnSets`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ColumnRef(u16, u16);

enum Columns {
    Inline(u16, u16),
    Mask(usize),
}

impl ColumnRef {
    pub(super) const EMPTY: Self = Self(NONE, NONE);

    pub(super) fn one(column: Column) -> Self {
        Self(if column.0 < MAX_COLUMNS { column.0 } else { NONE }, NONE)
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    fn mask(index: u32) -> Self {
        // There are far fewer masks than 2³¹, of 128 bytes each.
        Self(((index >> 16) & 0x7FFF) as u16 | IS_MASK, (index & 0xFFFF) as u16)
    }

    fn columns(self) -> Columns {
        let Self(first, second) = self;
        if first & IS_MASK == 0 {
            Columns::Inline(first, second)
        } else {
            Columns::Mask((usize::from(first & !IS_MASK) << 16) | usize::from(second))
        }
    }
}

/// A set that more than two columns are in.
#[derive(Debug)]
struct Shared {
    mask: ColumnMask,
    /// References to it; 0: free to be used again.
    blocks: u32,
}

/// A column put into one set, or taken out, gave the other.
#[derive(Debug, Clone, Copy)]
struct Step {
    from: ColumnRef,
    column: Column,
    to: ColumnRef,
}

/// The masks of blocks that more than two columns hold, each once.
#[derive(Debug, Default)]
pub(super) struct ColumnSets {
    sets: Vec<Shared>,
    index: HashTable<u32>,
    free: Vec<u32>,
    /// What was done last, since it is done for block after block of a chain.
    last: Option<Step>,
}

impl ColumnSets {
    pub(super) fn mask(&self, columns: ColumnRef) -> ColumnMask {
        match columns.columns() {
            Columns::Inline(a, b) => {
                let mut mask = ColumnMask::default();
                mask.insert(Column(a));
                mask.insert(Column(b));
                mask
            }
            Columns::Mask(index) => self.sets.get(index).map(|set| set.mask).unwrap_or_default(),
        }
    }

    pub(super) fn contains(&self, columns: ColumnRef, column: Column) -> bool {
        match columns.columns() {
            Columns::Inline(a, b) => a == column.0 || b == column.0,
            Columns::Mask(index) => {
                self.sets.get(index).is_some_and(|set| set.mask.contains(column))
            }
        }
    }

    pub(super) fn insert(&mut self, columns: &mut ColumnRef, column: Column) {
        if column.0 >= MAX_COLUMNS || self.contains(*columns, column) {
            return;
        }
        match columns.columns() {
            Columns::Inline(NONE, b) => *columns = ColumnRef(column.0, b),
            Columns::Inline(a, NONE) => *columns = ColumnRef(a, column.0),
            _ => self.step(columns, column, |mask| mask.insert(column)),
        }
    }

    pub(super) fn remove(&mut self, columns: &mut ColumnRef, column: Column) {
        if !self.contains(*columns, column) {
            return;
        }
        match columns.columns() {
            Columns::Inline(a, b) if a == column.0 => *columns = ColumnRef(NONE, b),
            Columns::Inline(a, _) => *columns = ColumnRef(a, NONE),
            Columns::Mask(_) => self.step(columns, column, |mask| mask.remove(column)),
        }
    }

    pub(super) fn remove_all(&mut self, columns: &mut ColumnRef, gone: &ColumnMask) {
        match columns.columns() {
            Columns::Inline(a, b) => {
                let left = |column| if gone.contains(Column(column)) { NONE } else { column };
                *columns = ColumnRef(left(a), left(b));
            }
            Columns::Mask(_) => {
                let mask = self.mask(*columns);
                let left = mask.without(gone);
                if left != mask {
                    let to = self.reference(&left);
                    self.replace(columns, to);
                }
            }
        }
    }

    /// What `change` does to a set is to put the column in or to take it out.
    fn step(
        &mut self,
        columns: &mut ColumnRef,
        column: Column,
        change: impl FnOnce(&mut ColumnMask),
    ) {
        let from = *columns;
        let same = self.last.filter(|step| step.from == from && step.column == column);
        let to = same.map(|step| step.to).unwrap_or_else(|| {
            let mut mask = self.mask(from);
            change(&mut mask);
            self.reference(&mask)
        });
        self.last = Some(Step { from, column, to });
        self.replace(columns, to);
    }

    /// A reference to the columns of this mask that no block has yet.
    fn reference(&mut self, mask: &ColumnMask) -> ColumnRef {
        let mut few = mask.iter();
        let first = few.next().map_or(NONE, |column| column.0);
        let second = few.next().map_or(NONE, |column| column.0);
        if few.next().is_none() {
            return ColumnRef(first, second);
        }
        let Self { sets, index, free, .. } = self;
        let hash = mask.hash();
        let is_same = |at: &u32| sets.get(*at as usize).is_some_and(|set| set.mask == *mask);
        if let Some(at) = index.find(hash, is_same) {
            return ColumnRef::mask(*at);
        }
        let set = Shared { mask: *mask, blocks: 0 };
        let at = match free.pop() {
            Some(at) => {
                if let Some(place) = sets.get_mut(at as usize) {
                    *place = set;
                }
                at
            }
            None => {
                sets.push(set);
                u32::try_from(sets.len().saturating_sub(1)).unwrap_or(u32::MAX)
            }
        };
        let hash_of = |at: &u32| sets.get(*at as usize).map_or(0, |set| set.mask.hash());
        index.insert_unique(hash, at, hash_of);
        ColumnRef::mask(at)
    }

    /// Gives a block another set.
    fn replace(&mut self, columns: &mut ColumnRef, to: ColumnRef) {
        if let Columns::Mask(at) = to.columns()
            && let Some(set) = self.sets.get_mut(at)
        {
            set.blocks = set.blocks.saturating_add(1);
        }
        let from = core::mem::replace(columns, to);
        let Columns::Mask(at) = from.columns() else { return };
        let Some(set) = self.sets.get_mut(at) else { return };
        set.blocks = set.blocks.saturating_sub(1);
        if set.blocks == 0 {
            let (hash, at) = (set.mask.hash(), u32::try_from(at).unwrap_or(u32::MAX));
            if let Ok(entry) = self.index.find_entry(hash, |other| *other == at) {
                entry.remove();
                self.free.push(at);
            }
            // Another set may come to have this reference.
            self.last = self.last.filter(|step| step.from != from && step.to != from);
        }
    }
}

const _: () = assert!(MAX_COLUMNS < NONE && core::mem::size_of::<ColumnRef>() == 4);

#[cfg(test)]
mod tests {
    use super::*;

    fn insert_all(sets: &mut ColumnSets, columns: &mut ColumnRef, all: impl Iterator<Item = u16>) {
        all.for_each(|c| sets.insert(columns, Column(c)));
    }

    crate::tests! {
        fn sets_are_there_once_and_used_again() {
            let mut sets = ColumnSets::default();
            for _ in 0..100 {
                let mut blocks = [ColumnRef::EMPTY; 50];
                for c in 0..10 {
                    blocks.iter_mut().for_each(|block| sets.insert(block, Column(c)));
                }
                assert!(blocks.iter().all(|block| *block == blocks[0]));
                for c in 0..10 {
                    blocks.iter_mut().for_each(|block| sets.remove(block, Column(c)));
                }
                assert!(blocks.iter().all(|block| block.is_empty()));
            }
            // While one block after the other goes from one set to the next, two are in use.
            assert_eq!((sets.sets.len(), sets.index.len(), sets.free.len()), (2, 0, 2));
        }

        fn what_two_columns_are_left_of_is_no_mask() {
            let mut sets = ColumnSets::default();
            let mut block = ColumnRef::EMPTY;
            insert_all(&mut sets, &mut block, 0..5);
            let mut gone = ColumnMask::default();
            [0, 2, 4, 9].into_iter().for_each(|c| gone.insert(Column(c)));
            sets.remove_all(&mut block, &gone);
            assert_eq!(block, ColumnRef(1, 3));
            assert!(sets.index.is_empty());
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    proptest::proptest! {
        #[test]
        fn they_behave_like_sets(ops in proptest::collection::vec((0u8..9, 0usize..4, 0u16..5), 0..300)) {
            let mut sets = ColumnSets::default();
            let mut blocks = [ColumnRef::EMPTY; 4];
            let mut model = [const { std::collections::BTreeSet::new() }; 4];
            for (op, block, column) in ops {
                // Few different columns, so that blocks come to have the same sets; high ones, too.
                let column = column * 255;
                match op {
                    0..5 => {
                        sets.insert(&mut blocks[block], Column(column));
                        model[block].insert(column);
                    }
                    5..8 => {
                        sets.remove(&mut blocks[block], Column(column));
                        model[block].remove(&column);
                    }
                    _ => {
                        let mut gone = ColumnMask::default();
                        gone.insert(Column(column));
                        gone.insert(Column(0));
                        sets.remove_all(&mut blocks[block], &gone);
                        model[block].retain(|c| *c != column && *c != 0);
                    }
                }
                for (columns, model) in blocks.iter().zip(&model) {
                    let seen: Vec<_> = sets.mask(*columns).iter().map(|c| c.0).collect();
                    proptest::prop_assert_eq!(&seen, &model.iter().copied().collect::<Vec<_>>());
                    proptest::prop_assert_eq!(columns.is_empty(), model.is_empty());
                }
                let shared: std::collections::BTreeSet<_> = model.iter().filter(|m| m.len() > 2).collect();
                proptest::prop_assert_eq!(sets.index.len(), shared.len());
            }
        }
    }
}
