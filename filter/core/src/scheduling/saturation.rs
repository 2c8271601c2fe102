//! Saturation detectors: how full a pool is, and, named in a profile, who has room left.

use super::Candidate;
use warmroute_shared_state::policy::plugin::{
    ConcurrencyDetector, ConcurrencyMode, Detector, UtilizationDetector,
};

/// How full the pool is: 1 = full. Above 1 there is more than it can take. A pool without endpoints is full.
///
/// An endpoint whose metrics are missing or too old counts as full, as in llm-d: here the question is whether the
/// pool can be trusted with more, not which endpoint is best.
#[must_use]
pub fn saturation(detector: &Detector, candidates: &[Candidate<'_>]) -> f64 {
    let each = candidates.iter().map(|candidate| match detector {
        Detector::Utilization(detector) => utilization(detector, candidate).unwrap_or(1.0),
        Detector::Concurrency(detector) => concurrency(detector, candidate),
    });
    mean(each).unwrap_or(1.0)
}

/// The mean; `None` of nothing.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for value in values {
        sum += value;
        count = count.saturating_add(1);
    }
    (count > 0).then(|| sum / f64::from(count))
}

/// The greater of both ratios; `None` if the metrics are missing or too old.
#[allow(clippy::cast_precision_loss)]
fn utilization(detector: &UtilizationDetector, candidate: &Candidate<'_>) -> Option<f64> {
    let age_ms = candidate.scrape_age_ms? as f64;
    if age_ms > detector.metrics_staleness_threshold_ms {
        return None;
    }
    let queue = f64::from(candidate.waiting?) / detector.queue_depth_threshold;
    let kv = f64::from(candidate.kv_usage?) / detector.kv_cache_util_threshold;
    Some(queue.max(kv))
}

#[allow(clippy::cast_precision_loss)]
fn concurrency(detector: &ConcurrencyDetector, candidate: &Candidate<'_>) -> f64 {
    let requests = f64::from(candidate.active_requests) / detector.max_concurrency as f64;
    let tokens = candidate.uncached_tokens as f64 / detector.max_token_concurrency as f64;
    match detector.mode {
        ConcurrencyMode::Requests => requests,
        ConcurrencyMode::Tokens => tokens,
        ConcurrencyMode::Hybrid => requests.max(tokens),
    }
}

/// As a filter: whether a candidate has room left, the headroom included.
#[allow(clippy::cast_precision_loss)]
pub(super) fn has_room(detector: &Detector, candidate: &Candidate<'_>) -> bool {
    match detector {
        // Strictly below both thresholds, each raised by the headroom.
        Detector::Utilization(detector) => {
            utilization(detector, candidate).is_some_and(|ratio| ratio < 1.0 + detector.headroom)
        }
        Detector::Concurrency(detector) => {
            let room = 1.0 + detector.headroom;
            let limit = |most: u64| (most as f64 * room).trunc();
            let requests = f64::from(candidate.active_requests) < limit(detector.max_concurrency);
            let tokens = (candidate.uncached_tokens as f64) < limit(detector.max_token_concurrency);
            match detector.mode {
                ConcurrencyMode::Requests => requests,
                ConcurrencyMode::Tokens => tokens,
                ConcurrencyMode::Hybrid => requests && tokens,
            }
        }
    }
}
