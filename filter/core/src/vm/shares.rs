//! What each endpoint is believed to hold, as long as our own picks stand in for its events: as much as its
//! engine's KV cache has room for, the least recently used dropped first. Only the applier keeps this.

use crate::prefix_table::{PrefixTable, RecencyList};
use crate::replica::{EndpointState, Replica, Roster};
use std::collections::BTreeMap;
use warmroute_shared_state::checkpoint::SEGMENTS;
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::plugin::PrefixProducer;
use warmroute_shared_state::prefix::BLOCK_BYTES;
use warmroute_shared_state::table_op::Column;

/// KV tokens of an endpoint that does not report its capacity: llm-d's default of 31,250 blocks of 16.
const DEFAULT_KV_TOKENS: u64 = 500_000;

/// Shorter prompts are mostly template, which the hashed bytes do not show.
const MIN_PROMPT_TOKENS: u32 = 64;

/// How much the sums of the past weigh against the newest prompt.
const MEMORY: f64 = 0.95;

/// Before the first usage: as if this many tokens had come at the ratio in force. One odd prompt decides nothing.
const PRIOR_TOKENS: f64 = 4000.0;

/// Foreign use of an engine's memory below this is not told from the delay of scrapes.
const FOREIGN_FROM: f64 = 0.5;

/// How fast a belief in foreign use grows with each pick; it falls at once.
const FOREIGN_GROWTH: f64 = 0.3;

/// Order of use for each column, and bytes per token for each endpoint.
#[derive(Debug, Default)]
pub(super) struct Shares {
    recency: BTreeMap<Column, RecencyList>,
    usage: BTreeMap<EndpointId, UsageRatio>,
    foreign: BTreeMap<EndpointId, f64>,
}

/// Bytes and tokens of one endpoint's prompts, older ones counting less.
#[derive(Debug)]
struct UsageRatio {
    bytes: f64,
    tokens: f64,
    told_milli: u32,
}

impl UsageRatio {
    fn at(ratio: f32) -> Self {
        let ratio = f64::from(ratio);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let told_milli = (ratio * 1000.0) as u32;
        Self { bytes: ratio * PRIOR_TOKENS, tokens: PRIOR_TOKENS, told_milli }
    }
}

impl Shares {
    /// Rebuilds the order of use from the stamps in a table. `guessed`: whether a column's block
    /// is there by our picks, given its tokens as far as an event told them of anybody.
    pub(super) fn of(table: &PrefixTable, guessed: impl Fn(Column, u32) -> bool) -> Self {
        let mut stamped: BTreeMap<Column, Vec<(u32, u64)>> = BTreeMap::new();
        for segment in 0..SEGMENTS {
            table.for_each_in_segment(segment, |entry| {
                // What events told, or will tell, is not for us to drop.
                for column in entry.columns.iter().filter(|column| guessed(*column, entry.tokens)) {
                    stamped.entry(column).or_default().push((entry.stamp, entry.hash));
                }
            });
        }
        let mut shares = Self::default();
        for (column, mut hashes) in stamped {
            hashes.sort_unstable();
            let list = shares.recency.entry(column).or_default();
            hashes.iter().for_each(|(_, hash)| list.touch(*hash));
        }
        shares
    }

    /// A prompt with this chain went to the column, which has room for `capacity` blocks. Returns what it
    /// dropped for it.
    pub(super) fn touch(&mut self, column: Column, chain: &[u64], capacity: usize) -> Vec<u64> {
        let list = self.recency.entry(column).or_default();
        // Tail first, as the engine frees them: the head of a prompt is dropped last.
        chain.iter().rev().for_each(|hash| list.touch(*hash));
        let mut dropped = Vec::new();
        while list.len() > capacity {
            dropped.extend(list.pop_oldest());
        }
        dropped
    }

    /// What part of the endpoint's KV memory is left for prompts that we sent there: of what running requests
    /// use, all that `requests` of ours do not explain is foreign to us (other clients, long answers) and holds no
    /// prefix that we know. To be asked at each pick.
    pub(super) fn open_part(&mut self, endpoint: &EndpointState, requests: u32) -> f64 {
        let id = endpoint.record.id;
        let Some((used, kv_tokens)) = endpoint.load.kv_usage.zip(endpoint.record.kv_tokens())
        else {
            return 1.0;
        };
        // The sum of the past with this memory is so many times the mean.
        let mean = self.usage.get(&id).map_or(0.0, |usage| usage.tokens * (1.0 - MEMORY));
        #[allow(clippy::cast_precision_loss)]
        let own = f64::from(requests) * mean / kv_tokens as f64;
        let seen = (f64::from(used) - own).clamp(0.0, 1.0);
        let foreign = self.foreign.entry(id).or_default();
        let grown = *foreign + (seen - *foreign) * FOREIGN_GROWTH;
        *foreign = grown.min(seen);
        if *foreign > FOREIGN_FROM { 1.0 - *foreign } else { 1.0 }
    }

    /// These blocks did not get there after all. Whether there is such a column.
    pub(super) fn forget(&mut self, column: Column, chain: &[u64]) -> bool {
        let Some(list) = self.recency.get_mut(&column) else { return false };
        chain.iter().for_each(|hash| list.remove(*hash));
        true
    }

    /// The column's endpoint starts anew on another one.
    pub(super) fn drop_column(&mut self, column: Column) {
        self.recency.remove(&column);
    }

    /// The endpoint is gone.
    pub(super) fn drop_endpoint(&mut self, id: EndpointId, column: Column) {
        self.drop_column(column);
        self.usage.remove(&id);
        self.foreign.remove(&id);
    }

