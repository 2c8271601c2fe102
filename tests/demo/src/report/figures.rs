//! Figures of one side, from its samples.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use crate::load::Sample;

/// A distribution in milliseconds; all absent when nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
}

impl Quantiles {
    /// Of sorted values.
    #[must_use]
    pub fn of(sorted: &[f64]) -> Self {
        let mean = (!sorted.is_empty()).then(|| sorted.iter().sum::<f64>() / sorted.len() as f64);
        Self {
            p50: percentile(sorted, 50.0),
            p90: percentile(sorted, 90.0),
            p99: percentile(sorted, 99.0),
            mean: mean.map(round),
        }
    }
}

/// The value [`at_rank`], rounded for people: no bar is to be judged by it.
#[must_use]
pub fn percentile(sorted: &[f64], percent: f64) -> Option<f64> {
    at_rank(sorted, percent).map(round)
}

/// The value at rank `percent / 100 * (n - 1)`, rounded to a whole rank, of sorted values.
///
/// The same definition as in the article's script, so that its figures compare with ours.
#[must_use]
pub fn at_rank(sorted: &[f64], percent: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = (percent / 100.0 * last as f64).round() as usize;
    sorted.get(rank.min(last)).copied()
}

fn round(milliseconds: f64) -> f64 {
    (milliseconds * 100.0).round() / 100.0
}

/// One side of a case.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// Requests sent.
    pub requests: usize,
    /// Of these, failed.
    pub errors: usize,
    /// Time to first token, turns from the second on.
    pub ttft_ms: Quantiles,
    /// Time to first token of the first turn, which finds every cache cold.
    pub turn0_ttft_ms: Quantiles,
    /// Prompt tokens that the engines had cached, all turns.
    pub cached_tokens: u64,
    /// Prompt tokens, all turns.
    pub prompt_tokens: u64,
    /// Requests that each endpoint answered, as `ip:port`.
    pub per_endpoint: BTreeMap<String, usize>,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Failures by kind.
    pub failures: BTreeMap<String, usize>,
    /// Sorted times to first token of the turns from the second on, for the plots.
    #[serde(skip)]
    pub samples_ms: Vec<f64>,
}

impl Side {
    /// Sums up `samples`, which took `elapsed`; every one of `endpoints` is listed, if with 0.
    #[must_use]
    pub fn of(samples: &[Sample], endpoints: &[SocketAddr], elapsed: Duration) -> Self {
        let sorted = |wanted: fn(usize) -> bool| {
            let mut times: Vec<f64> = samples
                .iter()
                .filter(|sample| wanted(sample.turn) && sample.outcome.failure.is_none())
                .filter_map(|sample| sample.outcome.first_token)
                .map(|time| time.as_secs_f64() * 1e3)
                .collect();
            times.sort_by(f64::total_cmp);
            times
        };
        let samples_ms = sorted(|turn| turn > 0);
        let mut per_endpoint: BTreeMap<String, usize> =
            endpoints.iter().map(|endpoint| (endpoint.to_string(), 0)).collect();
        let mut failures = BTreeMap::new();
        for sample in samples {
            if let Some(endpoint) = &sample.outcome.endpoint {
                *per_endpoint.entry(endpoint.clone()).or_insert(0) += 1;
            }
            if let Some(failure) = &sample.outcome.failure {
                *failures.entry(format!("{failure:?}")).or_insert(0) += 1;
            }
        }
        Self {
            requests: samples.len(),
            errors: failures.values().sum(),
            ttft_ms: Quantiles::of(&samples_ms),
            turn0_ttft_ms: Quantiles::of(&sorted(|turn| turn == 0)),
            cached_tokens: samples.iter().map(|sample| sample.outcome.facts.cached_tokens).sum(),
            prompt_tokens: samples.iter().map(|sample| sample.outcome.facts.prompt_tokens).sum(),
            per_endpoint,
            seconds: (elapsed.as_secs_f64() * 10.0).round() / 10.0,
            failures,
            samples_ms,
        }
    }

    /// Cached tokens as a share of the prompt tokens.
    #[must_use]
    pub fn cached_ratio(&self) -> f64 {
        if self.prompt_tokens == 0 {
            0.0
        } else {
            self.cached_tokens as f64 / self.prompt_tokens as f64
        }
    }

