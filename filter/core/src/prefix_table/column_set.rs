//! Sets of columns, small for the common case: most blocks are held by one or two endpoints.

use warmroute_shared_state::table_op::Column;

/// Columns that can exist at once: two for each of 256 endpoints, and as many again for churn.
pub const MAX_COLUMNS: u16 = 1024;

const WORDS: usize = MAX_COLUMNS as usize / 64;

/// A set of columns as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ColumnMask([u64; WORDS]);

impl ColumnMask {
    fn position(column: Column) -> (usize, u64) {
        (usize::from(column.0 / 64), 1u64.wrapping_shl(u32::from(column.0 % 64)))
    }

    /// Adds a column. One beyond [`MAX_COLUMNS`] is ignored.
    pub fn insert(&mut self, column: Column) {
        let (word, bit) = Self::position(column);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    /// Takes a column out.
    pub fn remove(&mut self, column: Column) {
        let (word, bit) = Self::position(column);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
    }

    /// Is the column in the set?
    #[must_use]
    pub fn contains(&self, column: Column) -> bool {
        let (word, bit) = Self::position(column);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Is the set empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// How many columns are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Columns in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut both = *self;
        for (word, other) in both.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
        both
    }

    /// Columns in either set.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let mut either = *self;
        for (word, other) in either.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
        either
    }

    /// Columns in this set and not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = *self;
        for (word, other) in rest.0.iter_mut().zip(&other.0) {
            *word &= !other;
        }
        rest
    }

    /// The columns, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Column> + '_ {
        (0u16..).zip(&self.0).flat_map(|(index, word)| {
            let mut rest = *word;
            core::iter::from_fn(move || {
                let bit = rest.checked_ilog2().map(|_| rest.trailing_zeros())?;
                rest &= rest.wrapping_sub(1);
                Some(Column(index.wrapping_mul(64).wrapping_add(u16::try_from(bit).unwrap_or(0))))
            })
        })
    }
}

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

    fn mask(index: usize) -> Self {
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

/// The masks of blocks that more than two columns hold.
#[derive(Debug, Default)]
pub(super) struct ColumnSets {
    masks: Vec<ColumnMask>,
    free: Vec<u32>,
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
            Columns::Mask(index) => self.masks.get(index).copied().unwrap_or_default(),
        }
    }

    pub(super) fn contains(&self, columns: ColumnRef, column: Column) -> bool {
        match columns.columns() {
            Columns::Inline(a, b) => a == column.0 || b == column.0,
            Columns::Mask(index) => self.masks.get(index).is_some_and(|mask| mask.contains(column)),
        }
    }

    pub(super) fn insert(&mut self, columns: &mut ColumnRef, column: Column) {
        if column.0 >= MAX_COLUMNS {
            return;
        }
        match columns.columns() {
            Columns::Inline(a, b) if a == column.0 || b == column.0 => {}
            Columns::Inline(NONE, b) => *columns = ColumnRef(column.0, b),
            Columns::Inline(a, NONE) => *columns = ColumnRef(a, column.0),
            Columns::Inline(..) => {
                let mut mask = self.mask(*columns);
                mask.insert(column);
                *columns = self.store(mask);
            }
            Columns::Mask(index) => {
                if let Some(mask) = self.masks.get_mut(index) {
                    mask.insert(column);
                }
            }
        }
    }

    pub(super) fn remove(&mut self, columns: &mut ColumnRef, column: Column) {
        let mut one = ColumnMask::default();
        one.insert(column);
        self.remove_all(columns, &one);
    }

    pub(super) fn remove_all(&mut self, columns: &mut ColumnRef, gone: &ColumnMask) {
        match columns.columns() {
            Columns::Inline(a, b) => {
                let left = |column| if gone.contains(Column(column)) { NONE } else { column };
                *columns = ColumnRef(left(a), left(b));
            }
            Columns::Mask(index) => {
                let Some(mask) = self.masks.get_mut(index) else { return };
                *mask = mask.without(gone);
                // Kept as a mask down to nothing: a block shared this widely tends to be again.
                if mask.is_empty() {
                    self.free.push(u32::try_from(index).unwrap_or(u32::MAX));
                    *columns = ColumnRef::EMPTY;
                }
            }
        }
    }

    fn store(&mut self, mask: ColumnMask) -> ColumnRef {
        if let Some(index) = self.free.pop()
            && let Some(place) = self.masks.get_mut(index as usize)
        {
            *place = mask;
            return ColumnRef::mask(index as usize);
        }
        self.masks.push(mask);
        ColumnRef::mask(self.masks.len().saturating_sub(1))
    }
}

const _: () = assert!(MAX_COLUMNS < NONE && core::mem::size_of::<ColumnRef>() == 4);

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn a_mask_lists_what_was_put_in() {
            let mut mask = ColumnMask::default();
            for c in [0, 63, 64, 300, 1023, 1024, 60_000] {
                mask.insert(Column(c));
            }
            assert_eq!(mask.iter().map(|c| c.0).collect::<Vec<_>>(), [0, 63, 64, 300, 1023]);
            mask.remove(Column(64));
            assert!(!mask.contains(Column(64)) && mask.contains(Column(63)));
            assert_eq!(mask.len(), 4);
        }

        fn masks_are_used_again() {
            let mut sets = ColumnSets::default();
            for _ in 0..100 {
                let mut columns = ColumnRef::one(Column(0));
                for c in 1..10 {
                    sets.insert(&mut columns, Column(c));
                }
                for c in 0..10 {
                    sets.remove(&mut columns, Column(c));
                }
                assert!(columns.is_empty());
            }
            assert_eq!(sets.masks.len(), 1);
        }
    }
}
