//! One walk down a prompt's chain, exact for every endpoint at once.

use super::{ColumnMask, PrefixTable};
use warmroute_shared_state::table_op::Column;

/// Blocks looked at ahead of the walk.
const FETCHED: usize = 32;

/// How many leading blocks of a chain one column holds without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixMatch {
    /// Whose.
    pub column: Column,
    /// How many blocks, at least 1.
    pub blocks: usize,
    /// As far as events told of tokens within these blocks: how many blocks that is, and their tokens.
    pub told: (usize, u32),
}

impl PrefixTable {
    /// For each column of `live` that holds at least the first block: how far it goes. Where a column ends,
    /// the one that `heir` names goes on if it holds the next block: what an endpoint is expected to hold
    /// continues what it is known to hold.
    #[must_use]
    pub fn walk(
        &self,
        chain: &[u64],
        live: &ColumnMask,
        heir: impl Fn(Column) -> Column,
    ) -> Vec<PrefixMatch> {
        let mut matches = Vec::new();
        let mut alive = *live;
        let mut last = None;
        let mut told = (0, 0);
        for (blocks, hash) in chain.iter().enumerate() {
            if blocks.checked_rem(FETCHED) == Some(0) {
                let next = chain.get(blocks..).unwrap_or_default();
                self.fetch(next.get(..FETCHED).unwrap_or(next));
            }
            let entry = self.find(*hash);
            let columns = entry.map(|entry| entry.columns);
            // Mostly the same one or two columns hold the whole chain: then nothing can change here.
            if columns.is_none() || columns != last {
                last = columns;
                let holders = columns.map(|c| self.sets.mask(c)).unwrap_or_default();
                let held = holders.and(&alive);
                if blocks == 0 {
                    alive = held;
                } else if held != alive {
                    let fallen = alive.without(&held);
                    alive = held;
                    for column in fallen.iter() {
                        matches.push(PrefixMatch { column, blocks, told });
                        let heir = heir(column);
                        if heir != Column::NONE && holders.contains(heir) {
                            alive.insert(heir);
                        }
                    }
                }
                if alive.is_empty() {
                    return matches;
                }
            }
            if let Some(tokens) = entry.map(|entry| entry.tokens).filter(|tokens| *tokens > 0) {
                told = (blocks.saturating_add(1), tokens);
            }
        }
        if !chain.is_empty() {
            let blocks = chain.len();
            matches.extend(alive.iter().map(|column| PrefixMatch { column, blocks, told }));
        }
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmroute_shared_state::block::Block;

    fn mask(columns: &[u16]) -> ColumnMask {
        let mut mask = ColumnMask::default();
        columns.iter().for_each(|c| mask.insert(Column(*c)));
        mask
    }

    fn nobody(_: Column) -> Column {
        Column::NONE
    }

    fn walk(table: &PrefixTable, chain: &[u64], live: &[u16]) -> Vec<(u16, usize)> {
        let matches = table.walk(chain, &mask(live), nobody);
        let mut all: Vec<_> = matches.iter().map(|m| (m.column.0, m.blocks)).collect();
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

        fn what_is_expected_continues_what_is_held() {
            let chain = [11, 22, 33, 44, 55];
            let mut table = PrefixTable::default();
            let (held, expected, other) = (Column(0), Column(1), Column(2));
            chain[..2].iter().for_each(|hash| table.insert(held, 0, *hash));
            chain[2..4].iter().for_each(|hash| table.insert(expected, 0, *hash));
            chain[..3].iter().for_each(|hash| table.insert(other, 0, *hash));
            let heir = |column| if column == held { expected } else { Column::NONE };
            let matches = table.walk(&chain, &mask(&[0, 1, 2]), heir);
            let mut seen: Vec<_> = matches.iter().map(|m| (m.column, m.blocks)).collect();
            seen.sort_unstable();
            assert_eq!(seen, [(held, 2), (expected, 4), (other, 3)]);
        }

        fn tokens_are_those_up_to_the_last_block_that_an_event_told() {
            let chain = [11, 22, 33];
            let mut table = PrefixTable::default();
            for (hash, tokens) in [(11, 30), (22, 61)] {
                table.store(Column(0), Block { hash, tokens });
            }
            chain.iter().for_each(|hash| table.insert(Column(1), 0, *hash));
            table.store(Column(2), Block { hash: 11, tokens: 30 });
            let mut told: Vec<_> = table
                .walk(&chain, &mask(&[0, 1, 2]), nobody)
                .iter()
                .map(|m| (m.column.0, m.blocks, m.told))
                .collect();
            told.sort_unstable();
            assert_eq!(told, [(0, 2, (2, 61)), (1, 3, (2, 61)), (2, 1, (1, 30))]);
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
