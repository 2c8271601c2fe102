//! Flow control of a pool, compiled from `EndpointPickerConfig.flowControl` (llm-d-router, `pkg/epp/flowcontrol`).

use super::plugin::{Detector, Fairness, Ordering, UsageLimit};
use serde::{Deserialize, Serialize};

/// How long a request waits at most where nothing else is configured, in ms: llm-d's default.
pub const DEFAULT_REQUEST_TTL_MS: u64 = 60_000;

/// Who waits when a pool is full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowControl {
    /// Index of the scheduler whose pools it is about.
    pub scheduler: usize,
    /// Bytes of waiting bodies at most; 0 = any number.
    pub max_bytes: u64,
    /// Waiting requests at most; 0 = any number.
    pub max_requests: u64,
    /// How long a request waits at most, in ms; 0 = for ever.
    pub request_ttl_ms: u64,
    /// The same while the pool has no endpoint.
    pub no_endpoint_ttl_ms: u64,
    /// Bands that are configured, highest priority first. 0 is always among them.
    pub bands: Vec<Band>,
    /// For priorities of objectives that have no band of their own.
    pub default_band: BandLimits,
    /// The same for negative ones, if it is another.
    #[serde(default)]
    pub default_negative_band: Option<BandLimits>,
    /// When the pool is full.
    pub detector: Detector,
    /// Up to which saturation each priority is let through.
    pub usage_limit: UsageLimit,
    /// Requests in flight may be ended for higher priorities.
    #[serde(default)]
    pub eviction: bool,
}

/// A band of one priority.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// Its priority.
    pub priority: i32,
    /// Its limits and policies.
    pub limits: BandLimits,
}

/// Limits and policies of a band.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BandLimits {
    /// Bytes of waiting bodies at most.
    pub max_bytes: u64,
    /// Waiting requests at most.
    pub max_requests: u64,
    /// Which flow goes next.
    pub fairness: Fairness,
    /// Which request of a flow goes next.
    pub ordering: Ordering,
}

impl Default for BandLimits {
    /// llm-d's defaults.
    fn default() -> Self {
        Self {
            max_bytes: 1_000_000_000,
            max_requests: 5000,
            fairness: Fairness::GlobalStrict,
            ordering: Ordering::FirstCome,
        }
    }
}
