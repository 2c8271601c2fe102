//! Scorers by load.

use super::{Situation, each, mean};
use crate::scheduling::Candidate;
use warmroute_shared_state::policy::plugin::ActiveRequest;

/// Waiting requests, and those picked since the scrape, which count even if the scrape said nothing.
pub(super) fn waiting(candidate: &Candidate<'_>) -> (Option<f64>, f64) {
    let known = candidate.waiting.map(f64::from).filter(|value| value.is_finite());
    (known, f64::from(candidate.waiting_since_scrape))
}

/// Running requests.
pub(super) fn running(candidate: &Candidate<'_>) -> (Option<f64>, f64) {
    (candidate.running.map(f64::from).filter(|value| value.is_finite()), 0.0)
}

/// Min-max over the candidates: (max - value) / (max - min); all equal: 1. `value` gives what is known, and what
/// comes on top of the mean if nothing is.
pub(super) fn fewest(
    situation: &Situation<'_, '_>,
    kept: &[usize],
    scores: &mut [f64],
    value: impl Fn(&Candidate<'_>) -> (Option<f64>, f64),
) {
    let neutral = mean(situation.at(kept).filter_map(|c| value(c).0)).unwrap_or(0.0);
    let value = |c: &Candidate<'_>| {
        let (known, since) = value(c);
        known.unwrap_or(neutral + since)
    };
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    for candidate in situation.at(kept) {
        min = min.min(value(candidate));
        max = max.max(value(candidate));
    }
    let range = max - min;
    each(situation, kept, scores, |c| if range > 0.0 { (max - value(c)) / range } else { 1.0 });
}

/// What is free of the KV cache.
pub(super) fn kv_cache(situation: &Situation<'_, '_>, kept: &[usize], scores: &mut [f64]) {
    let usage = |c: &Candidate<'_>| c.kv_usage.map(f64::from).filter(|usage| usage.is_finite());
    let neutral = mean(situation.at(kept).filter_map(usage)).unwrap_or(0.0);
    each(situation, kept, scores, |c| 1.0 - usage(c).unwrap_or(neutral));
}

/// Half of what is left below the threshold of waiting requests.
#[allow(clippy::cast_precision_loss)]
pub(super) fn load_aware(
    threshold: u64,
    situation: &Situation<'_, '_>,
    kept: &[usize],
    scores: &mut [f64],
) {
    let neutral = mean(situation.at(kept).filter_map(|c| waiting(c).0)).unwrap_or(0.0);
    let threshold = threshold.max(1) as f64;
    each(situation, kept, scores, |c| {
        let (known, since) = waiting(c);
        0.5 * (1.0 - (known.unwrap_or(neutral + since) / threshold).min(1.0))
    });
}

/// 1 for the idle; else what lacks to the busiest one's requests, in its share.
#[allow(clippy::cast_precision_loss)]
pub(super) fn active_requests(
    active: ActiveRequest,
    situation: &Situation<'_, '_>,
    kept: &[usize],
    scores: &mut [f64],
) {
    let requests = |c: &Candidate<'_>| f64::from(c.active_requests);
    let most = situation.at(kept).map(requests).fold(0.0, f64::max);
    each(situation, kept, scores, |c| {
        if u64::from(c.active_requests) <= active.idle_threshold || most <= 0.0 {
            1.0
        } else {
            (most - requests(c)) / most * active.max_busy_score
        }
    });
}

/// What is left below the threshold of tokens in flight, those of this request included.
#[allow(clippy::cast_precision_loss)]
pub(super) fn token_load(threshold: u64, candidate: &Candidate<'_>) -> f64 {
    let tokens = candidate.uncached_tokens.saturating_add(candidate.request_tokens());
    1.0 - (tokens as f64 / threshold.max(1) as f64).min(1.0)
}
