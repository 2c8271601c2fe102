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
    /// When it began.
    since_ms: u64,
    /// Equal prompts on their way.
    requests: u32,
    answered: bool,
}

/// How many expectations a block is part of, since it was last told: those made by this number or later.
#[derive(Debug, Clone, Copy)]
struct Uses {
    since: u64,
    count: u32,
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
    uses: ByBlock<Uses>,
    /// When the endpoint of an expected column last told anything.
    heard_ms: BTreeMap<Column, u64>,
    scores: BTreeMap<u64, Score>,
    next: u64,
    hashes: usize,
}

impl Expectations {
    /// What a former applier left behind: it stands a moment longer.
    pub(super) fn adopt(&mut self, columns: Columns, chain: &[u64], now_ms: u64) {
        self.expect(columns, 0, chain, now_ms);
        if let Some(last) = chain.last() {
            self.settle(columns.expected, *last, false, now_ms);
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
            if let Some((_, known)) = self.by_number.get_mut(&number)
                && known.chain.len() >= chain.len()
            {
                known.requests = known.requests.saturating_add(1);
                self.set_deadline(number, deadline);
                return Vec::new();
            }
            let before = self.take(number);
            let requests = before.as_ref().map_or(0, |before| before.requests).saturating_add(1);
            let answered = before.as_ref().is_some_and(|before| before.answered);
            let (since_ms, chain) = (now_ms, chain.to_vec());
            let longer = Expectation { columns, stream, chain, since_ms, requests, answered };
            let news = self.add(longer, deadline);
            if let Some(before) = before {
                self.release(number, &before);
            }
            return news;
        }
        let (since_ms, chain) = (now_ms, chain.to_vec());
        let new = Expectation { columns, stream, chain, since_ms, requests: 1, answered: false };
        self.add(new, deadline)
    }

    fn add(&mut self, new: Expectation, deadline: u64) -> Vec<u64> {
        let column = new.columns.expected;
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let mut news = Vec::new();
        for hash in &new.chain {
            let uses = self.uses.entry((column, *hash)).or_insert(Uses { since: number, count: 0 });
            if uses.count == 0 {
                news.push(*hash);
            }
            uses.count = uses.count.saturating_add(1);
        }
        self.hashes = self.hashes.saturating_add(new.chain.len());
        self.due.insert((deadline, number));
        if let Some(last) = new.chain.last() {
            self.by_last.insert((column, *last), number);
        }
        self.by_number.insert(number, (deadline, new));
        news
    }

    /// A request whose chain ends like this is answered, or over without an answer. One answer tells that the prompt
    /// is computed; without any, equal prompts may still be on their way.
    pub(super) fn settle(&mut self, column: Column, last: u64, answered: bool, now_ms: u64) {
        let Some((number, expectation)) = self.newest(column, last) else { return };
        expectation.answered |= answered;
        expectation.requests = expectation.requests.saturating_sub(1);
        if answered || expectation.requests == 0 {
            self.set_deadline(number, now_ms.saturating_add(AFTER_ANSWER_MS));
        }
    }

    fn newest(&mut self, column: Column, last: u64) -> Option<(u64, &mut Expectation)> {
        let number = *self.by_last.get(&(column, last))?;
        self.by_number.get_mut(&number).map(|(_, expectation)| (number, expectation))
    }

    fn set_deadline(&mut self, number: u64, deadline: u64) {
        let Some((due, _)) = self.by_number.get_mut(&number) else { return };
        self.due.remove(&(*due, number));
        *due = deadline;
        self.due.insert((deadline, number));
    }

    /// The endpoint of this column told something: of these blocks that it holds them. Returns those that were
    /// expected: they are to be taken out of the column.
    pub(super) fn heard(
        &mut self,
        column: Column,
        told: impl Iterator<Item = u64>,
        now_ms: u64,
    ) -> Vec<u64> {
        self.heard_ms.insert(column, now_ms);
        if self.uses.is_empty() {
            return Vec::new();
        }
        told.filter(|hash| self.uses.remove(&(column, *hash)).is_some()).collect()
    }

    /// A prompt did not get there after all. Returns what to take out of the column, unless an equal one is on its
    /// way there.
    pub(super) fn forget(&mut self, column: Column, last: u64) -> Vec<u64> {
        let Some((number, expectation)) = self.newest(column, last) else { return Vec::new() };
        expectation.requests = expectation.requests.saturating_sub(1);
        if expectation.requests > 0 || expectation.answered {
            return Vec::new();
        }
        self.take(number).map(|gone| self.release(number, &gone)).unwrap_or_default()
    }

    fn take(&mut self, number: u64) -> Option<Expectation> {
        let (deadline, expectation) = self.by_number.remove(&number)?;
        self.due.remove(&(deadline, number));
        Some(expectation)
    }

