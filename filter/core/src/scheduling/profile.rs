//! One profile: filters take candidates away, scorers add up, the picker takes the best.

use super::picker::rank;
use super::{SchedulingError, Situation, filter, score};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::scheduler::Profile;

/// What a profile made of the candidates.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Places of those kept, best first; never empty.
    pub ranked: Vec<usize>,
    /// What each of them got.
    pub scores: Vec<(EndpointId, f64)>,
}

impl Outcome {
    /// Place of the pick.
    pub(super) fn first(&self) -> Option<usize> {
        self.ranked.first().copied()
    }
}

/// Runs the profile.
///
/// # Errors
/// [`SchedulingError::NoneLeft`] if the filters leave nobody.
pub(super) fn run(
    profile: &Profile,
    situation: &Situation<'_, '_>,
    random: &mut dyn FnMut() -> u64,
) -> Result<Outcome, SchedulingError> {
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
    let ranked = rank(profile.picker.plugin, situation, &kept, &total, random);
    let scores = situation.at(&kept).zip(&total).map(|(c, total)| (c.id, *total)).collect();
    Ok(Outcome { ranked, scores })
}

/// What a score counts: from 0 to 1, by weight. NaN counts nothing: it must never win.
fn weighed(score: f64, weight: f64) -> f64 {
    let weighed = score.clamp(0.0, 1.0) * weight;
    if weighed.is_nan() { 0.0 } else { weighed }
}
