//! What our picks will make precise endpoints hold, until events tell it: so that siblings in a burst
//! land together. Only the applier keeps this.
//!
//! A pick enters the blocks that its endpoint lacks into the endpoint's *expected* column. Each stays until an event
//! tells of it, or until shortly after the answer began: the prompt is computed then, and its events are on their
//! way. Of each model it is counted how often they came; if seldom, its rendered bytes are not what the engine
//! computes.

use crate::prefix_table::PrefixTable;
use core::hash::{BuildHasherDefault, Hasher};
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use warmroute_shared_state::table_op::{Column, Columns};

/// How long after the answer began an expectation stands: events come within some 10 ms; a busy agent or a
/// replay may take longer.
const AFTER_ANSWER_MS: u64 = 2000;

/// How long one stands of which no answer came: a full queue may take its time.
const UNANSWERED_MS: u64 = 30_000;

/// Block hashes kept: the oldest expectations go early if there are more.
const MAX_HASHES: usize = 400_000;

/// So many answered expectations of a model are judged together.
const JUDGED_TOGETHER: u32 = 200;

/// An expectation of fewer blocks says nothing: its tail may fill no block of the engine.
const MIN_BLOCKS: usize = 2;

#[derive(Debug)]
struct Expectation {
    columns: Columns,
    stream: u64,
    chain: Vec<u64>,
    answered: bool,
}

/// How often expectations of one stream came true, since it was last judged.
#[derive(Debug, Default, Clone, Copy)]
struct Score {
    confirmed: u32,
    judged: u32,
}

/// What happened to expectations.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// To take out of these columns.
    pub(super) evict: Vec<(Column, Vec<u64>)>,
    /// Streams whose models are to be distrusted.
    pub(super) distrust: Vec<u64>,
    /// Expectations that events confirmed, and that they did not.
    pub(super) confirmed: u64,
    /// See `confirmed`.
    pub(super) unconfirmed: u64,
}

/// Chain hashes are well mixed already.
#[derive(Debug, Default, Clone, Copy)]
struct MixedHasher(u64);

impl Hasher for MixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxhash_rust::xxh3::xxh3_64_with_seed(bytes, self.0);
    }
    fn write_u16(&mut self, column: u16) {
        self.0 ^= u64::from(column).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 ^= hash;
    }
}

/// By column and chain hash.
type ByBlock<T> = HashMap<(Column, u64), T, BuildHasherDefault<MixedHasher>>;

/// All expectations of an Envoy.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    /// By deadline, then by age.
    due: BTreeSet<(u64, u64)>,
    by_number: BTreeMap<u64, (u64, Expectation)>,
    /// The newest of a column with this last hash.
    by_last: ByBlock<u64>,
    /// How many expectations a block is part of.
    uses: ByBlock<u32>,
    scores: BTreeMap<u64, Score>,
    next: u64,
    hashes: usize,
}

impl Expectations {
    /// What a former applier left behind: it stands a moment longer.
    pub(super) fn adopt(&mut self, columns: Columns, chain: &[u64], now_ms: u64) {
        self.expect(columns, 0, chain, now_ms);
        if let Some(last) = chain.last() {
            self.set_deadline(
                columns.expected,
                *last,
                now_ms.saturating_add(AFTER_ANSWER_MS),
                false,
            );
        }
    }

    /// A prompt went to the endpoint of these columns, which lacks these blocks of it. Returns those that
    /// nobody expected yet.
    pub(super) fn expect(
        &mut self,
        columns: Columns,
        stream: u64,
        chain: &[u64],
        now_ms: u64,
    ) -> Vec<u64> {
        let Some(last) = chain.last() else { return Vec::new() };
        let column = columns.expected;
        let deadline = now_ms.saturating_add(UNANSWERED_MS);
        // Chains with one last hash are ends of one chain: a sibling only renews it, unless it lacks more.
        if let Some(number) = self.by_last.get(&(column, *last)).copied() {
            let known = self.by_number.get(&number).map_or(0, |(_, known)| known.chain.len());
            if known >= chain.len() {
                self.renew(number, deadline, false);
                return Vec::new();
            }
            let before = self.take(number);
            let news = self.add(columns, stream, chain, deadline);
            if let Some(before) = before {
                self.release(&before);
            }
            return news;
        }
        self.add(columns, stream, chain, deadline)
    }

    fn add(&mut self, columns: Columns, stream: u64, chain: &[u64], deadline: u64) -> Vec<u64> {
        let column = columns.expected;
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let mut news = Vec::new();
        for hash in chain {
            let uses = self.uses.entry((column, *hash)).or_default();
            if *uses == 0 {
                news.push(*hash);
            }
            *uses = uses.saturating_add(1);
        }
        self.hashes = self.hashes.saturating_add(chain.len());
        self.due.insert((deadline, number));
        let expectation = Expectation { columns, stream, chain: chain.to_vec(), answered: false };
        self.by_number.insert(number, (deadline, expectation));
        if let Some(last) = chain.last() {
            self.by_last.insert((column, *last), number);
        }
        news
    }

