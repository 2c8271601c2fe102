//! How queues and pools stand, for the page and the metrics.

use super::Dispatcher;
use crate::flow_control::protocol::PoolKey;

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

/// Requests of a flow that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLength {
    /// Pool.
    pub pool: PoolKey,
    /// Priority.
    pub priority: i32,
    /// Fairness ID.
    pub flow: String,
    /// How many.
    pub requests: usize,
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

    /// Who waits where.
    pub fn queue_lengths(&self) -> impl Iterator<Item = QueueLength> {
        self.gates.iter().flat_map(|(pool, gate)| {
            gate.bands().flat_map(move |(priority, band)| {
                band.queue_lengths().map(move |(flow, requests)| QueueLength {
                    pool: *pool,
                    priority,
                    flow: flow.to_owned(),
                    requests,
                })
            })
        })
    }
}
