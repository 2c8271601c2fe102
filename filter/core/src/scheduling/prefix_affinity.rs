//! `prefix-cache-affinity-filter`: keeps to the endpoints that hold most of the prompt, unless their queue costs
//! more time than the cache saves.

use super::{Candidate, Situation};
use warmroute_shared_state::policy::plugin::{PrefixCacheAffinity, TtftSource};

pub(super) fn prefix_affinity(
    affinity: &PrefixCacheAffinity,
    situation: &Situation<'_, '_>,
    kept: &mut Vec<usize>,
    chance: impl FnOnce() -> f64,
) {
    if kept.len() <= 1 || affinity.affinity_threshold <= 0.0 {
        return;
    }
    if affinity.exploration_probability > 0.0 && chance() < affinity.exploration_probability {
        return;
    }
    let blocks = situation.request.prompt_blocks;
    let sticks = |c: &Candidate<'_>| share(c.matched_blocks, blocks) >= affinity.affinity_threshold;
    let fastest = |sticky: bool| {
        let side = situation.at(kept).filter(|c| sticks(c) == sticky);
        side.map(|c| ttft_ms(affinity, c)).reduce(f64::min)
    };
    let Some(sticky) = fastest(true) else { return };
    if affinity.max_ttft_penalty_ms > 0.0
        && let Some(other) = fastest(false)
        && sticky - other > affinity.max_ttft_penalty_ms
    {
        return;
    }
    kept.retain(|at| situation.candidates.get(*at).is_some_and(sticks));
}

#[allow(clippy::cast_precision_loss)]
fn ttft_ms(affinity: &PrefixCacheAffinity, candidate: &Candidate<'_>) -> f64 {
    match affinity.ttft_source {
        TtftSource::PrefillThroughput => {
            candidate.uncached_tokens as f64 / affinity.peak_prefill_throughput * 1000.0
        }
        TtftSource::LatencyPredictor => candidate.predicted_ttft_ms.unwrap_or(f64::MAX),
    }
}

/// Matched share of the prompt's blocks; 0 for a prompt without blocks.
// Block counts are far below 2^52.
#[allow(clippy::cast_precision_loss)]
pub(super) fn share(matched: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { matched as f64 / all as f64 }
}
