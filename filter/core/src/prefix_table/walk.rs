//! One walk down a prompt's chain, exact for every endpoint at once.

use super::{ColumnMask, ColumnRef, Entry, Place, PrefixTable};
use warmroute_shared_state::table_op::Column;

/// Blocks that are looked up in one go where a chain's blocks are not neighbours.
const AHEAD: usize = 32;

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
        let mut trail = Trail::default();
        let mut blocks = 0usize;
        while let Some((hash, rest)) = chain.get(blocks..).and_then(<[u64]>::split_first) {
            let entry = trail.next(self, *hash, blocks, rest);
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
            blocks = blocks.saturating_add(1);
            let Some(entry) = entry else { continue };
            if entry.tokens > 0 {
                told = (blocks, entry.tokens);
            }
            for entry in trail.run(self, entry.columns, rest) {
                blocks = blocks.saturating_add(1);
                if entry.tokens > 0 {
                    told = (blocks, entry.tokens);
                }
            }
        }
        if !chain.is_empty() {
            let blocks = chain.len();
            matches.extend(alive.iter().map(|column| PrefixMatch { column, blocks, told }));
        }
        matches
    }
}

/// Finds the entries of a chain. The next block's is mostly the one behind this block's.
#[derive(Default)]
struct Trail {
    next: Option<Place>,
    /// The last block was not where it was looked for first.
    missed: bool,
    /// Places of the blocks from `ahead_from` on. Each lies anywhere: looked up one after the other, each would be waited
    /// for.
    ahead: [Option<Place>; AHEAD],
    ahead_from: usize,
    ahead_len: usize,
}

impl Trail {
    /// The entry of block number `block`, `hash`; `rest` are the blocks behind it.
    fn next<'t>(
        &mut self,
        table: &'t PrefixTable,
        hash: u64,
        block: usize,
        rest: &[u64],
    ) -> Option<&'t Entry> {
        let guess = self.next.and_then(|place| table.entries.get(place));
        if let Some(entry) = guess.filter(|entry| entry.is_of(hash)) {
            self.next = self.next.map(|place| place.plus(1));
            self.missed = false;
            return Some(entry);
        }
        let place = self.place(table, hash, block, rest);
        self.missed = true;
        self.next = place.map(|place| place.plus(1));
        table.entries.get(place?)
    }

    fn place(
        &mut self,
        table: &PrefixTable,
        hash: u64,
        block: usize,
        rest: &[u64],
    ) -> Option<Place> {
        if !self.missed {
            return table.place(hash);
        }
        if block.wrapping_sub(self.ahead_from) >= self.ahead_len {
            self.ahead_from = block;
            self.ahead_len = rest.len().saturating_add(1).min(AHEAD);
            let hashes = core::iter::once(&hash).chain(rest);
            for (place, hash) in self.ahead.iter_mut().zip(hashes) {
                *place = table.place(*hash);
            }
        }
        self.ahead.get(block.wrapping_sub(self.ahead_from)).copied().flatten()
    }

    /// The entries of the blocks that follow, as far as they are neighbours that the same columns hold.
    fn run<'t>(&mut self, table: &'t PrefixTable, columns: ColumnRef, rest: &[u64]) -> &'t [Entry] {
        let Some(place) = self.next else { return &[] };
        let behind = table.entries.from(place);
        let is_next =
            |(entry, hash): &(&Entry, &u64)| entry.columns == columns && entry.hash() == **hash;
        let run = behind.iter().zip(rest).take_while(is_next).count();
        self.next = Some(place.plus(run));
        behind.get(..run).unwrap_or_default()
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

        /// Long ones: blocks that are told in their order, in any order, or partly so; others before them that went.
        #[test]
        fn the_walk_finds_blocks_wherever_they_lie(
            told in proptest::prelude::Strategy::prop_shuffle(
                proptest::prelude::Just((0..300usize).collect::<Vec<_>>())
            ),
            in_order in 0usize..300,
            lengths in proptest::collection::vec(0usize..310, 4),
            gone in 0u64..1_500,
        ) {
            let hash = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let chain: Vec<u64> = (1..=300).map(hash).collect();
            let mut table = PrefixTable::default();
            (0..gone).for_each(|n| table.insert(Column(9), 0, hash(1_000 + n)));
            (0..gone).filter(|n| n % 3 > 0).for_each(|n| table.remove(Column(9), hash(1_000 + n)));
            let mut order: Vec<usize> = (0..in_order).collect();
            order.extend(told.into_iter().filter(|block| *block >= in_order));
            for block in order {
                for (column, _) in (0u16..).zip(&lengths).filter(|(_, length)| block < **length) {
                    table.insert(Column(column), 0, chain[block]);
                }
            }
            let held = lengths.iter().map(|length| *length.min(&300));
            let expected: Vec<_> = (0u16..).zip(held).filter(|(_, blocks)| *blocks > 0).collect();
            proptest::prop_assert_eq!(walk(&table, &chain, &[0, 1, 2, 3]), expected);
        }
    }
}
