//! Medians over rounds, ratios within them, and how far to trust both.

use std::collections::BTreeMap;

use serde::Serialize;
use warmroute_demo::report::{at_rank, percentile};

use crate::load::Measured;
use crate::targets::Target;
use crate::workload::Case;

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
    /// Of the rounds' values.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |percent| at_rank(&values, percent).unwrap_or_default();
        Self { median: at(50.0), low: at(5.0), high: at(95.0) }
    }
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The requests.
    pub case: Case,
    /// Connections.
    pub connections: usize,
    /// The way.
    pub target: Target,
    /// Engines in the pool.
    pub endpoints: usize,
    /// Blocks in the index, as planned.
    pub index_entries: usize,
}

/// One way's turn in one round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// Requests that were answered.
    pub requests: f64,
    /// Requests that were not.
    pub failures: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile of it.
    pub p99_us: f64,
    /// Median time to the first byte of the answer's body, in microseconds.
    pub ttft_p50_us: f64,
    /// 99th percentile of it.
    pub ttft_p99_us: f64,
    /// Answered requests a second.
    pub rps: f64,
    /// Processor time a request, in microseconds: of the proxy,
    pub cpu_us: f64,
    /// of the agent or picker beside it,
    pub helper_cpu_us: f64,
    /// of the engines' stub,
    pub engines_cpu_us: f64,
    /// and of the load generator.
    pub generator_cpu_us: f64,
    /// The proxy's resident memory.
    pub rss_mb: f64,
    /// That of the agent or picker.
    pub helper_rss_mb: f64,
    /// Blocks that the filter's index had.
    pub prefix_blocks: f64,
}

impl Turn {
    /// From what the load generator saw; `cpu` is the time of proxy, helper, engines and generator.
    #[must_use]
    pub fn of(mut measured: Measured, cpu: [f64; 4]) -> Self {
        let count = measured.whole_us.len() as f64;
        let mut at = |percents: [f64; 2], first: bool| {
            let values = if first { &mut measured.first_us } else { &mut measured.whole_us };
            values.sort_by(f64::total_cmp);
            percents.map(|percent| percentile(values, percent).unwrap_or_default())
        };
        let [p50_us, p99_us] = at([50.0, 99.0], false);
        let [ttft_p50_us, ttft_p99_us] = at([50.0, 99.0], true);
        let [cpu_us, helper_cpu_us, engines_cpu_us, generator_cpu_us] =
            cpu.map(|used| used / count.max(1.0));
        Self {
            requests: count,
            failures: measured.failures as f64,
            p50_us,
            p99_us,
            ttft_p50_us,
            ttft_p99_us,
            rps: count / measured.seconds.max(1e-9),
            cpu_us,
            helper_cpu_us,
            engines_cpu_us,
            generator_cpu_us,
            ..Self::default()
        }
    }
}

/// All turns of a run.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    turns: BTreeMap<Key, Vec<Turn>>,
}

/// One number of a turn.
pub type Of = fn(&Turn) -> f64;

impl Figures {
    /// Adds a turn of the next round.
    pub fn add(&mut self, key: Key, turn: Turn) {
        self.turns.entry(key).or_default().push(turn);
    }

    /// The median of one number over the rounds.
    #[must_use]
    pub fn median(&self, key: Key, of: Of) -> Option<f64> {
        Some(self.spread(key, of)?.median)
    }

    /// One number over the rounds.
    #[must_use]
    pub fn spread(&self, key: Key, of: Of) -> Option<Spread> {
        let turns = self.turns.get(&key)?;
        Some(Spread::of(turns.iter().map(of).collect()))
    }

    /// The sum of one number.
    #[must_use]
    pub fn sum(&self, key: Key, of: Of) -> Option<f64> {
        Some(self.turns.get(&key)?.iter().map(of).sum())
    }

    /// One number made of several rows' turns in the same round, over the rounds.
    #[must_use]
    pub fn within<const N: usize>(
        &self,
        keys: [Key; N],
        of: Of,
        combine: impl Fn([f64; N]) -> f64,
    ) -> Option<Spread> {
        let mut rows: Vec<&Vec<Turn>> = Vec::with_capacity(N);
        for key in &keys {
            rows.push(self.turns.get(key)?);
        }
        let rounds = rows.iter().map(|turns| turns.len()).min().unwrap_or(0);
        let values = (0..rounds).map(|round| {
            let mut values = [0.0; N];
            for (value, turns) in values.iter_mut().zip(&rows) {
                *value = turns.get(round).map(of).unwrap_or_default();
            }
            combine(values)
        });
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        (!values.is_empty()).then(|| Spread::of(values))
    }

    /// `above` over `below`, round by round.
    #[must_use]
    pub fn ratio(&self, above: Key, below: Key, of: Of) -> Option<Spread> {
        self.within([above, below], of, |[above, below]| above / below)
    }

