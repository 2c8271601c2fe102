//! What was to be reached, and what was. A bar that is missed is told, and fails nothing.

use serde::Serialize;

use crate::extras::Extras;
use crate::figures::{Figures, Key, Of, Spread};
use crate::plan::{ENDPOINTS, ENTRIES, MANY_ENTRIES};
use crate::targets::Target;
use crate::workload::Case;

/// One line of the list.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// What is meant.
    pub what: String,
    /// What was measured; `None` = nothing.
    pub measured: Option<f64>,
    /// How far that went between rounds, where there are rounds.
    pub spread: Option<Spread>,
    /// The bar.
    pub bar: f64,
    /// Whether the bar is the most that is allowed, not the least.
    pub at_most: bool,
}

impl Bar {
    fn once(what: &str, measured: Option<f64>, at_most: bool, bar: f64) -> Self {
        Self { what: what.to_owned(), measured, spread: None, bar, at_most }
    }

    fn over_rounds(what: String, spread: Option<Spread>, at_most: bool, bar: f64) -> Self {
        Self { what, measured: spread.map(|spread| spread.median), spread, bar, at_most }
    }

    /// Whether the bar is reached; `None` = nothing was measured.
    #[must_use]
    pub fn met(&self) -> Option<bool> {
        let value = self.measured?;
        Some(if self.at_most { value <= self.bar } else { value >= self.bar })
    }

    /// `met`, `MISSED` or `not measured`.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self.met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        }
    }
}

fn base(case: Case, connections: usize, target: Target) -> Key {
    Key { case, connections, target, endpoints: ENDPOINTS, index_entries: ENTRIES }
}

/// All bars. `larger`: rows with more engines or blocks, and the base row that they are compared with.
#[must_use]
pub fn bars(figures: &Figures, larger: &Figures, extras: &Extras) -> Vec<Bar> {
    let mut bars = Vec::new();
    let sizes = [(Case::Small, "0.5 kB"), (Case::Large, "220 kB")];
    let limits = [[1.35, 1.0 / 3.0, 0.8, 1.6], [1.6, 0.25, 0.65, 3.0]];
    for ((case, size), [cpu, added, of_envoy, of_router]) in sizes.into_iter().zip(limits) {
        let ratio = |connections, below, of: Of| {
            let of_target = |target| base(case, connections, target);
            figures.ratio(of_target(Target::Warmroute), of_target(below), of)
        };
        let mut bar = |what: &str, spread, at_most, limit| {
            bars.push(Bar::over_rounds(format!("{size}: {what}"), spread, at_most, limit));
        };
        let cpu_ratio = ratio(64, Target::Envoy, |turn| turn.cpu_us);
        bar("CPU a request over envoy, 64 connections", cpu_ratio, true, cpu);
        let ways = [Target::Warmroute, Target::Envoy, Target::VllmRouter, Target::Direct];
        let added_ratio = figures.within(
            ways.map(|target| base(case, 1, target)),
            |turn| turn.p50_us,
            |[warmroute, envoy, router, direct]| (warmroute - envoy) / (router - direct),
        );
        bar(
            "p50 added to envoy over what vllm-router adds, 1 connection",
            added_ratio,
            true,
            added,
        );
        let throughput = ratio(64, Target::Envoy, |turn| turn.rps);
        bar("throughput over envoy, 64 connections", throughput, false, of_envoy);
        let throughput = ratio(64, Target::VllmRouter, |turn| turn.rps);
        bar("throughput over vllm-router, 64 connections", throughput, false, of_router);
    }
    let [precise, envoy] =
        [Target::Precise, Target::Envoy].map(|target| base(Case::Large, 1, target));
    let ratio = figures.ratio(precise, envoy, |turn| turn.p50_us);
    let what = "220 kB: p50 of warmroute-precise over envoy, 1 connection".to_owned();
    bars.push(Bar::over_rounds(what, ratio, true, 1.8));

    let [warmroute, envoy] =
        [Target::Warmroute, Target::Envoy].map(|target| base(Case::LargeStream, 200, target));
    let ratio = figures.ratio(warmroute, envoy, |turn| turn.ttft_p99_us);
    let what = "220 kB streamed: p99 TTFT over envoy, 200 connections".to_owned();
    bars.push(Bar::over_rounds(what, ratio, true, 2.0));
    let failed = figures.sum(warmroute, |turn| turn.failures);
    bars.push(Bar::once("220 kB streamed: failures, 200 connections", failed, true, 0.0));

    let decision = extras.decision_p95_us();
    bars.push(Bar::once(
        "decision p95 in us, 500 requests/s, 10 endpoints",
        decision,
        true,
        1_000.0,
    ));

    let [warmroute, envoy] =
        [Target::Warmroute, Target::Envoy].map(|target| base(Case::Stream, 64, target));
    let ratio = figures.ratio(warmroute, envoy, |turn| turn.cpu_us);
    bars.push(Bar::over_rounds("200 chunks: CPU a stream over envoy".to_owned(), ratio, true, 1.2));

    for memory in &extras.memory {
        let kind = if memory.spliced { "spliced" } else { "nothing spliced" };
        let limit = if memory.spliced { 2.5 } else { 0.5 };
        let growth = Some(memory.first_over_body());
        bars.push(Bar::once(
            &format!("4 MB, {kind}: VM growth by the first, over the body"),
            growth,
            true,
            limit,
        ));
        let later = Some(memory.later_mb());
        bars.push(Bar::once(
            &format!("4 MB, {kind}: VM growth by the next ones, MB"),
            later,
            true,
            0.0,
        ));
    }
    let agent = extras.agent.as_ref().map(|agent| agent.cores);
    bars.push(Bar::once("agent, 100 endpoints of 70 kB every 50 ms, cores", agent, true, 0.5));

    let [many, few] = [MANY_ENTRIES, ENTRIES]
        .map(|index_entries| Key { index_entries, ..base(Case::Large, 1, Target::Precise) });
    let ratio = larger.ratio(many, few, |turn| turn.p50_us);
    let what = "220 kB: p50 with 1M entries over 10k, 1 connection".to_owned();
    bars.push(Bar::over_rounds(what, ratio, true, 4.0));
    bars
}

