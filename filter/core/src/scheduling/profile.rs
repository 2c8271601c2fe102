//! One profile: filters take candidates away, scorers add up, the picker takes the best.

use super::picker::rank;
use super::{SchedulingError, Situation, filter, score};
use warmroute_shared_state::policy::scheduler::Profile;

/// Candidates that the filters keep, with what each of them got.
#[derive(Debug)]
pub(super) struct Scored {
    /// Their places, in the candidates' order; never empty.
    pub kept: Vec<usize>,
    /// In the same order.
    pub scores: Vec<f64>,
}

/// Runs the profile: places of the best candidates that the filters keep, best first; never empty. So many as the
/// picker names, or `most` if it names one.
///
/// # Errors
/// [`SchedulingError::NoneLeft`] if the filters leave nobody.
pub(super) fn run(
    profile: &Profile,
    situation: &Situation<'_, '_>,
    most: usize,
    random: &mut dyn FnMut() -> u64,
) -> Result<Vec<usize>, SchedulingError> {
    let Scored { kept, scores } = scored(profile, situation, random)?;
    let picker = profile.picker.plugin;
    let asked = usize::try_from(picker.max_endpoints).unwrap_or(usize::MAX);
    let most = if asked > 1 { asked } else { most };
    Ok(rank(picker, situation, &kept, &scores, most, random))
}

/// Filters and scores.
///
/// # Errors
/// [`SchedulingError::NoneLeft`] if the filters leave nobody.
pub(super) fn scored(
    profile: &Profile,
    situation: &Situation<'_, '_>,
    random: &mut dyn FnMut() -> u64,
) -> Result<Scored, SchedulingError> {
    let mut kept: Vec<usize> = (0..situation.candidates.len()).collect();
    for named in &profile.filters {
        filter::apply(&named.plugin, &named.name, situation, &mut kept, random);
        if kept.is_empty() {
            break;
        }
    }
    if kept.is_empty() {
        return Err(SchedulingError::NoneLeft { profile: profile.name.clone() });
    }
    let mut total = vec![0.0; kept.len()];
    let mut scores = vec![0.0; kept.len()];
    for scorer in &profile.scorers {
        score::score(&scorer.plugin, &scorer.name, situation, &kept, &mut scores);
        for (total, score) in total.iter_mut().zip(&scores) {
            *total += weighed(*score, scorer.weight);
        }
    }
    Ok(Scored { kept, scores: total })
}

/// What a score counts: from 0 to 1, by weight. NaN counts nothing: it must never win.
fn weighed(score: f64, weight: f64) -> f64 {
    let weighed = score.clamp(0.0, 1.0) * weight;
    if weighed.is_nan() { 0.0 } else { weighed }
}
