//! Flow control of one pool: who waits, what is in flight, who goes next.

use super::band::Band;
use super::in_flight::{Count, PoolInFlight, stale};
use super::reclamation::Reclamation;
use crate::flow_control::policy::ceiling::Ceilings;
use crate::flow_control::policy::saturation::EndpointLoad;
use crate::flow_control::protocol::{DropReason, Request, TicketId, Usage};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::flow::{BandLimits, FlowControl};
use warmroute_shared_state::policy::plugin::{ConcurrencyMode, Detector};

/// Up to which part of its lowest ceiling a pool may be filled by what is leased in advance.
const LEASED_UP_TO: f64 = 0.5;
/// Slots leased to one worker at most.
const MAX_LEASED_SLOTS: u64 = 16;
/// Priorities of a pool at most: bands exist from the start, for each configured one and each objective's.
const MAX_BANDS: usize = 256;

/// A dispatched request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) request: Rc<Request>,
    pub(super) endpoints: Vec<EndpointId>,
    pub(super) dispatched_ms: u64,
}

/// What a gate decides next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// This request goes.
    Dispatch(TicketId, Rc<Request>),
    /// These are to be ended for who waits.
    Evict(Vec<TicketId>),
    /// Nobody waits, or nobody may go.
    Rest,
}

/// A pool's queue and counts.
#[derive(Debug)]
pub(super) struct Gate {
    config: FlowControl,
    objectives: Vec<i32>,
    bands: BTreeMap<Reverse<i32>, Band>,
    ceilings: Ceilings,
    endpoints: Vec<EndpointLoad>,
    in_flight: PoolInFlight,
    reclamation: Reclamation,
    /// What each worker may use without asking.
    leases: BTreeMap<u64, Count>,
    /// Those who were told that it is wanted back.
    recalled: BTreeSet<u64>,
}

impl Gate {
    pub(super) fn new(config: &FlowControl, objectives: &[i32]) -> Self {
        let default = &config.default_band;
        let negative = config.default_negative_band.as_ref().unwrap_or(default);
        let by_default = |p: i32| if p < 0 { negative } else { default };
        let mut bands = BTreeMap::from([(Reverse(0), Band::new(BandLimits::clone(default)))]);
        for priority in objectives.iter().take(MAX_BANDS) {
            bands.insert(Reverse(*priority), Band::new(by_default(*priority).clone()));
        }
        for band in config.bands.iter().take(MAX_BANDS) {
            bands.insert(Reverse(band.priority), Band::new(band.limits.clone()));
        }
        Self {
            config: config.clone(),
            objectives: objectives.to_vec(),
            bands,
            ceilings: Ceilings::new(config.usage_limit),
            endpoints: Vec::new(),
            in_flight: PoolInFlight::default(),
            reclamation: Reclamation::default(),
            leases: BTreeMap::new(),
            recalled: BTreeSet::new(),
        }
    }

    pub(super) fn is(&self, config: &FlowControl, objectives: &[i32]) -> bool {
        self.config == *config && self.objectives == objectives
    }

    pub(super) fn set_endpoints(&mut self, endpoints: &[EndpointLoad]) {
        self.endpoints = endpoints.to_vec();
    }

    pub(super) fn endpoints(&self) -> &[EndpointLoad] {
        &self.endpoints
    }

    /// A priority that has no band waits in band 0.
    pub(super) fn band_of(&self, priority: i32) -> i32 {
        if self.bands.contains_key(&Reverse(priority)) { priority } else { 0 }
    }

    fn band(&mut self, priority: i32) -> Option<&mut Band> {
        let priority = self.band_of(priority);
        self.bands.get_mut(&Reverse(priority))
    }

    pub(super) fn waiting(&self) -> u64 {
        self.bands.values().fold(0, |sum, band| sum.saturating_add(band.requests()))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.bands.values().all(Band::is_empty)
    }

    pub(super) fn push(&mut self, id: TicketId, request: Rc<Request>) {
        if let Some(band) = self.band(request.priority) {
            band.push(id, request);
        }
    }

