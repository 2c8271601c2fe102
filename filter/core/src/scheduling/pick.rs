//! The max-score picker, with ranked fallbacks.

use super::{Candidate, Profile};
use core::cmp::Reverse;
use warmroute_shared_state::endpoint::EndpointId;

/// The pick and two fallbacks: Envoy takes the next one at each retry.
pub const MAX_DESTINATIONS: usize = 3;

/// Scores closer than this are equal.
const EQUAL_SCORE: f64 = 1e-9;

/// Why the endpoint was picked. One word, for logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PickReason {
    /// It holds the longest matching prefix.
    Prefix,
    /// It holds less of the prompt than another one does, which is too busy.
    LoadOverPrefix,
    /// Nobody holds any of the prompt: the least loaded.
    Load,
}

impl PickReason {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::LoadOverPrefix => "load_over_prefix",
            Self::Load => "load",
        }
    }
}

/// A decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Pick {
    /// Where to send it, best first, at most [`MAX_DESTINATIONS`]; never empty.
    pub ranked: Vec<EndpointId>,
    /// Leading blocks that the first one holds.
    pub matched_blocks: usize,
    /// Why.
    pub reason: PickReason,
}

/// Picks the best candidates. Equal scores go to the fewest uncached tokens in flight, then
/// to chance: `random` gives any `u64`, independently in each worker.
#[must_use]
pub fn pick(
    profile: &Profile,
    candidates: &[Candidate],
    prompt_blocks: usize,
    random: &mut dyn FnMut() -> u64,
) -> Option<Pick> {
    let scores = profile.score(candidates, prompt_blocks);
    // Whole steps, so that the order is total whatever the scores are.
    #[allow(clippy::cast_possible_truncation)]
    let step = |score: f64| (score / EQUAL_SCORE).round() as i64;
    let mut ranked: Vec<(&Candidate, i64, u64)> =
        candidates.iter().zip(scores).map(|(c, score)| (c, step(score), random())).collect();
    ranked.sort_unstable_by_key(|(c, score, chance)| (Reverse(*score), c.uncached_tokens, *chance));
    let (best, ..) = ranked.first()?;
    let longest = candidates.iter().map(|c| c.matched_blocks).max().unwrap_or(0);
    let reason = match best.matched_blocks {
        _ if longest == 0 => PickReason::Load,
        matched if matched == longest => PickReason::Prefix,
        _ => PickReason::LoadOverPrefix,
    };
    Some(Pick {
        ranked: ranked.iter().take(MAX_DESTINATIONS).map(|(c, ..)| c.id).collect(),
        matched_blocks: best.matched_blocks,
        reason,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn candidate(n: usize) -> Candidate {
        Candidate {
            id: EndpointId(n as u64),
            waiting: Some(0.0),
            waiting_since_scrape: 0,
            kv_usage: Some(0.0),
            matched_blocks: 0,
            matched_tokens: 0,
            prompt_tokens: 0,
            uncached_tokens: 0,
        }
    }

    fn random() -> impl FnMut() -> u64 {
        let mut state = 1u64;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 11
        }
    }

    fn best(candidates: &[Candidate], blocks: usize) -> (u64, PickReason) {
        let pick = pick(&Profile::default(), candidates, blocks, &mut random()).unwrap();
        (pick.ranked[0].0, pick.reason)
    }

    crate::tests! {
        fn the_default_profile_weighs_as_documented() {
            // prefix 3 outweighs one waiting request (queue 2) only above two thirds of a match.
            let hit = |matched| Candidate { matched_blocks: matched, waiting: Some(1.0), ..candidate(1) };
            assert_eq!(best(&[candidate(0), hit(9)], 10), (1, PickReason::Prefix));
            assert_eq!(best(&[candidate(0), hit(6)], 10), (0, PickReason::LoadOverPrefix));
            assert_eq!(best(&[candidate(0), hit(0)], 10), (0, PickReason::Load));
        }

        fn a_full_endpoint_loses_to_a_free_one() {
            let full = Candidate { kv_usage: Some(0.95), ..candidate(0) };
            assert_eq!(best(&[full, candidate(1)], 0).0, 1);
        }

        fn equal_scores_go_to_the_least_uncached_work() {
            let busy = Candidate { uncached_tokens: 7000, ..candidate(0) };
            let idle = Candidate { uncached_tokens: 200, ..candidate(1) };
            for _ in 0..10 {
                assert_eq!(best(&[busy.clone(), idle.clone()], 0).0, 1);
            }
        }

        fn ties_are_spread_by_chance() {
            let candidates: Vec<_> = (0..4).map(candidate).collect();
            let mut counts = [0u32; 4];
            let mut random = random();
            for _ in 0..4000 {
                let pick = pick(&Profile::default(), &candidates, 0, &mut random).unwrap();
                counts[pick.ranked[0].0 as usize] += 1;
            }
            assert!(counts.iter().all(|n| (850..1150).contains(n)), "{counts:?}");
        }

        fn three_different_destinations_are_ranked() {
            let candidates: Vec<_> = (0..5)
                .map(|n| Candidate { waiting: Some(n as f32), ..candidate(n) })
                .collect();
            let pick = pick(&Profile::default(), &candidates, 0, &mut random()).unwrap();
            assert_eq!(pick.ranked, [0, 1, 2].map(EndpointId));
        }

        fn nobody_to_pick_is_no_pick() {
            assert_eq!(pick(&Profile::default(), &[], 3, &mut random()), None);
        }
    }
}
