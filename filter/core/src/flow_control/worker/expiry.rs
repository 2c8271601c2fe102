//! Requests that waited for as long as they may.

use super::{Event, Parked, RETRY_AFTER_MS, Ticket, Worker};
use crate::flow_control::protocol::{DropReason, PoolKey, Refused};
use std::collections::BTreeSet;

/// Between two looks at all that waits: there may be thousands, and ticks every few milliseconds.
const EXPIRE_MS: u64 = 50;

impl Worker {
    /// While a pool is empty another time counts, from then on.
    pub(super) fn expire(&mut self, is_empty: impl Fn(PoolKey) -> bool, now_ms: u64) -> Vec<Event> {
        if now_ms.abs_diff(self.expired_ms) < EXPIRE_MS {
            return Vec::new();
        }
        self.expired_ms = now_ms;
        let pools: BTreeSet<PoolKey> =
            self.parked.values().map(|parked| parked.request.pool).collect();
        let empty = pools.into_iter().filter(|pool| *pool != PoolKey::NONE && is_empty(*pool));
        let since =
            |pool| self.empty_since_ms.get(&pool).map_or(now_ms, |since| now_ms.min(*since));
        self.empty_since_ms = empty.map(|pool| (pool, since(pool))).collect();
        let why = |parked: &Parked| {
            let came = parked.request.since_ms;
            let waited = |since: u64, ttl: u64| ttl > 0 && now_ms.saturating_sub(since) >= ttl;
            match self.empty_since_ms.get(&parked.request.pool) {
                Some(since) => waited(came.max(*since), parked.ttl.no_endpoint_ms)
                    .then_some(DropReason::TtlNoEndpoints),
                None => waited(came, parked.ttl.request_ms).then_some(DropReason::TtlExpired),
            }
        };
        let expired: Vec<(u64, DropReason)> = self
            .parked
            .iter()
            .filter_map(|(number, parked)| why(parked).map(|reason| (*number, reason)))
            .collect();
        let mut events = Vec::new();
        for (number, reason) in expired {
            if let Some(parked) = self.parked.get(&number) {
                let refused = Refused::Queue { reason, retry_after_ms: RETRY_AFTER_MS };
                events.push(Event::Refused { context: parked.context, refused });
            }
            self.cancel(Ticket(number));
        }
        events
    }
}
