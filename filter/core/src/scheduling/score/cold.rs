//! `no-hit-lru-scorer`: spreads prompts that nobody holds, so that caches fill evenly.

use super::{Situation, each};
use crate::scheduling::state::ColdPicks;

/// A prompt that somebody holds: 0.5 each. A cold one: the never used first, then by how long ago it was.
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
    let order = picks.map(ColdPicks::order).unwrap_or_default();
    let never_used = situation.at(kept).filter(|c| used(c.id).is_none()).count();
    let never_seen = core::cell::Cell::new(0usize);
    each(situation, kept, scores, |candidate| {
        let place = match used(candidate.id) {
            Some(used) => {
                let place = order.binary_search(&used).unwrap_or_else(|place| place);
                never_used.saturating_add(place)
            }
            None => never_seen.replace(never_seen.get().saturating_add(1)),
        };
        (1.0 - place as f64 / last as f64).max(0.0)
    });
}
