//! Medians, ratios, and how far to trust them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::WAYS;
use crate::report::percentile;

/// A median, and the range in which nine of ten rounds lay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Median of the rounds.
    pub median: f64,
    /// 5th percentile of the rounds.
    pub low: f64,
    /// 95th percentile of the rounds.
    pub high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |percent| percentile(&values, percent).unwrap_or_default();
        Self { median: at(50.0), low: at(5.0), high: at(95.0) }
    }
}

/// `bench.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Bench {
    /// Size of the request bodies.
    pub body_bytes: usize,
    /// Rounds measured.
    pub rounds: usize,
    /// The median latency of a round in microseconds, for each way.
    pub p50_us: BTreeMap<&'static str, Spread>,
    /// Latency through the filter over latency through Envoy without it, round by round.
    pub warmroute_over_envoy: Spread,
    /// Latency through Envoy without the filter over that past Envoy, round by round.
    pub envoy_over_direct: Spread,
}

impl Bench {
    /// Sums up rounds of latencies in microseconds, in the order of the ways.
    pub(super) fn of(body_bytes: usize, rounds: &[[Vec<f64>; WAYS.len()]]) -> Self {
        let medians = |way: usize| -> Vec<f64> {
            rounds
                .iter()
                .map(|round| {
                    let mut sorted = round[way].clone();
                    sorted.sort_by(f64::total_cmp);
                    percentile(&sorted, 50.0).unwrap_or_default()
                })
                .collect()
        };
        let [direct, envoy, warmroute] = [0, 1, 2].map(medians);
        let over = |above: &[f64], below: &[f64]| {
            Spread::of(
                above.iter().zip(below).map(|(above, below)| above / below.max(1e-3)).collect(),
            )
        };
        Self {
            body_bytes,
            rounds: rounds.len(),
            warmroute_over_envoy: over(&warmroute, &envoy),
            envoy_over_direct: over(&envoy, &direct),
            p50_us: [direct, envoy, warmroute]
                .into_iter()
                .zip(WAYS)
                .map(|(medians, (way, _))| (way, Spread::of(medians)))
                .collect(),
        }
    }

    /// The figures for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = format!(
            "p50 latency of a {} KB chat body, one connection, {} interleaved rounds\n",
            self.body_bytes / 1_000,
            self.rounds
        );
        for (way, _) in WAYS {
            let Spread { median, low, high } = self.p50_us.get(way).copied().unwrap_or_default();
            out.push_str(&format!("  {way:<10} {median:>7.0} us   ({low:.0} to {high:.0})\n"));
        }
        for (name, ratio) in [
            ("warmroute / envoy", self.warmroute_over_envoy),
            ("envoy / direct", self.envoy_over_direct),
        ] {
            out.push_str(&format!(
                "  {name:<18} {:.2}   ({:.2} to {:.2})\n",
                ratio.median, ratio.low, ratio.high
            ));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_each_round() {
        // The machine is twice as slow in the second round: the ratios do not change.
        let round = |factor: f64| [100.0, 300.0, 450.0].map(|base| vec![base * factor; 3]);
        let bench = Bench::of(220_000, &[round(1.0), round(2.0)]);
        assert_eq!(bench.warmroute_over_envoy, Spread { median: 1.5, low: 1.5, high: 1.5 });
        assert_eq!(bench.envoy_over_direct, Spread { median: 3.0, low: 3.0, high: 3.0 });
        assert_eq!((bench.p50_us["direct"].low, bench.p50_us["direct"].high), (100.0, 200.0));
        assert!(bench.table().contains("warmroute / envoy  1.50"), "{}", bench.table());
    }
}
