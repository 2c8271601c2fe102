//! Requests that waited for as long as they may.

use super::{Event, Parked, RETRY_AFTER_MS, Ticket, Worker};
use crate::flow_control::protocol::{DropReason, PoolKey, Refused};
use std::collections::BTreeMap;

impl Worker {
    /// While a pool is empty another time counts, from then on.
    pub(super) fn expire(&mut self, is_empty: impl Fn(PoolKey) -> bool, now_ms: u64) -> Vec<Event> {
        let mut empty_since = BTreeMap::new();
        for parked in self.parked.values() {
            let pool = parked.request.pool;
            if !empty_since.contains_key(&pool) && pool != PoolKey::NONE && is_empty(pool) {
                let since = self.empty_since_ms.get(&pool).copied().unwrap_or(now_ms);
                empty_since.insert(pool, since.min(now_ms));
            }
        }
        self.empty_since_ms = empty_since;
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