    pub(super) fn remove(&mut self, id: TicketId, like: &Request) -> Option<Rc<Request>> {
        self.band(like.priority)?.remove(id, like)
    }

    /// Why the request that came last may not wait, if it may not.
    pub(super) fn overflow(&self, request: &Request) -> Option<DropReason> {
        let over = |value: u64, limit: u64| limit > 0 && value > limit;
        let bytes = self.bands.values().fold(0u64, |sum, band| sum.saturating_add(band.bytes()));
        let band = self.bands.get(&Reverse(self.band_of(request.priority)));
        let full = band.is_some_and(Band::overflows)
            || over(self.waiting(), self.config.max_requests)
            || over(bytes, self.config.max_bytes);
        let reason =
            if self.endpoints.is_empty() { DropReason::NoEndpoints } else { DropReason::Saturated };
        full.then_some(reason)
    }

    pub(super) fn saturation(&self, now_ms: u64) -> f64 {
        self.saturation_with(Count::default(), now_ms)
    }

    fn saturation_with(&self, more: Count, now_ms: u64) -> f64 {
        let leased = self.leases.values().copied().fold(more, Count::plus);
        self.in_flight.saturation(&self.config.detector, &self.endpoints, leased, now_ms)
    }

    pub(super) fn stale_endpoints(&self, now_ms: u64) -> usize {
        stale(&self.config.detector, &self.endpoints, now_ms)
    }

    /// The next decision. Strict priority: a band that is blocked blocks all below it.
    pub(super) fn step(&mut self, now_ms: u64) -> Step {
        if self.is_idle() || self.endpoints.is_empty() {
            return Step::Rest;
        }
        let saturation = self.saturation(now_ms);
        let priorities: Vec<i32> = self.bands.keys().map(|priority| priority.0).collect();
        let ceilings = self.ceilings.decide(saturation, &priorities);
        for (band, ceiling) in self.bands.values_mut().zip(&ceilings) {
            if saturation >= *ceiling {
                break;
            }
            if let Some((id, request)) = band.pop(now_ms) {
                return Step::Dispatch(id, request);
            }
        }
        if !self.config.eviction {
            return Step::Rest;
        }
        // The highest band that waits for capacity, and not for its turn.
        let blocked = self.bands.iter().zip(&ceilings).find(|((_, band), ceiling)| {
            !band.is_empty() && **ceiling > 0.0 && saturation >= **ceiling
        });
        let Some(((priority, _), ceiling)) = blocked else { return Step::Rest };
        let in_flight = self.in_flight.total().requests;
        let victims = self.reclamation.victims(priority.0, saturation, *ceiling, in_flight, now_ms);
        if victims.is_empty() { Step::Rest } else { Step::Evict(victims) }
    }

    /// A request is in flight from now on.
    pub(super) fn start(&mut self, id: TicketId, held: &Held) {
        let request = &held.request;
        self.in_flight.start(id, request.tokens, held.dispatched_ms, &held.endpoints);
        let priority = self.band_of(request.priority);
        self.reclamation.start(id, priority, held.dispatched_ms);
    }

    /// It went without waiting here: from a lease, or it was dispatched by another dispatcher.
    pub(super) fn charge(&mut self, request: &Request) {
        if let Some(band) = self.band(request.priority) {
            band.admitted(request);
        }
    }

    /// A request is in flight no longer. `usage`: what its flow is charged in the end.
    pub(super) fn finish(&mut self, id: TicketId, held: &Held, usage: Usage, now_ms: u64) {
        let request = &held.request;
        self.in_flight.finish(id, request.tokens, held.dispatched_ms, &held.endpoints);
        let priority = self.band_of(request.priority);
        self.reclamation.finish(id, priority, held.dispatched_ms, now_ms);
        if let Some(band) = self.band(priority) {
            band.settled(request, usage, now_ms);
        }
    }

    pub(super) fn moved(&mut self, held: &Held, to: &[EndpointId]) {
        self.in_flight.moved(held.request.tokens, &held.endpoints, to);
    }

