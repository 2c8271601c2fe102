//! What a replay came to, and what it was to reach.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::{Answer, Memory, Slice, Target, page};
use crate::report::Quantiles;

/// Least share of the ideal hits, where memory is ample.
const OF_IDEAL: f64 = 0.9;

/// Most prompt tokens of one engine over the mean, where memory is ample.
const MAX_OVER_MEAN: f64 = 1.3;

/// One target's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Who picked.
    pub target: Target,
    /// Requests sent.
    pub requests: usize,
    /// Of these, failed.
    pub errors: usize,
    /// Failures by kind.
    pub failures: BTreeMap<String, usize>,
    /// Prompt tokens, as the engines counted them.
    pub prompt_tokens: u64,
    /// Of these, held by the engine that was picked.
    pub cached_tokens: u64,
    /// Of the prompt tokens that an infinite cache shared by all engines would have held, the share
    /// that was held.
    pub of_ideal: f64,
    /// Prompt tokens that each engine was given, in the order of their ports.
    pub prompt_tokens_per_engine: Vec<u64>,
    /// The largest of these over their mean.
    pub max_over_mean: f64,
    /// Time to first token in milliseconds, as measured.
    pub ttft_ms: Quantiles,
    /// How late requests were sent, in milliseconds: noise of the machine.
    pub late_ms: Quantiles,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Sorted times to first token, for the plots.
    #[serde(skip)]
    pub samples_ms: Vec<f64>,
}

impl Row {
    /// Sums up the answers of `engines` to a slice, which took `elapsed`.
    #[must_use]
    pub fn of(
        target: Target,
        answers: &[Answer],
        slice: &Slice,
        engines: &[SocketAddr],
        elapsed: Duration,
    ) -> Self {
        let mut failures = BTreeMap::new();
        let mut per_engine = vec![0_u64; engines.len()];
        let names: Vec<String> = engines.iter().map(SocketAddr::to_string).collect();
        let (mut prompt_tokens, mut cached_tokens) = (0, 0);
        for Answer { outcome, .. } in answers {
            if let Some(failure) = &outcome.failure {
                *failures.entry(format!("{failure:?}")).or_insert(0) += 1;
            }
            prompt_tokens += outcome.facts.prompt_tokens;
            cached_tokens += outcome.facts.cached_tokens;
            let engine = names.iter().position(|name| Some(name) == outcome.endpoint.as_ref());
            if let Some(tokens) = engine.and_then(|engine| per_engine.get_mut(engine)) {
                *tokens += outcome.facts.prompt_tokens;
            }
        }
        let milliseconds = |times: &mut dyn Iterator<Item = Duration>| {
            let mut times: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e3).collect();
            times.sort_by(f64::total_cmp);
            times
        };
        let served = answers.iter().filter(|answer| answer.outcome.failure.is_none());
        let samples_ms = milliseconds(&mut served.filter_map(|answer| answer.outcome.first_token));
        let late_ms = milliseconds(&mut answers.iter().map(|answer| answer.late));
        Self {
            target,
            requests: answers.len(),
            errors: failures.values().sum(),
            failures,
            prompt_tokens,
            cached_tokens,
            of_ideal: ratio(cached_tokens as f64, slice.ideal_cached_tokens as f64),
            max_over_mean: max_over_mean(&per_engine),
            prompt_tokens_per_engine: per_engine,
            ttft_ms: Quantiles::of(&samples_ms),
            late_ms: Quantiles::of(&late_ms),
            seconds: (elapsed.as_secs_f64() * 10.0).round() / 10.0,
            samples_ms,
        }
    }
}

fn max_over_mean(values: &[u64]) -> f64 {
    let most = values.iter().max().copied().unwrap_or(0);
    ratio(most as f64 * values.len() as f64, values.iter().sum::<u64>() as f64)
}

/// To four places; 0 of nothing.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { (part / whole * 1e4).round() / 1e4 }
}

/// All targets with the same memory.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// How much.
    pub memory: Memory,
    /// In tokens, of each engine.
    pub kv_tokens_per_replica: usize,
    /// In the order in which they were run.
    pub rows: Vec<Row>,
}

/// What was to be reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// By whom.
    pub target: Target,
    /// What is meant.
    pub what: &'static str,
    /// The bar.
    pub bar: f64,
    /// Whether it is the most that is allowed, not the least.
    pub at_most: bool,
    /// What was measured.
    pub value: f64,
    /// Whether it is reached.
    pub met: bool,
}

/// A whole replay: `replay.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the trace's file.
    pub trace: String,
    /// Requests of the slice.
    pub requests: usize,
    /// Different conversations among them, as told to the session hash.
    pub sessions: usize,
    /// Engines.
    pub replicas: usize,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Of these, what an infinite cache that all engines share would have held.
    pub ideal_cached_tokens: u64,
    /// Tokens of all different prefixes.
    pub working_set_tokens: u64,
    /// How many times faster than the trace time passed, for arrivals and engines alike.
    pub time_scale: f64,
    /// Envoy's worker threads.
    pub workers: usize,
    /// What was measured.
    pub cases: Vec<CaseReport>,
    /// What was to be reached; empty where none of it was measured.
    pub bars: Vec<Bar>,
}

