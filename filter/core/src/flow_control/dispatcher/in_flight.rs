//! What is in flight in a pool: dispatched and not released. Exact, and the dispatcher's own.

use crate::flow_control::policy::saturation::{self, EndpointLoad, InFlight, Role, fuller_part};
use crate::flow_control::protocol::TicketId;
use std::collections::{BTreeMap, BTreeSet};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::plugin::{
    ConcurrencyDetector, ConcurrencyMode, Detector, UtilizationDetector,
};

/// Requests and their tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count {
    pub(super) requests: u64,
    pub(super) tokens: u64,
}

impl Count {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn shared_by(self, n: usize) -> InFlight {
        let n = n.max(1) as f64;
        InFlight { requests: self.requests as f64 / n, tokens: self.tokens as f64 / n }
    }
}

/// The counts of a pool.
#[derive(Debug, Default)]
pub(super) struct PoolInFlight {
    total: Count,
    /// Of requests whose endpoint was not told.
    unplaced: Count,
    placed: BTreeMap<EndpointId, Count>,
    /// When requests in flight were dispatched.
    dispatched: BTreeSet<(u64, TicketId)>,
}

impl PoolInFlight {
    pub(super) fn total(&self) -> Count {
        self.total
    }

    pub(super) fn start(&mut self, id: TicketId, tokens: u64, at_ms: u64, places: &[EndpointId]) {
        let one = Count { requests: 1, tokens };
        self.total = self.total.plus(one);
        self.dispatched.insert((at_ms, id));
        self.place(one, places);
    }

    pub(super) fn finish(&mut self, id: TicketId, tokens: u64, at_ms: u64, places: &[EndpointId]) {
        let one = Count { requests: 1, tokens };
        self.total = self.total.minus(one);
        self.dispatched.remove(&(at_ms, id));
        self.unplace(one, places);
    }

    pub(super) fn moved(&mut self, tokens: u64, from: &[EndpointId], to: &[EndpointId]) {
        let one = Count { requests: 1, tokens };
        self.unplace(one, from);
        self.place(one, to);
    }

    fn place(&mut self, one: Count, places: &[EndpointId]) {
        if places.is_empty() {
            self.unplaced = self.unplaced.plus(one);
        }
        for id in places {
            let count = self.placed.entry(*id).or_default();
            *count = count.plus(one);
        }
    }

    fn unplace(&mut self, one: Count, places: &[EndpointId]) {
        if places.is_empty() {
            self.unplaced = self.unplaced.minus(one);
        }
        for id in places {
            if let Some(count) = self.placed.get_mut(id) {
                *count = count.minus(one);
                if count.requests == 0 {
                    self.placed.remove(id);
                }
            }
        }
    }

    /// How full the pool is if what is leased counts as in flight: the fuller of those that prefill and those that
    /// decode. With no such endpoints, all of them.
    pub(super) fn saturation(
        &self,
        detector: &Detector,
        endpoints: &[EndpointLoad],
        leased: Count,
        now_ms: u64,
    ) -> f64 {
        let role = |endpoint: &EndpointLoad| endpoint.role;
        fuller_part(endpoints, role, |part| self.saturation_of(detector, part, leased, now_ms))
    }

    fn saturation_of(
        &self,
        detector: &Detector,
        part: &[&EndpointLoad],
        leased: Count,
        now_ms: u64,
    ) -> f64 {
        match detector {
            Detector::Concurrency(detector) => self.concurrency(detector, part, leased),
            Detector::Utilization(detector) => {
                let metrics: Vec<_> =
                    part.iter().map(|e| e.utilization(detector, now_ms)).collect();
                let unseen = self.unseen(part, leased);
                saturation::by_metrics(detector, &metrics, unseen.into_iter(), |blind| {
                    self.concurrency(blind, part, leased)
                })
            }
        }
    }

    fn concurrency(
        &self,
        detector: &ConcurrencyDetector,
        part: &[&EndpointLoad],
        leased: Count,
    ) -> f64 {
        let placed = |e: &&EndpointLoad| self.placed.get(&e.id).copied().unwrap_or_default();
        let unplaced = self.unplaced.plus(leased);
        let sum = part.iter().map(placed).fold(unplaced, Count::plus).shared_by(1);
        let rest = unplaced.shared_by(part.len());
        let each = part.iter().map(|e| {
            let own = placed(e).shared_by(1);
            InFlight { requests: own.requests + rest.requests, tokens: own.tokens + rest.tokens }
        });
        saturation::concurrency(detector, sum, each)
    }

    /// Requests in flight that an endpoint's scrape could not show yet, on the average: metrics move long after the
    /// dispatch, and until then any number would go.
    #[allow(clippy::cast_precision_loss)]
    fn unseen(&self, part: &[&EndpointLoad], leased: Count) -> Vec<f64> {
        let n = part.len().max(1) as f64;
        let oldest = part.iter().filter_map(|e| e.scraped_ms).min().unwrap_or(0);
        let since: Vec<u64> = self
            .dispatched
            .range((oldest, TicketId::default())..)
            .map(|(at_ms, _)| *at_ms)
            .collect();
        let of = |endpoint: &&EndpointLoad| {
            let scraped = endpoint.scraped_ms.unwrap_or(0);
            let seen = since.partition_point(|at_ms| *at_ms < scraped);
            let unseen = since.len().saturating_sub(seen) as u64;
            unseen.saturating_add(leased.requests) as f64 / n
        };
        part.iter().map(of).collect()
    }
}

/// Whether the detector needs to be told where requests went. `roles`: of the pool's endpoints, asked for only if they
/// decide it.
#[must_use]
pub fn places_matter<R>(detector: &Detector, roles: impl FnOnce() -> R) -> bool
where
    R: IntoIterator<Item = Role>,
{
    let Detector::Concurrency(detector) = detector else { return false };
    if detector.mode == ConcurrencyMode::Hybrid {
        return true;
    }
    let (mut prefills, mut does_one) = (false, false);
    for role in roles() {
        prefills |= role.serves(true);
        does_one |= role.serves(true) != role.serves(false);
    }
    prefills && does_one
}

/// How many endpoints' metrics are missing or stale for the detector; none if it needs no metrics.
pub(super) fn stale(detector: &Detector, endpoints: &[EndpointLoad], now_ms: u64) -> usize {
    let stale = |d: &UtilizationDetector| {
        endpoints.iter().filter(|e| e.utilization(d, now_ms).is_none()).count()
    };
    if let Detector::Utilization(detector) = detector { stale(detector) } else { 0 }
}
