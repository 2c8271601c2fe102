//! `no-hit-lru-scorer`: spreads prompts that nobody holds, so that caches fill evenly.

use super::{Situation, each};
use crate::scheduling::state::ColdPicks;

/// A prompt that somebody holds: 0.5 each. A cold one: the never used first, then by how long ago it was. llm-d counts
/// endpoints that are no candidates, too: once as many as there are candidates have gone, all it gives is 0.
#[allow(clippy::cast_precision_loss)]
pub(super) fn no_hit_lru(
    picks: Option<&ColdPicks>,
    situation: &Situation<'_, '_>,
    kept: &[usize],
    scores: &mut [f64],
) {
    if situation.at(kept).any(|candidate| candidate.matched_blocks > 0) {
        return scores.fill(0.5);
    }
    let last = kept.len().saturating_sub(1);
    if last == 0 {
        return scores.fill(1.0);
    }
    let used = |id| picks.and_then(|picks| picks.used(id));
    let mut order: Vec<u64> = situation.at(kept).filter_map(|c| used(c.id)).collect();
    order.sort_unstable();
    let never_used = kept.len().saturating_sub(order.len());
    let never_seen = core::cell::Cell::new(0usize);
    each(situation, kept, scores, |candidate| {
        let place = match used(candidate.id) {
            Some(used) => {
                let place = order.binary_search(&used).unwrap_or_else(|place| place);
                never_used.saturating_add(place)
            }
            None => never_seen.replace(never_seen.get().saturating_add(1)),
        };
        1.0 - place as f64 / last as f64
    });
}
