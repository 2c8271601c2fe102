//! Scorers: each gives every candidate 0 to 1; the profile adds them up by weight.
//!
//! Formulas: llm-d-router, scorers `prefix-cache-scorer`, `queue-scorer`, `kv-cache-utilization-scorer`. A signal
//! that an endpoint did not report is neutral: it scores as the mean of those that did.

use super::Candidate;

/// One way to score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScorerKind {
    /// Matched blocks / blocks of the prompt; 0 for a prompt without blocks.
    PrefixCache,
    /// Min-max over the candidates: (max - waiting) / (max - min); all equal: 1.
    Queue,
    /// 1 - KV utilization.
    KvCacheUtilization,
}

/// Scorers with their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// In the order in which they are added up.
    pub scorers: Vec<(ScorerKind, f64)>,
}

impl Default for Profile {
    /// llm-d's default profile.
    fn default() -> Self {
        Self {
            scorers: vec![
                (ScorerKind::Queue, 2.0),
                (ScorerKind::KvCacheUtilization, 2.0),
                (ScorerKind::PrefixCache, 3.0),
            ],
        }
    }
}

impl Profile {
    /// The weighted sum for each candidate, in their order.
    #[must_use]
    pub fn score(&self, candidates: &[Candidate], prompt_blocks: usize) -> Vec<f64> {
        let mut total = vec![0.0; candidates.len()];
        for (scorer, weight) in &self.scorers {
            let scores = scorer.score(candidates, prompt_blocks);
            for (total, score) in total.iter_mut().zip(scores) {
                *total += score.clamp(0.0, 1.0) * weight;
            }
        }
        total
    }
}

impl ScorerKind {
    fn score(self, candidates: &[Candidate], prompt_blocks: usize) -> Vec<f64> {
        match self {
            Self::PrefixCache => {
                candidates.iter().map(|c| share(c.matched_blocks, prompt_blocks)).collect()
            }
            Self::Queue => queue(candidates),
            Self::KvCacheUtilization => kv_cache_utilization(candidates),
        }
    }
}

// Block counts are far below 2^52.
#[allow(clippy::cast_precision_loss)]
fn share(matched: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { matched as f64 / all as f64 }
}

#[allow(clippy::cast_precision_loss)]
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for value in values {
        sum += value;
        count = count.saturating_add(1);
    }
    (count > 0).then(|| sum / f64::from(count))
}

fn queue(candidates: &[Candidate]) -> Vec<f64> {
    let known = candidates.iter().filter_map(|c| c.waiting).map(f64::from);
    let neutral = mean(known).unwrap_or(0.0);
    let waiting = |c: &Candidate| {
        c.waiting.map_or_else(|| neutral + f64::from(c.waiting_since_scrape), f64::from)
    };
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    for candidate in candidates {
        min = min.min(waiting(candidate));
        max = max.max(waiting(candidate));
    }
    let range = max - min;
    let score = |c| if range > 0.0 { (max - waiting(c)) / range } else { 1.0 };
    candidates.iter().map(score).collect()
}

fn kv_cache_utilization(candidates: &[Candidate]) -> Vec<f64> {
    let known = candidates.iter().filter_map(|c| c.kv_usage).map(f64::from);
    let neutral = mean(known).unwrap_or(0.0);
    candidates.iter().map(|c| 1.0 - c.kv_usage.map_or(neutral, f64::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::pick::tests::candidate;
    use super::*;

    fn scores(kind: ScorerKind, candidates: &[Candidate], blocks: usize) -> Vec<f64> {
        kind.score(candidates, blocks).iter().map(|s| (s * 1000.0).round() / 1000.0).collect()
    }

    fn waiting(values: &[Option<f32>]) -> Vec<Candidate> {
        values.iter().enumerate().map(|(n, w)| Candidate { waiting: *w, ..candidate(n) }).collect()
    }

    crate::tests! {
        fn queue_is_min_max_over_the_candidates() {
            // The figures of llm-d-router's own table for its queue scorer.
            for (input, expected) in [
                (&[Some(10.0), Some(5.0), Some(0.0)][..], &[0.0, 0.5, 1.0][..]),
                (&[Some(5.0), Some(5.0)], &[1.0, 1.0]),
                (&[Some(0.0), Some(0.0)], &[1.0, 1.0]),
                (&[Some(7.0)], &[1.0]),
            ] {
                assert_eq!(scores(ScorerKind::Queue, &waiting(input), 0), expected, "{input:?}");
            }
        }

        fn an_endpoint_without_a_queue_length_is_neither_best_nor_worst() {
            let all = waiting(&[Some(0.0), None, Some(10.0)]);
            assert_eq!(scores(ScorerKind::Queue, &all, 0), [1.0, 0.5, 0.0]);
            assert_eq!(scores(ScorerKind::Queue, &waiting(&[None, None]), 0), [1.0, 1.0]);
        }

        fn picks_since_the_scrape_count_even_where_the_scrape_said_nothing() {
            let mut all = waiting(&[None, None]);
            all[1].waiting_since_scrape = 3;
            assert_eq!(scores(ScorerKind::Queue, &all, 0), [1.0, 0.0]);
        }

        fn kv_is_what_is_free() {
            let kv = |v| Candidate { kv_usage: v, ..candidate(0) };
            let all = [kv(Some(0.8)), kv(Some(0.2)), kv(None), kv(Some(1.5))];
            // Neutral is the mean of the known: (0.8 + 0.2 + 1.5) / 3.
            assert_eq!(scores(ScorerKind::KvCacheUtilization, &all, 0), [0.2, 0.8, 0.167, -0.5]);
            let clamped = Profile { scorers: vec![(ScorerKind::KvCacheUtilization, 2.0)] };
            assert_eq!(clamped.score(&all, 0)[3], 0.0);
        }

        fn prefix_is_the_matched_share() {
            let m = |blocks| Candidate { matched_blocks: blocks, ..candidate(0) };
            let all = [m(0), m(5), m(10)];
            assert_eq!(scores(ScorerKind::PrefixCache, &all, 10), [0.0, 0.5, 1.0]);
            assert_eq!(scores(ScorerKind::PrefixCache, &all[..1], 0), [0.0]);
        }
    }
}
