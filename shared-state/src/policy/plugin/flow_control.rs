//! Flow control: when the pool is full, who waits, who goes next, who is thrown out.

use super::parameters::Parameters;
use super::{Kind, PluginError, References};
use serde::{Deserialize, Serialize};

/// A saturation detector. Named in a profile it is a filter, too.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Detector {
    /// `utilization-detector`.
    Utilization(UtilizationDetector),
    /// `concurrency-detector`.
    Concurrency(ConcurrencyDetector),
}

impl Default for Detector {
    /// llm-d's: `utilization-detector` as it is without parameters.
    fn default() -> Self {
        Self::Utilization(UtilizationDetector::default())
    }
}

impl Detector {
    /// As a filter: whether everybody is kept where nobody has room.
    #[must_use]
    pub fn fails_open(&self) -> bool {
        matches!(self, Self::Utilization(_))
    }
}

/// Parameters of `utilization-detector`: an endpoint's saturation is the greater of waiting requests and KV
/// utilization over their thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UtilizationDetector {
    /// Waiting requests of a full endpoint. Default: 5.
    pub queue_depth_threshold: f64,
    /// KV utilization of a full endpoint, above 0 up to 1. Default: 0.8.
    pub kv_cache_util_threshold: f64,
    /// Metrics older than this, in ms, say nothing. Default: 200.
    pub metrics_staleness_threshold_ms: f64,
    /// As a filter: the thresholds may be passed by this share. Default: 0.
    pub headroom: f64,
}

impl Default for UtilizationDetector {
    fn default() -> Self {
        Self {
            queue_depth_threshold: 5.0,
            kv_cache_util_threshold: 0.8,
            metrics_staleness_threshold_ms: 200.0,
            headroom: 0.0,
        }
    }
}

/// Parameters of `concurrency-detector`: saturation is what is in flight over what may be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ConcurrencyDetector {
    /// What is counted. Default: requests.
    pub mode: ConcurrencyMode,
    /// Requests in flight at a full endpoint. Default: 100.
    pub max_concurrency: u64,
    /// Tokens in flight at a full endpoint. Default: 1,000,000.
    pub max_token_concurrency: u64,
    /// As a filter: the limits may be passed by this share. Default: 0.
    pub headroom: f64,
}

/// What [`ConcurrencyDetector`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConcurrencyMode {
    /// `requests`.
    Requests,
    /// `tokens`.
    Tokens,
    /// `hybrid`: the greater of both ratios.
    Hybrid,
}

/// Which flow of a band goes next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Fairness {
    /// `global-strict-fairness-policy`: the first of all flows, by the ordering policy.
    GlobalStrict,
    /// `round-robin-fairness-policy`: one flow after the other.
    RoundRobin,
    /// `program-aware-fairness`: the flow with the least service.
    ProgramAware(ProgramAware),
    /// `weighted-token-fairness-policy`, Warmroute's own: tokens in proportion to weights.
    WeightedToken {
        /// Weights by fairness id, above 0.
        weights: Vec<(String, f64)>,
        /// Weight of all others. Default: 1.
        default_weight: f64,
    },
}

/// Parameters of `program-aware-fairness` with its only strategy, `las`: score = 0.8 × (1 - service) + 0.2 × wait.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProgramAware {
    /// A flow without requests is forgotten after so many seconds; 0: never. Default: 3,600.
    pub eviction_ttl_seconds: f64,
    /// Weight of the service received. Default: 0.8.
    pub las_weight_service: f64,
    /// Weight of the wait of its first request. Default: 0.2.
    pub las_weight_head_wait: f64,
    /// Seconds after which service counts half; 0: never. Default: 60.
    pub las_half_life_seconds: f64,
}

/// Which request of a flow goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ordering {
    /// `fcfs-ordering-policy`: who came first.
    FirstCome,
    /// `edf-ordering-policy`: whose time to live ends first.
    EarliestDeadline,
    /// `slo-deadline-ordering-policy`: whose time to first token ends first.
    SloDeadline,
}

/// Up to which saturation each priority is let through.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum UsageLimit {
    /// `static-usage-limit-policy`: all up to the same.
    Static {
        /// Saturation. Default: 1.
        threshold: f64,
    },
    /// `priority-holdback-policy`: the lower the priority, the sooner it waits.
    PriorityHoldback {
        /// By the priorities' values; the default is by their rank.
        by_value: bool,
        /// Ceiling of the lowest priority, from 0, below 1.
        min_ceiling: f64,
        /// Ceiling of the highest. Default: 1.
        max_ceiling: f64,
    },
    /// `soft-reflective-ceiling-policy`: lower priorities are let through now and then.
    SoftReflective,
}

/// Which requests in flight may be ended for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Eviction {
    /// `sheddable-eviction-filter`: those of a priority below 0.
    Sheddable,
    /// `priority-then-time-eviction-order-policy`: lowest priority first, then the newest.
    PriorityThenTime,
}

/// Parameters of `probabilistic-admitter`: requests of a priority below 0 are refused with the probability
/// `min(saturation ^ power × k, 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProbabilisticAdmitter {
    /// Waiting requests of a full endpoint. Default: 5.
    pub queue_depth_threshold: f64,
    /// KV utilization of a full endpoint. Default: 0.8.
    pub kv_cache_util_threshold: f64,
    /// Default: 5.
    pub power: f64,
    /// Default: 300.
    pub k: f64,
}