impl Report {
    /// What the filter is to reach, of these cases. A run with errors reaches nothing.
    #[must_use]
    pub fn bars(cases: &[CaseReport]) -> Vec<Bar> {
        let ample = cases.iter().filter(|case| case.memory == Memory::Ample);
        let rows = ample.flat_map(|case| &case.rows).filter(|row| row.target.is_warmroute());
        let mut bars = Vec::new();
        for row in rows {
            let bar = |what, at_most, bar, value| {
                let within = if at_most { value <= bar } else { value >= bar };
                let met = within && row.errors == 0 && row.prompt_tokens > 0;
                Bar { target: row.target, what, bar, at_most, value, met }
            };
            bars.push(bar("share of the ideal hits", false, OF_IDEAL, row.of_ideal));
            let balance = row.max_over_mean;
            bars.push(bar("prompt tokens, max over mean", true, MAX_OVER_MEAN, balance));
        }
        bars
    }

    /// Writes `replay.json` and `replay.html` into `dir`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, dir: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("replay.json"), serde_json::to_vec_pretty(self)?)?;
        std::fs::write(dir.join("replay.html"), page(self))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::load::{Failure, Outcome, StreamFacts};

    fn answer(port: u16, prompt_tokens: u64, cached_tokens: u64, first_token: u64) -> Answer {
        let facts = StreamFacts { prompt_tokens, cached_tokens, ..StreamFacts::default() };
        let outcome = Outcome {
            first_token: Some(Duration::from_millis(first_token)),
            whole: Duration::from_secs(1),
            endpoint: Some(SocketAddr::from(([127, 0, 0, 1], port)).to_string()),
            status: Some(200),
            facts,
            failure: None,
        };
        Answer { outcome, late: Duration::from_millis(3) }
    }

    pub(crate) fn report() -> Report {
        let slice = Slice {
            prompt_tokens: 4_000,
            ideal_cached_tokens: 1_000,
            working_set_tokens: 3_000,
            ..Slice::default()
        };
        let engines = [9_101, 9_102].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let row = |target, cached| {
            let answers = [answer(9_101, 2_400, 0, 80), answer(9_102, 1_600, cached, 20)];
            Row::of(target, &answers, &slice, &engines, Duration::from_secs(2))
        };
        let rows = vec![row(Target::RoundRobin, 200), row(Target::Warmroute, 950)];
        let case = CaseReport { memory: Memory::Ample, kv_tokens_per_replica: 9_000, rows };
        let bars = Report::bars(std::slice::from_ref(&case));
        Report {
            trace: "a <trace>".to_owned(),
            requests: 2,
            sessions: 2,
            replicas: 2,
            prompt_tokens: slice.prompt_tokens,
            ideal_cached_tokens: slice.ideal_cached_tokens,
            working_set_tokens: slice.working_set_tokens,
            time_scale: 16.0,
            workers: 2,
            cases: vec![case],
            bars,
        }
    }

    #[test]
    fn a_row_adds_up_what_engines_told() {
        let report = report();
        let row = &report.cases[0].rows[1];
        assert_eq!((row.requests, row.errors), (2, 0));
        assert_eq!((row.prompt_tokens, row.cached_tokens), (4_000, 950));
        assert_eq!(row.prompt_tokens_per_engine, [2_400, 1_600]);
        assert_eq!((row.of_ideal, row.max_over_mean), (0.95, 1.2));
        assert_eq!(row.ttft_ms.p99, Some(80.0));
        assert_eq!(row.late_ms.p50, Some(3.0));
    }

    #[test]
    fn bars_are_the_filters_where_memory_is_ample() {
        let mut report = report();
        let bars = |report: &Report| {
            Report::bars(&report.cases).iter().map(|bar| (bar.value, bar.met)).collect::<Vec<_>>()
        };
        assert_eq!(bars(&report), [(0.95, true), (1.2, true)]);
        let row = &mut report.cases[0].rows[1];
        (row.of_ideal, row.max_over_mean) = (0.89, 1.31);
        assert_eq!(bars(&report), [(0.89, false), (1.31, false)]);
        report.cases[0].memory = Memory::Quarter;
        assert_eq!(bars(&report), []);
    }

    #[test]
    fn a_run_with_failures_reaches_no_bar() {
        let mut failed = answer(9_101, 10, 10, 1);
        failed.outcome.failure = Some(Failure::Timeout);
        let slice = Slice { ideal_cached_tokens: 10, ..Slice::default() };
        let engines = [SocketAddr::from(([127, 0, 0, 1], 9_101))];
        let row = Row::of(Target::Warmroute, &[failed], &slice, &engines, Duration::ZERO);
        assert_eq!((row.errors, row.failures["Timeout"]), (1, 1));
        assert!(row.samples_ms.is_empty());
        let case = CaseReport { memory: Memory::Ample, kv_tokens_per_replica: 1, rows: vec![row] };
        assert!(Report::bars(&[case]).iter().all(|bar| !bar.met));
    }

    #[test]
    fn the_files_have_the_agreed_fields() {
        let dir = tempfile::tempdir().unwrap();
        report().write(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("replay.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let row = &json["cases"][0]["rows"][0];
        assert_eq!(row["target"], "round-robin");
        for field in ["of_ideal", "max_over_mean"] {
            assert!(row[field].is_number(), "{field}");
        }
        for field in ["p50", "p99"] {
            assert!(row["ttft_ms"][field].is_number(), "{field}");
        }
        assert_eq!(json["bars"][0]["met"], true);
        assert!(dir.path().join("replay.html").is_file());
    }
}