    /// The request whose chain ends like this is answered, or over without an answer.
    pub(super) fn settle(&mut self, column: Column, last: u64, answered: bool, now_ms: u64) {
        self.set_deadline(column, last, now_ms.saturating_add(AFTER_ANSWER_MS), answered);
    }

    fn set_deadline(&mut self, column: Column, last: u64, deadline: u64, answered: bool) {
        if let Some(number) = self.by_last.get(&(column, last)).copied() {
            self.renew(number, deadline, answered);
        }
    }

    fn renew(&mut self, number: u64, deadline: u64, answered: bool) {
        let Some((due, expectation)) = self.by_number.get_mut(&number) else { return };
        self.due.remove(&(*due, number));
        *due = deadline;
        expectation.answered |= answered;
        self.due.insert((deadline, number));
    }

    /// An event told that the endpoint holds this block. Whether it was expected: then it is to be taken out of
    /// the column.
    pub(super) fn told(&mut self, column: Column, hash: u64) -> bool {
        self.uses.remove(&(column, hash)).is_some()
    }

    /// Whether nothing is expected of anybody.
    pub(super) fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    /// The prompt did not get there after all. Returns what to take out of the column.
    pub(super) fn forget(&mut self, column: Column, last: u64) -> Vec<u64> {
        let Some(number) = self.by_last.get(&(column, last)).copied() else { return Vec::new() };
        self.take(number).map(|expectation| self.release(&expectation)).unwrap_or_default()
    }

    fn take(&mut self, number: u64) -> Option<Expectation> {
        let (deadline, expectation) = self.by_number.remove(&number)?;
        self.due.remove(&(deadline, number));
        Some(expectation)
    }

    fn release(&mut self, expectation: &Expectation) -> Vec<u64> {
        let column = expectation.columns.expected;
        self.hashes = self.hashes.saturating_sub(expectation.chain.len());
        let mut unused = Vec::new();
        for hash in &expectation.chain {
            if let Some(uses) = self.uses.get_mut(&(column, *hash)) {
                *uses = uses.saturating_sub(1);
                if *uses == 0 {
                    self.uses.remove(&(column, *hash));
                    unused.push(*hash);
                }
            }
        }
        if let Some(last) = expectation.chain.last()
            && let Some(number) = self.by_last.get(&(column, *last))
            && !self.by_number.contains_key(number)
        {
            self.by_last.remove(&(column, *last));
        }
        unused
    }

    /// Settles what is due. `is_live`: the column still belongs to the endpoint.
    pub(super) fn due(
        &mut self,
        now_ms: u64,
        table: &PrefixTable,
        is_live: impl Fn(Column) -> bool,
    ) -> Settled {
        let mut settled = Settled::default();
        while let Some((deadline, number)) = self.due.first().copied() {
            if deadline > now_ms && self.hashes <= MAX_HASHES {
                break;
            }
            let Some(expectation) = self.take(number) else {
                self.due.remove(&(deadline, number));
                continue;
            };
            let Columns { held, expected, .. } = expectation.columns;
            let live = is_live(expected);
            if live && expectation.answered && expectation.chain.len() >= MIN_BLOCKS {
                // Told meanwhile, though it may be evicted again by now.
                let told = |first: &u64| {
                    !self.uses.contains_key(&(expected, *first)) || table.holds(held, *first)
                };
                let confirmed = expectation.chain.first().is_some_and(told);
                self.judge(expectation.stream, confirmed, &mut settled);
            }
            let unused = self.release(&expectation);
            if live && !unused.is_empty() {
                settled.evict.push((expected, unused));
            }
        }
        settled
    }

