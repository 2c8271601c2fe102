//! Pickers: who of the scored is taken, and who would be next.

use super::candidate::chance;
use super::{Candidate, Situation};
use core::cmp::Reverse;
use warmroute_shared_state::policy::plugin::{Picker, PickerKind};

/// Scores closer than this are equal.
const EQUAL_SCORE: f64 = 1e-9;

/// Orders `kept` by `scores` (in the same order), the best first.
pub(super) fn rank(
    picker: Picker,
    situation: &Situation<'_, '_>,
    kept: &[usize],
    scores: &[f64],
    random: &mut dyn FnMut() -> u64,
) -> Vec<usize> {
    let scored = kept.iter().copied().zip(scores.iter().copied());
    match picker.kind {
        PickerKind::WeightedRandom if scores.iter().any(|score| *score > 0.0) => {
            sorted(scored, |_, score| {
                let key = weighted_key(score, chance(random));
                (Reverse(step(key, f64::EPSILON)), random())
            })
        }
        PickerKind::Random | PickerKind::WeightedRandom => sorted(scored, |_, _| random()),
        PickerKind::MaxScore => sorted(scored, |at, score| {
            let tokens =
                situation.candidates.get(at).map_or(0, |c: &Candidate<'_>| c.uncached_tokens);
            (Reverse(step(score, EQUAL_SCORE)), tokens, random())
        }),
    }
}

/// Key of one who is drawn in proportion to its score (Efraimidis and Spirakis, A-Res): the greatest keys win.
fn weighted_key(score: f64, chance: f64) -> f64 {
    if score > 0.0 { chance.powf(1.0 / score) } else { 0.0 }
}

/// Whole steps, so that the order is total whatever the scores are.
#[allow(clippy::cast_possible_truncation)]
fn step(score: f64, width: f64) -> i64 {
    (score / width).round() as i64
}

fn sorted<K: Ord>(
    scored: impl Iterator<Item = (usize, f64)>,
    mut key: impl FnMut(usize, f64) -> K,
) -> Vec<usize> {
    let mut ranked: Vec<(K, usize)> = scored.map(|(at, score)| (key(at, score), at)).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, at)| at).collect()
}
