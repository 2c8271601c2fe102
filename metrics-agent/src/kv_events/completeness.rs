//! Whether enough is known of what an engine held before it was heard of.
//!
//! An agent that starts late, and finds that the publisher no longer has its first batches, hears of blocks
//! that hang on others it never heard of: orphans, of which nothing can be told. Where they are many, what is
//! known says little of where a prompt would be found, and the filter's own memory of its picks
//! says more.

use std::collections::VecDeque;

/// How many of the last blocks count.
const WINDOW: u64 = 200;

/// Follows the share of orphans among the last [`WINDOW`] stored blocks. A batch counts whole.
#[derive(Debug, Default)]
pub struct Completeness {
    /// Blocks of a batch, and orphans among them; none is empty.
    batches: VecDeque<(u64, u64)>,
    blocks: u64,
    orphans: u64,
    incomplete: bool,
}

impl Completeness {
    /// A batch stored so many blocks in their places, and so many under unknown ones.
    pub fn stored(&mut self, placed: u64, orphans: u64) {
        let blocks = placed.saturating_add(orphans);
        if blocks == 0 {
            return;
        }
        self.batches.push_back((blocks, orphans));
        self.blocks = self.blocks.saturating_add(blocks);
        self.orphans = self.orphans.saturating_add(orphans);
        while let Some((blocks, orphans)) = self.batches.front().copied()
            && self.blocks.saturating_sub(blocks) >= WINDOW
        {
            self.batches.pop_front();
            self.blocks = self.blocks.saturating_sub(blocks);
            self.orphans = self.orphans.saturating_sub(orphans);
        }
        // Few blocks are no sign: the first of them may hang on the same unknown one.
        let of = self.blocks.max(WINDOW);
        self.incomplete = if self.incomplete {
            self.orphans.saturating_mul(10) >= of
        } else {
            self.orphans.saturating_mul(4) > of
        };
    }

    /// The engine holds nothing of before any more.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether more than a quarter were orphans, and since then never less than a tenth.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.incomplete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(batches: &[(u64, u64)]) -> Completeness {
        let mut completeness = Completeness::default();
        for (placed, orphans) in batches {
            completeness.stored(*placed, *orphans);
        }
        completeness
    }

    #[test]
    fn more_than_a_quarter_is_too_much_and_less_than_a_tenth_is_well_again() {
        for (batches, incomplete) in [
            (vec![], false),
            (vec![(0, 0)], false),
            (vec![(0, 50)], false),
            (vec![(0, 51)], true),
            (vec![(150, 50)], false),
            (vec![(149, 51)], true),
            (vec![(1000, 333)], false),
            (vec![(1000, 334)], true),
            // Old ones go as new ones come; a batch goes only whole.
            (vec![(0, 60), (199, 0)], true),
            (vec![(0, 60), (200, 0)], false),
            (vec![(0, 60), (180, 20)], true),
            (vec![(0, 60), (181, 19)], false),
            (vec![(0, 60), (181, 19), (170, 30)], false),
            (vec![(0, 9000), (199, 0), (1, 0)], false),
        ] {
            assert_eq!(after(&batches).is_incomplete(), incomplete, "{batches:?}");
        }
    }

    #[test]
    fn a_share_between_the_two_changes_nothing() {
        let mut completeness = after(&[(0, 60)]);
        for _ in 0..1000 {
            completeness.stored(4, 1);
            assert!(completeness.is_incomplete());
        }
        let mut completeness = after(&[(60, 0)]);
        for _ in 0..1000 {
            completeness.stored(4, 1);
            assert!(!completeness.is_incomplete());
        }
        assert!(completeness.batches.len() <= 41);
    }

    #[test]
    fn a_fresh_engine_is_complete() {
        let mut completeness = after(&[(0, 60)]);
        completeness.reset();
        assert!(!completeness.is_incomplete());
        completeness.stored(0, 40);
        assert!(!completeness.is_incomplete());
    }
}
