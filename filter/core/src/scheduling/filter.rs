//! Filters: who stays a candidate. What an engine did not report takes nobody away.

use super::candidate::chance;
use super::prefix_affinity::prefix_affinity;
use super::saturation::has_room;
use super::session::pinned;
use super::{Candidate, Situation};
use warmroute_shared_state::policy::plugin::{
    AttributeThreshold, ByLabel, ContextLength, Filter, Metric, ROLE_LABEL, Utilization,
};

/// Header of `header-based-testing-filter`: IPs, or IPs with ports.
const TESTING_HEADER: &str = "test-epp-endpoint-selection";

/// Takes those that a filter does not keep out of `kept`, places in the situation's candidates. `instance` is the
/// plugin's name.
pub(super) fn apply(
    filter: &Filter,
    instance: &str,
    situation: &Situation<'_, '_>,
    kept: &mut Vec<usize>,
    random: &mut dyn FnMut() -> u64,
) {
    match filter {
        Filter::Role(role) => retain(situation, kept, |c| role.fits(c.label(ROLE_LABEL))),
        Filter::LabelSelector(selector) => {
            retain(situation, kept, |c| selector.matches(|key| c.label(key)));
        }
        Filter::ByLabel(by_label) => retain(situation, kept, |c| has_label(by_label, c)),
        Filter::Utilization(utilization) => {
            let fits = |c: &Candidate<'_>| is_below(utilization, c);
            retain_or_all(situation, kept, utilization.fallback_on_empty, fits);
        }
        Filter::EndpointAttribute(threshold) => {
            let fits = |c: &Candidate<'_>| attribute_fits(threshold, c);
            retain_or_all(situation, kept, threshold.fallback_on_empty, fits);
        }
        Filter::PrefixCacheAffinity(affinity) => {
            prefix_affinity(affinity, situation, kept, || chance(random));
        }
        Filter::SessionAffinity(affinity) => {
            if let Some(at) = pinned(affinity, instance, situation, kept) {
                kept.retain(|kept| *kept == at);
            }
        }
        Filter::ContextLength(length) => retain(situation, kept, |c| holds(length, c)),
        Filter::HeaderBasedTesting => {
            let listed = situation.request.header(TESTING_HEADER).unwrap_or_default();
            retain(situation, kept, |c| is_listed(listed, c.address));
        }
        Filter::Detector(detector) => {
            let fails_open = detector.fails_open();
            retain_or_all(situation, kept, fails_open, |c| has_room(detector, c));
        }
    }
}

fn retain(
    situation: &Situation<'_, '_>,
    kept: &mut Vec<usize>,
    fits: impl Fn(&Candidate<'_>) -> bool,
) {
    kept.retain(|at| situation.candidates.get(*at).is_some_and(&fits));
}

/// Keeps those that fit; if nobody does and `all` says so, everybody.
fn retain_or_all(
    situation: &Situation<'_, '_>,
    kept: &mut Vec<usize>,
    all: bool,
    fits: impl Fn(&Candidate<'_>) -> bool,
) {
    if !all || situation.at(kept).any(&fits) {
        retain(situation, kept, fits);
    }
}

fn has_label(by_label: &ByLabel, candidate: &Candidate<'_>) -> bool {
    match candidate.label(&by_label.label) {
        Some(value) => by_label.valid_values.iter().any(|valid| valid == value),
        // Upstream reads a missing label as an empty one.
        None => by_label.allows_no_label || by_label.valid_values.iter().any(String::is_empty),
    }
}

fn is_below(utilization: &Utilization, candidate: &Candidate<'_>) -> bool {
    utilization.conditions.iter().all(|condition| {
        let value = match condition.metric {
            Metric::ActiveRequests => Some(f64::from(candidate.active_requests)),
            Metric::RunningRequests => candidate.running.map(f64::from),
            Metric::WaitingQueue => {
                let since = f64::from(candidate.waiting_since_scrape);
                Some(candidate.waiting.map_or(since, f64::from))
            }
            Metric::KvCacheUtilization => candidate.kv_usage.map(f64::from),
        };
        // NaN says nothing.
        value.is_none_or(|value| value.is_nan() || value <= condition.max_value)
    })
}

fn attribute_fits(threshold: &AttributeThreshold, candidate: &Candidate<'_>) -> bool {
    match candidate.signals.attribute(&threshold.attribute) {
        Some(value) => threshold.operator.holds(value, threshold.value),
        None => threshold.keep_missing,
    }
}

/// Whether the prompt is in the range of the candidate's label; a label that is no range holds nothing.
fn holds(length: &ContextLength, candidate: &Candidate<'_>) -> bool {
    match candidate.label(&length.label) {
        None => true,
        Some(label) => context_range(label)
            .is_some_and(|(min, max)| (min..=max).contains(&candidate.prompt_tokens)),
    }
}

/// Reads a range of prompt tokens, `min-max`.
pub(super) fn context_range(label: &str) -> Option<(u64, u64)> {
    let (min, max) = label.split_once('-')?;
    let (min, max) = (min.trim().parse().ok()?, max.trim().parse().ok()?);
    (min <= max).then_some((min, max))
}

fn is_listed(listed: &str, address: &str) -> bool {
    let ip = address.rsplit_once(':').map_or(address, |(ip, _)| ip);
    listed.split(',').map(str::trim).any(|one| one == address || one == ip)
}