    /// Slots and tokens to lease to a worker, one of so many: nothing while somebody waits or the pool fills up. Tokens
    /// are `u64::MAX` where they are not limited.
    pub(super) fn lease(&mut self, worker: u64, workers: u64, now_ms: u64) -> Option<(u32, u64)> {
        if !self.is_idle() || self.endpoints.is_empty() {
            return None;
        }
        let has = self.leases.get(&worker).copied().unwrap_or_default();
        let share = |all: f64| -> u64 {
            #[allow(clippy::cast_precision_loss)]
            let share = all * LEASED_UP_TO / (2.0 * workers.max(1) as f64);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let share = share as u64;
            share
        };
        #[allow(clippy::cast_precision_loss)]
        let n = self.endpoints.len() as f64;
        #[allow(clippy::cast_precision_loss)]
        let (slots, tokens) = match self.config.detector {
            Detector::Utilization(d) => (share(n * d.queue_depth_threshold), None),
            Detector::Concurrency(d) => {
                let (requests, tokens) = (d.max_concurrency as f64, d.max_token_concurrency as f64);
                match d.mode {
                    ConcurrencyMode::Requests => (share(n * requests), None),
                    ConcurrencyMode::Tokens => (MAX_LEASED_SLOTS, Some(share(n * tokens))),
                    ConcurrencyMode::Hybrid => (share(n * requests), Some(share(n * tokens))),
                }
            }
        };
        let wanted = Count { requests: slots.min(MAX_LEASED_SLOTS), tokens: tokens.unwrap_or(0) };
        let more = wanted.minus(has);
        // Not for every slot that was used: half of them at once.
        let worth = more.requests.saturating_mul(2) > wanted.requests
            || more.tokens.saturating_mul(2) > wanted.tokens;
        let ceiling = self.ceilings.least().min(1.0);
        if !worth || self.saturation_with(more, now_ms) > ceiling * LEASED_UP_TO {
            return None;
        }
        self.leases.insert(worker, has.plus(more));
        let tokens = if tokens.is_some() { more.tokens } else { u64::MAX };
        Some((u32::try_from(more.requests).unwrap_or(u32::MAX), tokens))
    }

    /// Whether what a worker was leased may be kept for longer.
    pub(super) fn renews(&self, worker: u64, now_ms: u64) -> bool {
        let ceiling = self.ceilings.least().min(1.0);
        self.leases.contains_key(&worker)
            && self.is_idle()
            && self.saturation(now_ms) <= ceiling * LEASED_UP_TO
    }

    /// A worker used or returned so much of what it was leased.
    pub(super) fn unlease(&mut self, worker: u64, slots: u64, tokens: u64) {
        if let Some(lease) = self.leases.get_mut(&worker) {
            *lease = lease.minus(Count { requests: slots, tokens });
            if lease.requests == 0 {
                self.unlease_all(worker);
            }
        }
    }

    pub(super) fn unlease_all(&mut self, worker: u64) {
        self.leases.remove(&worker);
        self.recalled.remove(&worker);
    }

    /// Workers that have something leased and were not told yet that it is wanted back.
    pub(super) fn recall(&mut self) -> Vec<u64> {
        let holders = self.leases.keys().filter(|worker| !self.recalled.contains(worker));
        let holders: Vec<u64> = holders.copied().collect();
        self.recalled.extend(&holders);
        holders
    }

    /// Another gate of the same pool stood here before.
    pub(super) fn take_leases(&mut self, before: &mut Self) {
        self.leases = std::mem::take(&mut before.leases);
        self.recalled = std::mem::take(&mut before.recalled);
    }

    pub(super) fn in_flight(&self) -> Count {
        self.in_flight.total()
    }

    pub(super) fn forget_idle(&mut self, now_ms: u64) {
        self.bands.values_mut().for_each(|band| band.forget_idle(now_ms));
    }

    /// All that waits; the gate is given up.
    pub(super) fn drain(&mut self) -> Vec<(TicketId, Rc<Request>)> {
        self.bands.values_mut().flat_map(Band::drain).collect()
    }
}
