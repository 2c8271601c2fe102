//! What the page and the metrics show: counters since this dispatcher began.

use crate::flow_control::protocol::{DropReason, PoolKey, Request, Usage};
use std::collections::BTreeMap;

/// Fairness IDs that are told apart; all others are counted as [`OTHER`].
pub const MAX_FLOWS: usize = 1000;

/// Name of the fairness IDs beyond [`MAX_FLOWS`].
pub const OTHER: &str = "other";

/// Upper bounds of the wait histogram's buckets, in ms (llm-d's, as far as a clock of ms can tell); one more bucket
/// holds what is beyond.
pub const WAIT_BOUNDS_MS: [u64; 14] =
    [1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000];

/// Counters of a fairness ID in a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Requests that went.
    pub dispatched: u64,
    /// Tokens of those that are over.
    pub usage: Usage,
    /// Requests that did not go, or were ended, by reason.
    pub drops: BTreeMap<DropReason, u64>,
}

/// How long requests of a band waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// Requests by [`WAIT_BOUNDS_MS`].
    pub buckets: [u64; 15],
    /// The sum of all waits, in ms.
    pub sum_ms: u64,
}

impl Waits {
    fn add(&mut self, wait_ms: u64) {
        let at = WAIT_BOUNDS_MS.partition_point(|bound| *bound < wait_ms);
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket = bucket.saturating_add(1);
        }
        self.sum_ms = self.sum_ms.saturating_add(wait_ms);
    }
}

/// All counters.
#[derive(Debug, Default)]
pub struct Statistics {
    flows: BTreeMap<(PoolKey, String), FlowCounts>,
    bands: BTreeMap<(PoolKey, i32), Waits>,
}

impl Statistics {
    /// Counters by pool and fairness ID.
    pub fn flows(&self) -> impl Iterator<Item = (PoolKey, &str, &FlowCounts)> {
        self.flows.iter().map(|((pool, flow), counts)| (*pool, flow.as_str(), counts))
    }

    /// Waits by pool and priority.
    pub fn bands(&self) -> impl Iterator<Item = (PoolKey, i32, &Waits)> {
        self.bands.iter().map(|((pool, priority), waits)| (*pool, *priority, waits))
    }

    fn flow(&mut self, request: &Request) -> &mut FlowCounts {
        let key = (request.pool, request.flow.clone());
        let known = self.flows.len() < MAX_FLOWS || self.flows.contains_key(&key);
        let key = if known { key } else { (request.pool, OTHER.to_owned()) };
        self.flows.entry(key).or_default()
    }

    pub(super) fn dispatched(&mut self, request: &Request, wait_ms: u64) {
        let flow = self.flow(request);
        flow.dispatched = flow.dispatched.saturating_add(1);
        // Priorities come from the configuration: there are few.
        self.bands.entry((request.pool, request.priority)).or_default().add(wait_ms);
    }

    pub(super) fn served(&mut self, request: &Request, usage: Usage) {
        let flow = self.flow(request);
        flow.usage.prompt = flow.usage.prompt.saturating_add(usage.prompt);
        flow.usage.completion = flow.usage.completion.saturating_add(usage.completion);
    }

    pub(super) fn dropped(&mut self, request: &Request, reason: DropReason) {
        let count = self.flow(request).drops.entry(reason).or_default();
        *count = count.saturating_add(1);
    }
}
