//! A set of columns as bits.

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

    /// Sets that are the same have the same.
    pub(super) fn hash(&self) -> u64 {
        // Which columns there are is the agent's choice, nobody else's: it need not bear malice.
        const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
        let mixed = |all: u64, word: &u64| (all.rotate_left(23) ^ word).wrapping_mul(ODD);
        let all = self.0.iter().fold(0, mixed);
        all ^ (all >> 32)
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
    }
}
