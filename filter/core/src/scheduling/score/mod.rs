//! Scorers: each gives every candidate 0 to 1; the profile adds them up by weight.
//!
//! Formulas are llm-d-router's. A signal that an engine did not report is neutral: it scores as the mean of those
//! that did, never as the best or the worst.

mod affinity;
mod attribute;
mod cold;
mod load;

use super::session::pinned;
use super::{Candidate, Situation};
use warmroute_shared_state::policy::plugin::Scorer;

/// Scores the candidates at `kept`, in that order, into `scores`, which has as many places. `instance` is the
/// plugin's name. Scores may lie outside 0 to 1.
pub(super) fn score(
    scorer: &Scorer,
    instance: &str,
    situation: &Situation<'_, '_>,
    kept: &[usize],
    scores: &mut [f64],
) {
    let request = situation.request;
    match scorer {
        Scorer::PrefixCache(cache) => each(situation, kept, scores, |c| {
            affinity::prefix_cache(cache, c, request.prompt_blocks)
        }),
        Scorer::Queue => load::fewest(situation, kept, scores, load::waiting),
        Scorer::RunningRequests => load::fewest(situation, kept, scores, load::running),
        Scorer::KvCacheUtilization => load::kv_cache(situation, kept, scores),
        Scorer::LoadAware { threshold } => load::load_aware(*threshold, situation, kept, scores),
        Scorer::ActiveRequest(active) => load::active_requests(*active, situation, kept, scores),
        Scorer::TokenLoad { threshold_tokens } => {
            each(situation, kept, scores, |c| load::token_load(*threshold_tokens, c));
        }
        Scorer::LoraAffinity => affinity::lora(request.target_model, situation, kept, scores),
        Scorer::NoHitLru { .. } => {
            cold::no_hit_lru(situation.state.cold_picks(instance), situation, kept, scores);
        }
        Scorer::SessionAffinity(session) => {
            let pinned = pinned(session, instance, situation, kept);
            for (score, at) in scores.iter_mut().zip(kept) {
                *score = one_if(Some(*at) == pinned);
            }
        }
        Scorer::ContextLength(length) => {
            each(situation, kept, scores, |c| affinity::context_length(&length.label, c));
        }
        Scorer::EndpointAttribute(wanted) => {
            attribute::endpoint_attribute(wanted, situation, kept, scores);
        }
        Scorer::HeaderLabelAffinity { header, label } => {
            let value = request.header(header).filter(|value| !value.is_empty());
            each(situation, kept, scores, |c| one_if(value.is_some() && c.label(label) == value));
        }
    }
}

/// Scores each candidate by itself.
fn each(
    situation: &Situation<'_, '_>,
    kept: &[usize],
    scores: &mut [f64],
    score: impl Fn(&Candidate<'_>) -> f64,
) {
    for (place, candidate) in scores.iter_mut().zip(situation.at(kept)) {
        *place = score(candidate);
    }
}

/// The mean; `None` of nothing.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for value in values {
        sum += value;
        count = count.saturating_add(1);
    }
    (count > 0).then(|| sum / f64::from(count))
}

fn one_if(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}