    fn release(&mut self, number: u64, expectation: &Expectation) -> Vec<u64> {
        let column = expectation.columns.expected;
        self.hashes = self.hashes.saturating_sub(expectation.chain.len());
        let mut unused = Vec::new();
        for hash in &expectation.chain {
            // Uses since a later number: the block was told meanwhile, and this one's use went with that.
            let uses = self.uses.get_mut(&(column, *hash)).filter(|uses| uses.since <= number);
            if let Some(uses) = uses {
                uses.count = uses.count.saturating_sub(1);
                if uses.count == 0 {
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
            // Events could have come: the time is over, and the endpoint told something meanwhile.
            let heard = self.heard_ms.get(&expected).is_some_and(|at| *at >= expectation.since_ms);
            let complete = deadline <= now_ms && expectation.chain.len() >= MIN_BLOCKS;
            if live && heard && complete && expectation.answered {
                // Told meanwhile, though it may be evicted again by now.
                let told = |first: &u64| {
                    let uses = self.uses.get(&(expected, *first));
                    uses.is_none_or(|uses| uses.since > number) || table.holds(held, *first)
                };
                let confirmed = expectation.chain.first().is_some_and(told);
                self.judge(expectation.stream, confirmed, &mut settled);
            }
            let unused = self.release(number, &expectation);
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
            all.heard(Column(1), [].into_iter(), 10_000);
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
            assert_eq!(all.heard(Column(1), [1, 2, 9].into_iter(), 5), [1, 2]);
            assert!(all.heard(Column(1), [2].into_iter(), 6).is_empty());
            assert!(all.heard(Column(0), [3].into_iter(), 7).is_empty());
            let settled = due(&mut all, &table, 2000);
            assert_eq!(settled.evict, [(Column(1), vec![3])]);
            assert_eq!((settled.confirmed, settled.unconfirmed), (1, 0));
            assert!(all.uses.is_empty() && all.by_last.is_empty() && all.hashes == 0);
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
                    all.heard(Column(1), [].into_iter(), 0);
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
            all.heard(Column(1), [].into_iter(), 0);
            all.settle(Column(1), 3, true, 0);
            all.adopt(COLUMNS, &[7, 8], 0);
            let settled = due(&mut all, &table, 40_000);
            assert_eq!((settled.confirmed, settled.unconfirmed, settled.evict.len()), (0, 0, 3));
            all.expect(COLUMNS, 5, &[1, 2], 0);
            all.settle(Column(1), 2, true, 0);
            let gone = all.due(40_000, &table, |_| false);
            assert_eq!(gone, Settled::default(), "its endpoint is gone");
        }

        fn an_endpoint_that_tells_nothing_proves_nothing() {
            let (mut all, table) = (Expectations::default(), PrefixTable::default());
            all.heard(Column(1), [].into_iter(), 99);
            all.expect(COLUMNS, 5, &[1, 2], 100);
            all.settle(Column(1), 2, true, 100);
            let settled = due(&mut all, &table, 2100);
            assert_eq!((settled.confirmed, settled.unconfirmed, settled.evict.len()), (0, 0, 1));
        }

        fn equal_prompts_keep_it_until_the_last_of_them_is_gone() {
            let (mut all, table) = (Expectations::default(), PrefixTable::default());
            all.expect(COLUMNS, 5, &[1, 2], 0);
            assert!(all.expect(COLUMNS, 5, &[1, 2], 0).is_empty());
            assert!(all.expect(COLUMNS, 5, &[2], 0).is_empty());
            assert!(all.forget(Column(1), 2).is_empty(), "one was refused");
            all.settle(Column(1), 2, false, 10);
            assert_eq!(due(&mut all, &table, 10_000), Settled::default(), "one left");
            assert_eq!(all.forget(Column(1), 2), [1, 2]);
        }

        fn a_use_that_was_told_is_not_taken_from_another() {
            let (mut all, table) = (Expectations::default(), PrefixTable::default());
            all.expect(COLUMNS, 5, &[1, 2], 0);
            all.settle(Column(1), 2, true, 0);
            all.heard(Column(1), [1, 2].into_iter(), 1);
            // Evicted since, and expected anew.
            assert_eq!(all.expect(COLUMNS, 5, &[1, 3], 100), [1, 3]);
            let settled = due(&mut all, &table, 2000);
            assert_eq!((settled.confirmed, settled.evict), (1, vec![]));
            assert_eq!(all.forget(Column(1), 3), [1, 3]);
        }

        fn what_goes_early_for_want_of_room_is_not_judged() {
            let (mut all, table) = (Expectations::default(), PrefixTable::default());
            for n in 0..5u64 {
                let hash = |i: u64| (n * 1_000_000 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let chain: Vec<u64> = (0..150_000).map(hash).collect();
                all.expect(COLUMNS, 5, &chain, 0);
                all.heard(Column(1), [].into_iter(), 0);
                all.settle(Column(1), hash(149_999), true, 0);
                assert_eq!(due(&mut all, &table, 1).unconfirmed, 0);
            }
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
