//! What this VM told the applier a moment ago: a prompt that comes again at once need not be told again.
//!
//! The order of use decides what an endpoint without events is believed to drop, so each use is told. But many
//! requests with one prompt (siblings, retries, parallel samples) would tell it thousands of blocks each, to move them
//! to where they are already.

use std::collections::VecDeque;
use warmroute_shared_state::table_op::Column;

/// How long a use counts as told. Engines drop what was not used for much longer.
const FRESH_MS: u64 = 1000;

/// Chains kept.
const KEPT: usize = 64;

/// The newest chains that were told.
#[derive(Debug, Default)]
pub(super) struct Told {
    chains: VecDeque<Chain>,
}

#[derive(Debug, Clone, Copy)]
struct Chain {
    column: Column,
    blocks: usize,
    last: u64,
    at_ms: u64,
}

impl Told {
    /// All of `chain` was told of `column`.
    pub(super) fn note(&mut self, column: Column, chain: &[u64], now_ms: u64) {
        let Some(last) = chain.last() else { return };
        if self.chains.len() >= KEPT {
            self.chains.pop_front();
        }
        self.chains.push_back(Chain { column, blocks: chain.len(), last: *last, at_ms: now_ms });
    }

    /// How many leading blocks of `chain` were told of `column` just now.
    pub(super) fn blocks(&self, column: Column, chain: &[u64], now_ms: u64) -> usize {
        let same = |told: &&Chain| {
            told.column == column
                && now_ms.abs_diff(told.at_ms) < FRESH_MS
                && told.blocks.checked_sub(1).and_then(|at| chain.get(at)) == Some(&told.last)
        };
        self.chains.iter().filter(same).map(|told| told.blocks).max().unwrap_or(0)
    }

    /// Something that was told of `column` is true no longer.
    pub(super) fn forget(&mut self, column: Column) {
        self.chains.retain(|told| told.column != column);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Column = Column(1);
    const B: Column = Column(2);

    crate::tests! {
        fn the_longest_chain_that_was_told_of_the_column_counts_for_a_second() {
            let mut told = Told::default();
            told.note(A, &[1, 2], 5_000);
            told.note(A, &[1, 2, 3], 5_000);
            told.note(B, &[1, 2, 3, 4], 5_000);
            told.note(A, &[], 5_000);
            for (chain, now_ms, blocks) in [
                (&[1, 2, 3, 4][..], 5_999, 3),
                (&[1, 2, 9], 5_000, 2),
                (&[1, 2, 3], 6_000, 0),
                (&[7, 8, 9], 5_000, 0),
                (&[1], 5_000, 0),
                (&[], 5_000, 0),
            ] {
                assert_eq!(told.blocks(A, chain, now_ms), blocks, "{chain:?} at {now_ms}");
            }
            told.forget(A);
            assert_eq!((told.blocks(A, &[1, 2], 5_000), told.blocks(B, &[1, 2, 3, 4], 5_000)), (0, 4));
        }

        fn what_is_kept_is_bounded() {
            let mut told = Told::default();
            (0..1_000).for_each(|n| told.note(A, &[n], 0));
            assert_eq!((told.chains.len(), told.blocks(A, &[0], 0), told.blocks(A, &[999], 0)), (KEPT, 0, 1));
        }
    }
}