const POSITIVE: &str = "a number above 0";
const NOT_NEGATIVE: &str = "a number, 0 or more";

#[allow(clippy::cast_precision_loss)]
pub(super) fn utilization_detector(p: &Parameters<'_>) -> Result<Detector, PluginError> {
    let default = UtilizationDetector::default();
    let stale = p.duration("metricsStalenessThreshold")?;
    let stale = stale.map_or(default.metrics_staleness_threshold_ms, |d| d.as_secs_f64() * 1000.0);
    if stale <= 0.0 {
        return Err(p.refuse("metricsStalenessThreshold", "a duration above 0, like `200ms`"));
    }
    Ok(Detector::Utilization(UtilizationDetector {
        queue_depth_threshold: p.count("queueDepthThreshold", 5, 1)? as f64,
        kv_cache_util_threshold: p.number_that(
            "kvCacheUtilThreshold",
            default.kv_cache_util_threshold,
            "a number above 0, at most 1",
            |n| n > 0.0 && n <= 1.0,
        )?,
        metrics_staleness_threshold_ms: stale,
        headroom: p.number_that("headroom", default.headroom, NOT_NEGATIVE, |n| n >= 0.0)?,
    }))
}

pub(super) fn concurrency_detector(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<Detector, PluginError> {
    references.add(p, "inFlightLoadProducerName", Kind::InflightLoad)?;
    let modes = [
        ("requests", ConcurrencyMode::Requests),
        ("tokens", ConcurrencyMode::Tokens),
        ("hybrid", ConcurrencyMode::Hybrid),
    ];
    Ok(Detector::Concurrency(ConcurrencyDetector {
        mode: p.one_of("concurrencyMode", Some(ConcurrencyMode::Requests), &modes)?,
        max_concurrency: p.count("maxConcurrency", 100, 1)?,
        max_token_concurrency: p.count("maxTokenConcurrency", 1_000_000, 1)?,
        headroom: p.number_that("headroom", 0.0, NOT_NEGATIVE, |n| n >= 0.0)?,
    }))
}

pub(super) fn program_aware(p: &Parameters<'_>) -> Result<Fairness, PluginError> {
    p.one_of("strategy", Some(()), &[("las", ())])?;
    p.number_that("evictionSweepSeconds", 300.0, POSITIVE, |n| n > 0.0)?;
    let number = |name, default| p.number_that(name, default, NOT_NEGATIVE, |n| n >= 0.0);
    Ok(Fairness::ProgramAware(ProgramAware {
        eviction_ttl_seconds: number("evictionTtlSeconds", 3600.0)?,
        las_weight_service: number("lasWeightService", 0.8)?,
        las_weight_head_wait: number("lasWeightHeadWait", 0.2)?,
        las_half_life_seconds: number("lasHalfLifeSeconds", 60.0)?,
    }))
}

/// A weight beyond these bounds makes one tenant's turn endless.
const WEIGHTS: core::ops::RangeInclusive<f64> = 0.001..=1_000_000.0;

pub(super) fn weighted_token(p: &Parameters<'_>) -> Result<Fairness, PluginError> {
    let what = "a number from 0.001 to 1000000";
    let weights = p.number_map("weights")?;
    if let Some((id, _)) = weights.iter().find(|(_, weight)| !WEIGHTS.contains(weight)) {
        return Err(p.refuse(&format!("weights.{id}"), what));
    }
    let default_weight = p.number_that("defaultWeight", 1.0, what, |n| WEIGHTS.contains(&n))?;
    Ok(Fairness::WeightedToken { weights, default_weight })
}

pub(super) fn static_limit(p: &Parameters<'_>) -> Result<UsageLimit, PluginError> {
    let threshold = p.number_that("threshold", 1.0, NOT_NEGATIVE, |n| n >= 0.0)?;
    Ok(UsageLimit::Static { threshold })
}

pub(super) fn priority_holdback(p: &Parameters<'_>) -> Result<UsageLimit, PluginError> {
    p.one_of("shape", Some(()), &[("linear", ())])?;
    let by_value = p.one_of("domain", Some(false), &[("rank", false), ("value", true)])?;
    let min_ceiling =
        p.number_that("minCeiling", -1.0, "a number from 0, below 1; it must be given", |n| {
            (0.0..1.0).contains(&n)
        })?;
    let max_ceiling =
        p.number_that("maxCeiling", 1.0, "a number above `minCeiling`, at most 1", |n| {
            n > min_ceiling && n <= 1.0
        })?;
    Ok(UsageLimit::PriorityHoldback { by_value, min_ceiling, max_ceiling })
}

#[allow(clippy::cast_precision_loss)]
pub(super) fn probabilistic_admitter(
    p: &Parameters<'_>,
) -> Result<ProbabilisticAdmitter, PluginError> {
    let number = |name, default| p.number_that(name, default, POSITIVE, |n| n > 0.0);
    Ok(ProbabilisticAdmitter {
        queue_depth_threshold: p.count("queueDepthThreshold", 5, 1)? as f64,
        kv_cache_util_threshold: number("kvCacheUtilThreshold", 0.8)?,
        power: number("power", 5.0)?,
        k: number("k", 300.0)?,
    })
}