/// The list for people.
#[must_use]
pub fn table(bars: &[Bar]) -> String {
    let mut out = String::from("what was to be reached; ranges are over the rounds\n");
    for bar in bars {
        let measured = bar.measured.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let range = bar.spread.map_or_else(String::new, |spread| {
            format!("({:.2} to {:.2})", spread.low, spread.high)
        });
        let relation = if bar.at_most { "<=" } else { ">=" };
        out.push_str(&format!(
            "  {:<68} {measured:>8} {range:<18} {relation} {:<8.2} {}\n",
            bar.what,
            bar.bar,
            bar.verdict()
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Turn;

    #[test]
    fn bars_are_met_missed_or_not_measured() {
        let mut figures = Figures::default();
        let mut add = |target, p50_us, cpu_us| {
            for connections in [1, 64] {
                let turn =
                    Turn { requests: 1.0, p50_us, cpu_us, rps: 1e6 / cpu_us, ..Turn::default() };
                figures.add(base(Case::Small, connections, target), turn);
            }
        };
        add(Target::Direct, 50.0, 1.0);
        add(Target::Envoy, 200.0, 100.0);
        add(Target::Warmroute, 300.0, 150.0);
        add(Target::VllmRouter, 450.0, 400.0);
        let bars = bars(&figures, &Figures::default(), &Extras::default());
        let of = |what: &str| {
            let bar = bars.iter().find(|bar| bar.what.contains(what)).unwrap();
            (bar.measured.map(|value| (value * 100.0).round()), bar.verdict())
        };
        assert_eq!(of("0.5 kB: CPU"), (Some(150.0), "MISSED"));
        assert_eq!(of("0.5 kB: p50 added"), (Some(25.0), "met"));
        assert_eq!(of("0.5 kB: throughput over vllm-router"), (Some(267.0), "met"));
        assert_eq!(of("220 kB: CPU"), (None, "not measured"));
        assert!(table(&bars).contains("MISSED"));
    }

    #[test]
    fn bars_are_judged_by_what_was_measured_not_by_what_is_printed() {
        let bar =
            |value| Bar::over_rounds(String::new(), Some(Spread::of(vec![value])), true, 1.35);
        assert_eq!([1.35, 1.354].map(|value| bar(value).met()), [Some(true), Some(false)]);
    }
}