    fn judge(&mut self, stream: u64, confirmed: bool, settled: &mut Settled) {
        if stream == 0 {
            return;
        }
        let score = self.scores.entry(stream).or_default();
        score.judged = score.judged.saturating_add(1);
        if confirmed {
            score.confirmed = score.confirmed.saturating_add(1);
            settled.confirmed = settled.confirmed.saturating_add(1);
        } else {
            settled.unconfirmed = settled.unconfirmed.saturating_add(1);
        }
        if score.judged >= JUDGED_TOGETHER {
            if score.confirmed < JUDGED_TOGETHER / 2 {
                settled.distrust.push(stream);
            }
            self.scores.remove(&stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmroute_shared_state::block::Block;

    const COLUMNS: Columns =
        Columns { held: Column(0), expected: Column(1), any_tier: Column::NONE };

    fn always(_: Column) -> bool {
        true
    }

    fn due(expectations: &mut Expectations, table: &PrefixTable, now_ms: u64) -> Settled {
        expectations.due(now_ms, table, always)
    }

    crate::tests! {
        fn an_expectation_stands_until_shortly_after_the_answer() {
            let (mut all, table) = (Expectations::default(), PrefixTable::default());
            assert_eq!(all.expect(COLUMNS, 5, &[1, 2, 3], 0), [1, 2, 3]);
            assert_eq!(due(&mut all, &table, 20_000), Settled::default());
            all.settle(Column(1), 3, true, 20_000);
            assert_eq!(due(&mut all, &table, 21_999), Settled::default());
            let settled = due(&mut all, &table, 22_000);
            assert_eq!(settled.evict, [(Column(1), vec![1, 2, 3])]);
            assert_eq!((settled.confirmed, settled.unconfirmed), (0, 1));
            assert!(all.uses.is_empty() && all.by_last.is_empty() && all.hashes == 0);
        }

        fn siblings_share_blocks_and_the_last_one_takes_them_along() {
            let (mut all, table) = (Expectations::default(), PrefixTable::default());
            all.expect(COLUMNS, 5, &[1, 2, 3], 0);
            assert_eq!(all.expect(COLUMNS, 5, &[1, 2, 4], 10), [4]);
            assert!(all.expect(COLUMNS, 5, &[2, 4], 20).is_empty());
            assert_eq!(due(&mut all, &table, 30_000).evict, [(Column(1), vec![3])]);
            assert_eq!(all.expect(COLUMNS, 5, &[0, 1, 2, 4], 30_000), [0]);
            assert_eq!(due(&mut all, &table, 60_000).evict, [(Column(1), vec![0, 1, 2, 4])]);
            assert!(all.uses.is_empty() && all.by_last.is_empty() && all.hashes == 0);
        }

        fn what_was_told_is_expected_no_longer_and_counts_even_if_evicted_since() {
            let (mut all, table) = (Expectations::default(), PrefixTable::default());
            all.expect(COLUMNS, 5, &[1, 2, 3], 0);
            all.settle(Column(1), 3, true, 0);
            assert!(all.told(Column(1), 1) && all.told(Column(1), 2));
            assert!(!all.told(Column(1), 2) && !all.told(Column(0), 3));
            let settled = due(&mut all, &table, 2000);
            assert_eq!(settled.evict, [(Column(1), vec![3])]);
            assert_eq!((settled.confirmed, settled.unconfirmed), (1, 0));
            assert!(all.is_empty() && all.by_last.is_empty() && all.hashes == 0);
        }

        fn what_never_got_there_is_forgotten_at_once() {
            let mut all = Expectations::default();
            all.expect(COLUMNS, 5, &[1, 2], 0);
            assert_eq!(all.forget(Column(1), 2), [1, 2]);
            assert!(all.forget(Column(1), 2).is_empty());
            assert!(all.due.is_empty() && all.by_number.is_empty());
        }

        fn a_stream_that_is_seldom_confirmed_is_distrusted() {
            let mut table = PrefixTable::default();
            table.store(Column(0), Block { hash: 0, tokens: 9 });
            for (confirmed, distrust) in [(99u64, vec![5]), (100, vec![])] {
                let mut all = Expectations::default();
                let mut settled = Settled::default();
                for n in 0..200u64 {
                    // Hash 0 is held; the others are not.
                    let first = if n < confirmed { 0 } else { 1000 + n };
                    all.expect(COLUMNS, 5, &[first, 5000 + n], 0);
                    all.settle(Column(1), 5000 + n, true, 0);
                    settled = due(&mut all, &table, 3000);
                }
                assert_eq!(settled.distrust, distrust);
            }
        }

        fn what_proves_nothing_is_not_counted() {
            let (mut all, table) = (Expectations::default(), PrefixTable::default());
            all.expect(COLUMNS, 5, &[1, 2], 0);
            all.expect(COLUMNS, 5, &[3], 0);
            all.settle(Column(1), 3, true, 0);
            all.adopt(COLUMNS, &[7, 8], 0);
            let settled = due(&mut all, &table, 40_000);
            assert_eq!((settled.confirmed, settled.unconfirmed, settled.evict.len()), (0, 0, 3));
            all.expect(COLUMNS, 5, &[1, 2], 0);
            all.settle(Column(1), 2, true, 0);
            let gone = all.due(40_000, &table, |_| false);
            assert_eq!(gone, Settled::default(), "its endpoint is gone");
        }

        fn memory_is_bounded() {
            let (mut all, table) = (Expectations::default(), PrefixTable::default());
            for n in 0..5u64 {
                // Mixed, as chain hashes are.
                let hash = |i: u64| (n * 1_000_000 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let chain: Vec<u64> = (0..150_000).map(hash).collect();
                all.expect(COLUMNS, 5, &chain, n);
                due(&mut all, &table, n);
                assert!(all.hashes <= MAX_HASHES);
            }
            assert_eq!(all.by_number.len(), 2);
        }
    }
}