    /// Rows in the order of the keys; those without any answer are left out, as they were not measured.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.turns.keys().filter_map(|key| self.row(*key))
    }

    fn row(&self, key: Key) -> Option<Row> {
        if self.sum(key, |turn| turn.requests)? < 1.0 {
            return None;
        }
        let median = |of: Of| self.median(key, of).unwrap_or_default();
        Some(Row {
            case: key.case.name(),
            concurrency: key.connections,
            target: key.target.name(),
            endpoints: key.endpoints,
            index_entries: key.index_entries,
            p50_us: median(|turn| turn.p50_us),
            p99_us: median(|turn| turn.p99_us),
            rps: median(|turn| turn.rps),
            cpu_us_per_request: median(|turn| turn.cpu_us),
            rss_mb: median(|turn| turn.rss_mb),
            ttft_p50_us: median(|turn| turn.ttft_p50_us),
            ttft_p99_us: median(|turn| turn.ttft_p99_us),
            helper_cpu_us_per_request: median(|turn| turn.helper_cpu_us),
            helper_rss_mb: median(|turn| turn.helper_rss_mb),
            engines_cpu_us_per_request: median(|turn| turn.engines_cpu_us),
            generator_cpu_us_per_request: median(|turn| turn.generator_cpu_us),
            prefix_blocks: median(|turn| turn.prefix_blocks),
            requests: self.sum(key, |turn| turn.requests).unwrap_or_default(),
            failures: self.sum(key, |turn| turn.failures).unwrap_or_default(),
            p50_us_over_rounds: self.spread(key, |turn| turn.p50_us).unwrap_or_default(),
            rps_over_rounds: self.spread(key, |turn| turn.rps).unwrap_or_default(),
        })
    }
}

/// A row of `bench.json`: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the case.
    pub case: &'static str,
    /// Connections.
    pub concurrency: usize,
    /// Name of the way.
    pub target: &'static str,
    /// Engines in the pool.
    pub endpoints: usize,
    /// Blocks in the index, as planned.
    pub index_entries: usize,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Answered requests a second.
    pub rps: f64,
    /// The proxy's processor time a request, in microseconds; 0 without a proxy.
    pub cpu_us_per_request: f64,
    /// The proxy's resident memory; 0 without a proxy.
    pub rss_mb: f64,
    /// Median time to the first byte of the answer's body, in microseconds.
    pub ttft_p50_us: f64,
    /// 99th percentile.
    pub ttft_p99_us: f64,
    /// Processor time of the agent or picker.
    pub helper_cpu_us_per_request: f64,
    /// Its resident memory.
    pub helper_rss_mb: f64,
    /// Processor time of the engines' stub.
    pub engines_cpu_us_per_request: f64,
    /// Processor time of the load generator.
    pub generator_cpu_us_per_request: f64,
    /// Blocks that the filter's index had; 0 without a filter.
    pub prefix_blocks: f64,
    /// Requests answered, in all rounds.
    pub requests: f64,
    /// Requests that failed, in all rounds.
    pub failures: f64,
    /// How much the median latency differed between rounds.
    pub p50_us_over_rounds: Spread,
    /// How much the throughput did.
    pub rps_over_rounds: Spread,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn key(target: Target) -> Key {
        Key { case: Case::Small, connections: 1, target, endpoints: 10, index_entries: 10_000 }
    }

    fn turn(p50_us: f64) -> Turn {
        Turn { requests: 1.0, p50_us, ..Turn::default() }
    }

    #[test]
    fn ratios_are_taken_within_each_round() {
        // The machine is twice as slow in the second round: the ratio does not change.
        let mut figures = Figures::default();
        for factor in [1.0, 2.0] {
            figures.add(key(Target::Envoy), turn(300.0 * factor));
            figures.add(key(Target::Warmroute), turn(450.0 * factor));
        }
        let ratio = figures.ratio(key(Target::Warmroute), key(Target::Envoy), |turn| turn.p50_us);
        assert_eq!(ratio, Some(Spread { median: 1.5, low: 1.5, high: 1.5 }));
        assert_eq!(figures.ratio(key(Target::Full), key(Target::Envoy), |turn| turn.p50_us), None);
    }

    #[test]
    fn a_turn_is_divided_by_its_answered_requests() {
        let measured = Measured {
            whole_us: vec![30.0, 10.0, 20.0, 40.0],
            first_us: vec![3.0, 1.0, 2.0, 4.0],
            failures: 1,
            seconds: 2.0,
        };
        let turn = Turn::of(measured, [400.0, 40.0, 80.0, 120.0]);
        assert_eq!(
            (turn.rps, turn.cpu_us, turn.generator_cpu_us, turn.failures),
            (2.0, 100.0, 30.0, 1.0)
        );
        assert_eq!((turn.p99_us, turn.ttft_p99_us), (40.0, 4.0));
    }

    #[test]
    fn what_was_never_answered_is_no_row() {
        let mut figures = Figures::default();
        figures.add(key(Target::Envoy), Turn { failures: 3.0, ..Turn::default() });
        assert_eq!(figures.rows().count(), 0);
        figures.add(key(Target::Envoy), turn(1.0));
        assert_eq!(
            figures.rows().next().map(|row| (row.target, row.failures)),
            Some(("envoy", 3.0))
        );
    }
}
