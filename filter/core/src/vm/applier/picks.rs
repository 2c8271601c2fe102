//! Picks of all workers: what they stand for, and for how long.

use super::Applier;
use crate::replica::Replica;
use crate::vm::expectations::Expectations;
use crate::vm::{Follower, Message, shares};
use std::collections::BTreeMap;
use warmroute_shared_state::checkpoint::SEGMENTS;
use warmroute_shared_state::table_op::{Column, HASHES_PER_OP, HashList, TableOp};

/// Stamps are only told anew when they are older than this (about a minute, in units of 64 ms): they serve to
/// rebuild the order of use when another VM becomes the applier.
const STAMP_FRESH: u32 = 1000;

impl Applier {
    /// Takes a message of another VM, or of this one.
    pub(in crate::vm) fn on_message(
        &mut self,
        follower: &mut Follower,
        message: &Message<'_>,
        now_ms: u64,
    ) {
        match message {
            Message::Picked { column, chain } => {
                self.insert(follower, *column, &chain.to_vec(), now_ms);
            }
            Message::Unpicked { column, chain } => {
                let chain = chain.to_vec();
                if let (Some(expected), Some(last)) =
                    (expected_beside(&follower.replica, *column), chain.last())
                {
                    let unused = self.expectations.forget(expected, *last);
                    self.evict(follower, expected, &unused);
                }
                if self.shares.forget(*column, &chain) {
                    self.evict(follower, *column, &chain);
                }
            }
            Message::Expected { column, stream, chain } => {
                self.expect(follower, *column, *stream, &chain.to_vec(), now_ms);
            }
            Message::Settled { column, last, answered } => {
                if let Some(expected) = expected_beside(&follower.replica, *column) {
                    self.expectations.settle(expected, *last, *answered, now_ms);
                }
            }
            Message::Usage { endpoint, prompt_bytes, prompt_tokens } => {
                let id = *endpoint;
                let ratio = follower.replica.roster.get(id).map(|known| known.bytes_per_token);
                let learned = ratio
                    .and_then(|ratio| self.shares.learn(id, ratio, *prompt_bytes, *prompt_tokens));
                if let Some(milli) = learned {
                    self.tell(follower, &TableOp::BytesPerToken { id, milli });
                }
            }
            Message::Session { pool, plugin, session, endpoint } => {
                let (pool, session, endpoint) = (pool.0, *session, *endpoint);
                self.tell(follower, &TableOp::Session { pool, plugin, session, endpoint });
            }
            // The dispatcher's.
            Message::Flow { .. } | Message::Trap => {}
        }
    }

    fn expect(
        &mut self,
        follower: &mut Follower,
        column: Column,
        stream: u64,
        chain: &[u64],
        now_ms: u64,
    ) {
        let Some(endpoint) = follower.replica.roster.by_column(column) else { return };
        let columns = endpoint.columns;
        if columns.held != column || columns.expected == Column::NONE {
            return;
        }
        // Events may have come before this message.
        let table = &follower.replica.table;
        let told = chain.iter().take_while(|hash| table.holds(column, **hash)).count();
        let (told, chain) = chain.split_at(told);
        // Whoever picked has entered all of it.
        self.evict(follower, columns.expected, told);
        let news = self.expectations.expect(columns, stream, chain, now_ms);
        for hashes in news.chunks(HASHES_PER_OP) {
            let hashes = HashList::Slice(hashes);
            let op = TableOp::Insert { column: columns.expected, stamp: 0, hashes };
            self.tell(follower, &op);
        }
    }

    /// Takes out what was expected long enough. At every tick.
    pub(in crate::vm) fn settle_expectations(&mut self, follower: &mut Follower, now_ms: u64) {
        let replica = &follower.replica;
        let live = |column| replica.roster.live().contains(column);
        let settled = self.expectations.due(now_ms, &replica.table, live);
        for (column, hashes) in settled.evict {
            self.evict(follower, column, &hashes);
        }
        self.counts.confirmed = self.counts.confirmed.saturating_add(settled.confirmed);
        self.counts.unconfirmed = self.counts.unconfirmed.saturating_add(settled.unconfirmed);
        for stream in settled.distrust {
            if follower.replica.models.by_stream(stream).is_some_and(|model| !model.distrusted) {
                self.counts.distrusted = self.counts.distrusted.saturating_add(1);
                self.tell(follower, &TableOp::Distrust { stream });
            }
        }
    }

    fn insert(&mut self, follower: &mut Follower, column: Column, chain: &[u64], now_ms: u64) {
        let roster = &follower.replica.roster;
        let Some(endpoint) = roster.by_column(column) else { return };
        let replica = &follower.replica;
        let capacity = shares::capacity(replica, endpoint, self.settings.max_blocks);
        if chain.len() > capacity {
            // It does not fit, so the engine refuses it: nothing may be forgotten for its sake.
            return;
        }
        let requests = self.totals.counts(endpoint.record.id).requests;
        let open = self.shares.open_part(endpoint, requests);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let capacity = ((capacity as f64 * open) as usize).max(chain.len());
        let dropped = self.shares.touch(column, chain, capacity);
        #[allow(clippy::cast_possible_truncation)]
        let stamp = (now_ms >> 6) as u32;
        // What every VM knows already is not told again: of a conversation's next turn only the new blocks.
        let table = &follower.replica.table;
        let news: Vec<u64> = chain
            .iter()
            .copied()
            .filter(|hash| !table.holds_since(column, stamp, STAMP_FRESH, *hash))
            .collect();
        for hashes in news.chunks(HASHES_PER_OP) {
            let hashes = HashList::Slice(hashes);
            self.tell(follower, &TableOp::Insert { column, stamp, hashes });
        }
        self.evict(follower, column, &dropped);
    }

    pub(super) fn evict(&mut self, follower: &mut Follower, column: Column, hashes: &[u64]) {
        for hashes in hashes.chunks(HASHES_PER_OP) {
            let hashes = HashList::Slice(hashes);
            self.tell(follower, &TableOp::Evict { column, hashes });
        }
    }
}

/// The expected column of the endpoint that holds this one.
fn expected_beside(replica: &Replica, held: Column) -> Option<Column> {
    let columns = replica.roster.by_column(held)?.columns;
    (columns.held == held && columns.expected != Column::NONE).then_some(columns.expected)
}

/// What a former applier's endpoints are still expected to hold.
pub(super) fn left_behind(replica: &Replica, now_ms: u64) -> Expectations {
    let mut chains: BTreeMap<Column, Vec<u64>> = BTreeMap::new();
    for segment in 0..SEGMENTS {
        replica.table.for_each_in_segment(segment, |entry| {
            for column in entry.columns.iter() {
                let owner = replica.roster.by_column(column);
                if owner.is_some_and(|owner| owner.columns.expected == column) {
                    chains.entry(column).or_default().push(entry.hash);
                }
            }
        });
    }
    let mut expectations = Expectations::default();
    for (column, chain) in chains {
        if let Some(endpoint) = replica.roster.by_column(column) {
            expectations.adopt(endpoint.columns, &chain, now_ms);
        }
    }
    expectations
}
