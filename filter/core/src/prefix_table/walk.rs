//! One walk down a prompt's chain, exact for every endpoint at once.

use super::{ColumnMask, PrefixTable};
use warmroute_shared_state::frame::Column;

/// How many leading blocks of a chain one column holds without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixMatch {
    /// Whose.
    pub column: Column,
    /// How many blocks, at least 1.
    pub blocks: usize,
}

impl PrefixTable {
    /// For each column of `live` that holds at least the first block: how far it goes.
    #[must_use]
    pub fn walk(&self, chain: &[u64], live: &ColumnMask) -> Vec<PrefixMatch> {
        let mut matches = Vec::new();
        let mut alive = *live;
        let mut last = None;
        for (blocks, hash) in chain.iter().enumerate() {
            let columns = self.columns_of(*hash);
            // Mostly the same one or two columns hold the whole chain: then nothing can change here.
            if columns.is_some() && columns == last {
                continue;
            }
            last = columns;
            let held = columns.map(|c| self.sets.mask(c).and(&alive)).unwrap_or_default();
            if held != alive {
                if blocks > 0 {
                    let fallen = alive.without(&held);
                    matches.extend(fallen.iter().map(|column| PrefixMatch { column, blocks }));
                }
                alive = held;
            }
            if alive.is_empty() {
                return matches;
            }
        }
        if !chain.is_empty() {
            let blocks = chain.len();
            matches.extend(alive.iter().map(|column| PrefixMatch { column, blocks }));
        }
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(columns: &[u16]) -> ColumnMask {
        let mut mask = ColumnMask::default();
        columns.iter().for_each(|c| mask.insert(Column(*c)));
        mask
    }

    fn walk(table: &PrefixTable, chain: &[u64], live: &[u16]) -> Vec<(u16, usize)> {
        let mut all: Vec<_> =
            table.walk(chain, &mask(live)).iter().map(|m| (m.column.0, m.blocks)).collect();
        all.sort_unstable();
        all
    }

    crate::tests! {
        fn each_column_goes_as_far_as_it_holds_without_a_gap() {
            let chain = [11, 22, 33, 44];
            let mut table = PrefixTable::default();
            for (column, held) in [(0, &chain[..]), (1, &chain[..2]), (2, &chain[1..]), (3, &[11, 33][..])] {
                held.iter().for_each(|hash| table.insert(Column(column), 0, *hash));
            }
            assert_eq!(walk(&table, &chain, &[0, 1, 2, 3]), [(0, 4), (1, 2), (3, 1)]);
        }

        fn columns_that_are_not_live_do_not_match() {
            let mut table = PrefixTable::default();
            table.insert(Column(5), 0, 11);
            assert_eq!(walk(&table, &[11], &[4]), []);
            assert_eq!(walk(&table, &[11], &[5]), [(5, 1)]);
            assert_eq!(walk(&table, &[], &[5]), []);
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    proptest::proptest! {
        #[test]
        fn the_walk_equals_counting_each_column_alone(
            held in proptest::collection::vec(proptest::collection::vec(proptest::bool::ANY, 6), 5),
        ) {
            let chain: Vec<u64> = (1..=6u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
            let mut table = PrefixTable::default();
            let mut expected = vec![];
            for (column, held) in held.iter().enumerate() {
                let column = column as u16;
                for (hash, held) in chain.iter().zip(held) {
                    if *held {
                        table.insert(Column(column), 0, *hash);
                    }
                }
                let blocks = held.iter().take_while(|held| **held).count();
                if blocks > 0 {
                    expected.push((column, blocks));
                }
            }
            proptest::prop_assert_eq!(walk(&table, &chain, &[0, 1, 2, 3, 4]), expected);
        }
    }
}
