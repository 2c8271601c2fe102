//! How queues and pools stand, for the page and the metrics.

use super::Dispatcher;
use crate::flow_control::protocol::{PoolKey, Request};
use crate::quota::Ask;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How a pool stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolView {
    /// Which.
    pub pool: PoolKey,
    /// 1 and above: full.
    pub saturation: f64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Their tokens.
    pub in_flight_tokens: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Endpoints whose metrics are missing or too old for the detector.
    pub stale_endpoints: usize,
}

/// Which flow: a fairness ID in a band of a pool.
pub type FlowKey<'a> = (PoolKey, Reverse<i32>, &'a str);

/// What a flow has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowView {
    /// Requests that wait.
    pub waiting: u64,
    /// Bytes of their bodies.
    pub waiting_bytes: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Their tokens.
    pub in_flight_tokens: u64,
}

impl Dispatcher {
    /// How the pools stand.
    pub fn pools(&self, now_ms: u64) -> impl Iterator<Item = PoolView> {
        self.gates.iter().map(move |(pool, gate)| PoolView {
            pool: *pool,
            saturation: gate.saturation(now_ms),
            in_flight: gate.in_flight().requests,
            in_flight_tokens: gate.in_flight().tokens,
            waiting: gate.waiting(),
            stale_endpoints: gate.stale_endpoints(now_ms),
        })
    }

    /// All flows of which anything waits or is in flight, those without flow control too if they have budgets.
    #[must_use]
    pub fn flows(&self) -> BTreeMap<FlowKey<'_>, FlowView> {
        let mut flows: BTreeMap<FlowKey<'_>, FlowView> = BTreeMap::new();
        let gates = &self.gates;
        let key = |request: &'_ Rc<Request>| {
            let gate = gates.get(&request.pool);
            let priority = gate.map_or(request.priority, |gate| gate.band_of(request.priority));
            (request.pool, Reverse(priority))
        };
        let members = || self.members.values();
        let in_queue =
            members().flat_map(|member| member.waiting.values().chain(member.suspended.values()));
        for request in in_queue.chain(self.early.values().map(|(request, _)| request)) {
            let (pool, band) = key(request);
            let flow = flows.entry((pool, band, &request.flow)).or_default();
            flow.waiting = flow.waiting.saturating_add(1);
            flow.waiting_bytes = flow.waiting_bytes.saturating_add(request.bytes);
        }
        for held in members().flat_map(|member| member.held.values()) {
            let (pool, band) = key(&held.request);
            let flow = flows.entry((pool, band, &held.request.flow)).or_default();
            flow.in_flight = flow.in_flight.saturating_add(1);
            flow.in_flight_tokens = flow.in_flight_tokens.saturating_add(held.request.tokens);
        }
        flows
    }

    /// What is left of a budget; below 0 if it is overdrawn. What workers were lent and did not use is left.
    pub fn remaining(&mut self, ask: &Ask, now_ms: u64) -> i64 {
        let lent = self.budget_leases.lent(ask.bucket);
        self.budgets.level(ask, now_ms).balance.saturating_add_unsigned(lent)
    }
}
