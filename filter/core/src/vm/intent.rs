//! Intents: the picks of the last moments, before the delta frames carry them.
//!
//! Siblings (requests with one new prompt) arrive on several workers within a millisecond. Each pick of a
//! chain that is new somewhere is written to one small shared value, by compare-and-swap: who loses the
//! race reads again and sees the winner. Only the hashes at positions 1, 2, 4, 8 … and the last are
//! kept: enough to know at least half of any shared prefix, and all of an equal one.

use super::{Cas, Keys, SharedStore};
use std::collections::VecDeque;
use warmroute_shared_state::table_op::Column;
use warmroute_shared_state::wire::{Reader, WireError, Writer};

/// How long an intent counts: frames carry the pick within a few milliseconds.
const INTENT_MS: u64 = 1000;

/// Intents kept; with 20 positions at most each this stays below 12 KiB.
const INTENTS_KEPT: usize = 40;

/// One recent pick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Intent {
    /// Where it went. A column and no endpoint: what the endpoint held in a former life does not count.
    pub(super) column: Column,
    /// When, by Envoy's clock, in ms.
    pub(super) at_ms: u64,
    /// Hashes of the chain after 1, 2, 4, 8 … blocks, and after the last.
    marks: Vec<(u32, u64)>,
}

impl Intent {
    /// The intent to send a prompt with this chain to the endpoint of `column`.
    #[must_use]
    pub(super) fn new(column: Column, at_ms: u64, chain: &[u64]) -> Self {
        let mut blocks = 1usize;
        let mut marks = Vec::new();
        while blocks < chain.len() {
            marks.push(blocks);
            blocks = blocks.saturating_mul(2);
        }
        marks.push(chain.len());
        let mark = |blocks: usize| {
            let hash = chain.get(blocks.checked_sub(1)?)?;
            Some((u32::try_from(blocks).ok()?, *hash))
        };
        Self { column, at_ms, marks: marks.into_iter().filter_map(mark).collect() }
    }

    /// At least how many leading blocks of `chain` the intent's prompt shares.
    #[must_use]
    pub(super) fn shared_blocks(&self, chain: &[u64]) -> usize {
        let same = |(blocks, hash): &&(u32, u64)| {
            let at = (*blocks as usize).checked_sub(1);
            at.and_then(|at| chain.get(at)).is_some_and(|own| own == hash)
        };
        self.marks.iter().rev().find(same).map_or(0, |(blocks, _)| *blocks as usize)
    }
}

/// The intents that were there at one read.
#[derive(Debug, Default)]
pub(super) struct IntentRing {
    intents: VecDeque<Intent>,
    cas: Cas,
}

impl IntentRing {
    /// Reads the intents that still count.
    #[must_use]
    pub(super) fn read(store: &dyn SharedStore, keys: &Keys, now_ms: u64) -> Self {
        let (bytes, cas) = store.get(&keys.intents).unwrap_or_default();
        let mut intents = decode(&bytes).unwrap_or_default();
        intents.retain(|i| {
            now_ms.saturating_sub(i.at_ms) < INTENT_MS
                && i.at_ms <= now_ms.saturating_add(INTENT_MS)
        });
        Self { intents, cas }
    }

    /// The intents, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Intent> {
        self.intents.iter()
    }

    /// Adds an intent. `false`: somebody else was faster; read again and think again.
    #[must_use]
    pub(super) fn add(mut self, store: &dyn SharedStore, keys: &Keys, intent: Intent) -> bool {
        if self.intents.len() >= INTENTS_KEPT {
            self.intents.pop_front();
        }
        self.intents.push_back(intent);
        self.write(store, keys)
    }

    /// The prompt with this chain went to the endpoint of column `to` after all, or to nobody. `false`: read again.
    #[must_use]
    pub(super) fn redirect(
        mut self,
        store: &dyn SharedStore,
        keys: &Keys,
        from: Column,
        to: Option<Column>,
        chain: &[u64],
    ) -> bool {
        let meant = |i: &Intent| i.column == from && i.shared_blocks(chain) == chain.len();
        match to {
            Some(to) => {
                self.intents.iter_mut().filter(|i| meant(i)).for_each(|i| i.column = to);
            }
            None => self.intents.retain(|i| !meant(i)),
        }
        self.write(store, keys)
    }

    fn write(&self, store: &dyn SharedStore, keys: &Keys) -> bool {
        store.set(&keys.intents, &encode(&self.intents), Some(self.cas)).is_ok()
    }
}