    /// Learns how many bytes a token stands for; `in_force` is the ratio so far. Returns the ratio in thousandths
    /// if it moved by more than 2% since it was last returned.
    pub(super) fn learn(
        &mut self,
        id: EndpointId,
        in_force: f32,
        bytes: u64,
        tokens: u32,
    ) -> Option<u32> {
        // Outside of what a tokenizer can do it is no prompt that was hashed.
        let plausible = u64::from(tokens / 4)..=u64::from(tokens).saturating_mul(64);
        if tokens < MIN_PROMPT_TOKENS || !plausible.contains(&bytes) {
            return None;
        }
        let usage = self.usage.entry(id).or_insert_with(|| UsageRatio::at(in_force));
        #[allow(clippy::cast_precision_loss)]
        let bytes = bytes as f64;
        usage.bytes = usage.bytes * MEMORY + bytes;
        usage.tokens = usage.tokens * MEMORY + f64::from(tokens);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let milli = (usage.bytes / usage.tokens * 1000.0) as u32;
        let moved = milli.abs_diff(usage.told_milli) > usage.told_milli / 50;
        if moved {
            usage.told_milli = milli;
        }
        moved.then_some(milli)
    }
}

/// How many byte blocks fit the endpoint's KV cache, by the scheduler of its first pool.
pub(super) fn capacity(replica: &Replica, endpoint: &EndpointState, max_blocks: usize) -> usize {
    let caps = replica.policy.scheduler_of(&endpoint.record).map(|scheduler| &scheduler.prefix);
    capacity_with(caps, &replica.roster, endpoint, max_blocks)
}

/// How many byte blocks fit the endpoint's KV cache, at its own bytes per token; at most its equal part of
/// `max_blocks` among all endpoints. `caps`: as configured for a scheduler.
pub(super) fn capacity_with(
    caps: Option<&PrefixProducer>,
    roster: &Roster,
    endpoint: &EndpointState,
    max_blocks: usize,
) -> usize {
    let endpoints = roster.len();
    let configured = caps.and_then(|caps| caps.capacity_tokens);
    let told = endpoint.record.kv_tokens().filter(|_| caps.is_none_or(|caps| caps.auto_tune));
    let tokens = told.or(configured).unwrap_or(DEFAULT_KV_TOKENS);
    #[allow(clippy::cast_precision_loss)]
    let blocks = tokens as f64 * f64::from(endpoint.bytes_per_token) / BLOCK_BYTES as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let blocks = blocks as usize;
    let equal_part = max_blocks.checked_div(endpoints).unwrap_or(max_blocks);
    blocks.min(equal_part).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::Replica;
    use crate::replica::tests::record;
    use warmroute_shared_state::endpoint::Load;
    use warmroute_shared_state::table_op::{Columns, TableOp};

    const A: EndpointId = EndpointId(1);

    crate::tests! {
        fn the_ratio_follows_usage_and_no_single_prompt() {
            let mut shares = Shares::default();
            assert_eq!(shares.learn(A, 4.0, 40, 10), None, "too short to say");
            assert_eq!(shares.learn(A, 4.0, 4000, 1000), None, "as it was");
            let once = shares.learn(A, 4.0, 2000, 1000).unwrap();
            assert!((3500..4000).contains(&once), "{once}");
            let mut milli = once;
            for _ in 0..200 {
                milli = shares.learn(A, 4.0, 2000, 1000).unwrap_or(milli);
            }
            assert!((1950..2150).contains(&milli), "{milli}");
        }

        fn what_no_tokenizer_does_teaches_nothing() {
            let mut shares = Shares::default();
            for (bytes, tokens) in
                [(0, 500), (10, 500), (1_000_000, 100), (100, u32::MAX), (u64::MAX, u32::MAX)]
            {
                assert_eq!(shares.learn(A, 4.0, bytes, tokens), None, "{bytes} {tokens}");
            }
            assert!(shares.usage.is_empty());
        }

        fn memory_that_others_use_is_not_ours() {
            let mut shares = Shares::default();
            let mut replica = Replica::default();
            let record = record(0);
            let id = record.id;
            replica.apply(1, &TableOp::Endpoint { columns: Columns::only(Column(0)), since: 1, record });
            let used = |replica: &mut Replica, kv_usage| {
                let load = Load { kv_usage: Some(kv_usage), ..Load::default() };
                replica.apply(1, &TableOp::Load { id, at_ms: 0, load });
            };
            let part = |shares: &mut Shares, replica: &Replica, requests| {
                shares.open_part(replica.roster.get(id).unwrap(), requests)
            };
            used(&mut replica, 0.4);
            for _ in 0..50 {
                assert_eq!(part(&mut shares, &replica, 0), 1.0, "too little to tell");
            }
            used(&mut replica, 0.95);
            assert!((part(&mut shares, &replica, 0) - 0.435).abs() < 1e-6);
            for _ in 0..50 {
                part(&mut shares, &replica, 0);
            }
            assert!((part(&mut shares, &replica, 0) - 0.05).abs() < 0.01);
            // 16 prompts of about 8,000 tokens explain 0.8 of 160,000.
            for _ in 0..200 {
                shares.learn(id, 4.0, 32_000, 8000);
            }
            assert_eq!(part(&mut shares, &replica, 16), 1.0);
        }

        fn what_exceeds_the_room_is_dropped_from_the_tail_of_the_oldest() {
            let mut shares = Shares::default();
            assert!(shares.touch(Column(0), &[1, 2, 3], 5).is_empty());
            assert_eq!(shares.touch(Column(0), &[4, 5, 6], 5), [3]);
            assert!(shares.touch(Column(0), &[1], 5).is_empty());
            assert_eq!(shares.touch(Column(0), &[7, 8], 4), [2, 6, 5]);
            assert!(!shares.forget(Column(1), &[1]));
        }
    }
}
