//! `endpoint-attribute-scorer`: a metric that the configuration names.

use super::{Situation, each};
use crate::scheduling::Candidate;
use warmroute_shared_state::policy::plugin::AttributeScore;

/// Linear over a fixed range, or over the candidates' own; all equal: 1. Without the attribute 0, as in llm-d.
pub(super) fn endpoint_attribute(
    wanted: &AttributeScore,
    situation: &Situation<'_, '_>,
    kept: &[usize],
    scores: &mut [f64],
) {
    let value = |c: &Candidate<'_>| {
        c.signals.attribute(&wanted.attribute).filter(|value| value.is_finite())
    };
    let (min, max) = wanted.fixed_range.unwrap_or_else(|| {
        situation
            .at(kept)
            .filter_map(value)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |r, v| (r.0.min(v), r.1.max(v)))
    });
    let range = max - min;
    each(situation, kept, scores, |c| match value(c) {
        None => 0.0,
        Some(_) if range <= 0.0 => 1.0,
        Some(value) => {
            let place = ((value - min) / range).clamp(0.0, 1.0);
            if wanted.lower_is_better { 1.0 - place } else { place }
        }
    });
}
