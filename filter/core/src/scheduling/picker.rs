//! Pickers: who of the scored is taken, and who would be next.

use super::candidate::chance;
use super::{Candidate, Situation};
use core::cmp::Reverse;
use warmroute_shared_state::policy::plugin::{Picker, PickerKind};

/// Scores closer than this are equal.
const EQUAL_SCORE: f64 = 1e-9;

/// Scores that lack no more than this share of the best one are as good as it. Else an engine that lacks only the
/// system prompt that all requests share would never get it while the others have no queue: it would stay idle.
/// Among those chance decides between equals, and not the score: whoever has the system prompt would get every long
/// prompt that comes while all are idle.
const AS_GOOD: f64 = 0.01;

/// The best `most` of `kept` by `scores` (in the same order), the best first.
pub(super) fn rank(
    picker: Picker,
    situation: &Situation<'_, '_>,
    kept: &[usize],
    scores: &[f64],
    most: usize,
    random: &mut dyn FnMut() -> u64,
) -> Vec<usize> {
    let scored = kept.iter().copied().zip(scores.iter().copied());
    match picker.kind {
        PickerKind::WeightedRandom if scores.iter().any(|score| *score > 0.0) => {
            best(scored, most, |_, score| {
                (Reverse(ordered(weighted_key(score, chance(random)))), random())
            })
        }
        PickerKind::Random | PickerKind::WeightedRandom => best(scored, most, |_, _| random()),
        PickerKind::MaxScore => {
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let good = top - top.abs() * AS_GOOD;
            best(scored, most, |at, score| {
                let tokens =
                    situation.candidates.get(at).map_or(0, |c: &Candidate<'_>| c.uncached_tokens);
                let score = if score >= good { top } else { score };
                (Reverse(step(score)), tokens, random())
            })
        }
    }
}

/// Key of one who is drawn in proportion to its score (Efraimidis and Spirakis, A-Res): the greatest keys win. The
/// logarithm of theirs, which small scores would make 0.
fn weighted_key(score: f64, chance: f64) -> f64 {
    if score > 0.0 { chance.ln() / score } else { f64::NEG_INFINITY }
}

/// A number that is ordered as the figure is.
fn ordered(figure: f64) -> u64 {
    let bits = figure.to_bits();
    if figure.is_sign_negative() { !bits } else { bits | (1 << 63) }
}

/// Whole steps, so that scores are equal or not whoever is compared with whom.
#[allow(clippy::cast_possible_truncation)]
fn step(score: f64) -> i64 {
    (score / EQUAL_SCORE).round() as i64
}

fn best<K: Ord>(
    scored: impl Iterator<Item = (usize, f64)>,
    most: usize,
    mut key: impl FnMut(usize, f64) -> K,
) -> Vec<usize> {
    let mut ranked: Vec<(K, usize)> = scored.map(|(at, score)| (key(at, score), at)).collect();
    if most < ranked.len() {
        ranked.select_nth_unstable(most);
        ranked.truncate(most);
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, at)| at).collect()
}
