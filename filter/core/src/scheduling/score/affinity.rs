//! Scorers by what an endpoint has ready for the request: its prefix, its adapter, its range of lengths.

use super::{Situation, mean};
use crate::scheduling::Candidate;
use crate::scheduling::filter::context_range;
use crate::scheduling::prefix_affinity::share;
use warmroute_shared_state::policy::plugin::PrefixCache;
use warmroute_shared_state::signals::Adapters;

/// Matched share of the prompt, and the match's length squared, by weight.
#[allow(clippy::cast_precision_loss)]
pub(super) fn prefix_cache(cache: &PrefixCache, candidate: &Candidate<'_>, blocks: usize) -> f64 {
    if blocks == 0 {
        return 0.0;
    }
    let ratio = share(candidate.matched_blocks, blocks);
    let weight = cache.match_length_weight;
    if weight <= 0.0 {
        return ratio;
    }
    let scale = cache.match_length_scale_tokens.max(1) as f64;
    let length = (candidate.matched_tokens as f64 / scale).min(1.0);
    weight * length * length + (1.0 - weight) * ratio
}

/// The adapter is loaded 1, there is room for it 0.8, it waits for room 0.6, else 0.
pub(super) fn lora(model: &str, situation: &Situation<'_, '_>, kept: &[usize], scores: &mut [f64]) {
    let tier =
        |c: &Candidate<'_>| c.signals.adapters.as_ref().map(|adapters| tier(adapters, model));
    // Engines that say nothing of adapters may be as good as the others.
    let neutral = mean(situation.at(kept).filter_map(tier)).unwrap_or(0.0);
    super::each(situation, kept, scores, |c| tier(c).unwrap_or(neutral));
}

fn tier(adapters: &Adapters, model: &str) -> f64 {
    let has = |names: &[String]| names.iter().any(|name| name == model);
    let used = adapters.active.len().saturating_add(adapters.waiting.len());
    if has(&adapters.active) {
        1.0
    } else if used < usize::try_from(adapters.max).unwrap_or(usize::MAX) {
        0.8
    } else if has(&adapters.waiting) {
        0.6
    } else {
        0.0
    }
}

/// In the label's range 0.3 to 1, the narrower and roomier the better; beside it below 0.3, the nearer the better.
/// No label 0.5; a label that is no range 0.
#[allow(clippy::cast_precision_loss)]
pub(super) fn context_length(label: &str, candidate: &Candidate<'_>) -> f64 {
    let Some(label) = candidate.label(label) else { return 0.5 };
    let Some((min, max)) = context_range(label) else { return 0.0 };
    let tokens = candidate.prompt_tokens;
    if !(min..=max).contains(&tokens) {
        let distance = tokens.saturating_sub(max).max(min.saturating_sub(tokens));
        return 0.3 / (1.0 + distance as f64 / 1000.0);
    }
    let width = max.saturating_sub(min) as f64;
    if width <= 0.0 {
        return 1.0;
    }
    let room = max.saturating_sub(tokens) as f64 / width;
    0.3 + 0.7 * (0.7 / (1.0 + width / 10_000.0) + 0.3 * room)
}