    /// Requests of the busiest endpoint as a multiple of the mean.
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        let total: usize = self.per_endpoint.values().sum();
        let busiest = self.per_endpoint.values().max().copied().unwrap_or(0);
        if total == 0 { 0.0 } else { (busiest * self.per_endpoint.len()) as f64 / total as f64 }
    }
}

/// Both sides of a case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// Name of the case.
    pub name: String,
    /// What it shows.
    pub what: String,
    /// Through the route without the filter.
    pub round_robin: Side,
    /// Through the filter.
    pub warmroute: Side,
    /// Prompt tokens that an infinite cache shared by all replicas would have held.
    pub ideal_cached_tokens: u64,
    /// How many times faster than real the engines ran.
    pub time_scale: f64,
    /// Requests in flight.
    pub in_flight: usize,
    /// The working set as a multiple of all KV memory.
    pub working_set_over_kv: f64,
}

impl CaseReport {
    /// A side's cached tokens as a share of the ideal.
    #[must_use]
    pub fn of_ideal(&self, side: &Side) -> f64 {
        if self.ideal_cached_tokens == 0 {
            0.0
        } else {
            side.cached_tokens as f64 / self.ideal_cached_tokens as f64
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::load::{Failure, Outcome, StreamFacts};

    pub(crate) fn sample(turn: usize, milliseconds: u64, port: u16) -> Sample {
        let outcome = Outcome {
            first_token: Some(Duration::from_millis(milliseconds)),
            whole: Duration::from_millis(milliseconds + 300),
            endpoint: Some(format!("127.0.0.1:{port}")),
            status: Some(200),
            facts: StreamFacts { prompt_tokens: 100, cached_tokens: 40, ..StreamFacts::default() },
            failure: None,
        };
        Sample { turn, conversation: 0, outcome }
    }

    #[test]
    fn percentiles_are_the_articles() {
        let hundred_and_one: Vec<f64> = (0..=100).map(f64::from).collect();
        let cases: &[(&[f64], f64, Option<f64>)] = &[
            (&[], 50.0, None),
            (&[7.0], 99.0, Some(7.0)),
            (&[1.0, 2.0, 3.0], 50.0, Some(2.0)),
            (&[1.0, 2.0, 3.0], 100.0, Some(3.0)),
            (&hundred_and_one, 90.0, Some(90.0)),
            (&hundred_and_one, 99.0, Some(99.0)),
            (&hundred_and_one[..50], 99.0, Some(49.0)),
        ];
        for (values, percent, expected) in cases {
            assert_eq!(
                percentile(values, *percent),
                *expected,
                "p{percent} of {} values",
                values.len()
            );
        }
    }

    #[test]
    fn a_side_separates_the_first_turn_and_counts_idle_endpoints() {
        let mut samples = vec![sample(0, 900, 1), sample(1, 20, 1), sample(2, 40, 2)];
        samples.push(sample(1, 10, 2));
        samples[3].outcome.failure = Some(Failure::Truncated);
        let endpoints = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let side = Side::of(&samples, &endpoints, Duration::from_secs(2));
        assert_eq!((side.requests, side.errors), (4, 1));
        assert_eq!(side.turn0_ttft_ms.p50, Some(900.0));
        assert_eq!(side.samples_ms, [20.0, 40.0]);
        assert_eq!(side.ttft_ms.mean, Some(30.0));
        assert_eq!((side.cached_tokens, side.prompt_tokens), (160, 400));
        assert_eq!(side.per_endpoint["127.0.0.1:3"], 0);
        assert_eq!(side.failures["Truncated"], 1);
        assert!((side.imbalance() - 1.5).abs() < 1e-9);
    }

    #[test]
    fn nothing_measured_is_null_and_not_zero() {
        let side = Side::of(&[], &[], Duration::ZERO);
        let json = serde_json::to_value(&side).unwrap();
        assert!(json["ttft_ms"]["p50"].is_null());
        assert!((side.imbalance(), side.cached_ratio()) == (0.0, 0.0));
    }
}