fn encode(intents: &VecDeque<Intent>) -> Vec<u8> {
    let mut w = Writer::new();
    for intent in intents {
        w.u16(intent.column.0);
        w.u64(intent.at_ms);
        w.u8(u8::try_from(intent.marks.len()).unwrap_or(u8::MAX));
        for (blocks, hash) in intent.marks.iter().take(usize::from(u8::MAX)) {
            w.u32(*blocks);
            w.u64(*hash);
        }
    }
    w.into_bytes()
}

fn decode(bytes: &[u8]) -> Result<VecDeque<Intent>, WireError> {
    let mut r = Reader::new(bytes);
    let mut intents = VecDeque::new();
    while r.remaining() > 0 {
        let (column, at_ms, count) = (Column(r.u16()?), r.u64()?, r.u8()?);
        let mut marks = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            marks.push((r.u32()?, r.u64()?));
        }
        intents.push_back(Intent { column, at_ms, marks });
    }
    Ok(intents)
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryStore, create_keys};
    use super::*;

    const A: Column = Column(1);
    const B: Column = Column(2);

    fn store() -> (MemoryStore, Keys) {
        let (store, keys) = (MemoryStore::default(), Keys::new(8));
        create_keys(&store, &keys);
        (store, keys)
    }

    crate::tests! {
        fn an_equal_prompt_is_recognised_whole_and_a_shared_prefix_by_half_at_least() {
            let chain: Vec<u64> = (100..200).collect();
            let intent = Intent::new(A, 0, &chain);
            assert_eq!(intent.shared_blocks(&chain), 100);
            for shared in 1..100 {
                let mut other = chain.clone();
                other[shared..].fill(0);
                let known = intent.shared_blocks(&other);
                assert!(known <= shared && known * 2 > shared, "{shared}: {known}");
            }
            assert_eq!(intent.shared_blocks(&[7]), 0);
            assert_eq!(intent.shared_blocks(&[]), 0);
        }

        fn an_empty_chain_shares_nothing() {
            let intent = Intent::new(A, 0, &[]);
            assert_eq!(intent.shared_blocks(&[]), 0);
        }

        fn the_slower_of_two_writers_is_told() {
            let (store, keys) = store();
            let first = IntentRing::read(&store, &keys, 10);
            let second = IntentRing::read(&store, &keys, 10);
            assert!(first.add(&store, &keys, Intent::new(A, 10, &[1])));
            assert!(!second.add(&store, &keys, Intent::new(A, 10, &[1])));
            assert_eq!(IntentRing::read(&store, &keys, 11).iter().count(), 1);
        }

        fn a_redirected_intent_counts_for_whoever_served() {
            let (store, keys) = store();
            for chain in [[1, 2], [1, 3]] {
                assert!(IntentRing::read(&store, &keys, 0).add(&store, &keys, Intent::new(A, 0, &chain)));
            }
            assert!(IntentRing::read(&store, &keys, 0).redirect(&store, &keys, A, Some(B), &[1, 3]));
            let columns: Vec<_> = IntentRing::read(&store, &keys, 0).iter().map(|i| i.column).collect();
            assert_eq!(columns, [A, B]);
            assert!(IntentRing::read(&store, &keys, 0).redirect(&store, &keys, A, None, &[1, 2]));
            assert_eq!(IntentRing::read(&store, &keys, 0).iter().count(), 1);
        }

        fn intents_run_out_and_are_bounded() {
            let (store, keys) = store();
            let chain: Vec<u64> = (0..1_000_000).collect();
            for n in 0..100 {
                assert!(IntentRing::read(&store, &keys, n).add(&store, &keys, Intent::new(A, n, &chain)));
            }
            assert!(store.get(&keys.intents).unwrap().0.len() < 12 * 1024);
            assert_eq!(IntentRing::read(&store, &keys, 100).iter().count(), INTENTS_KEPT);
            assert_eq!(IntentRing::read(&store, &keys, 5000).iter().count(), 0);
        }
    }
}
