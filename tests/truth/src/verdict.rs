//! How good the beliefs were, and whether that is good enough. Plain data in, plain data out.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// Bytes of one block of the filter's table.
pub const BYTE_BLOCK: f64 = warmroute_shared_state::prefix::BLOCK_BYTES as f64;

/// What a belief rests on, in the filter's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The endpoint is believed to hold nothing of the prompt.
    Nothing,
    /// What the engine's events told.
    Events,
    /// The last picks, of which events have not come yet: it is speculative.
    Expected,
    /// Earlier picks, in place of events that nobody follows.
    Approximate,
}

impl Kind {
    /// Whether events speak; that nothing is held is what they say, too.
    #[must_use]
    pub fn is_precise(self) -> bool {
        matches!(self, Self::Nothing | Self::Events)
    }
}

/// Why the engine lacked the first block after those it held; as the simulator tells.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lack {
    /// It never held it, or not lately.
    NotHeld,
    /// It was evicted, and no event has said so yet.
    EvictionUntold,
    /// It was evicted, and an event said so.
    EvictionTold {
        /// So many milliseconds before the request came.
        ms: f64,
    },
}

/// One request: what was believed of the picked endpoint, and what was so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Observation {
    /// Its `x-request-id`.
    pub request: String,
    /// Tokens that the endpoint was believed to hold.
    pub believed: u64,
    /// Where that came from.
    pub kind: Kind,
    /// Tokens that the engine found cached when it began to work, as in its usage.
    pub cached: u64,
    /// Tokens that it held when the request came, where that is told.
    pub held: Option<u64>,
    /// Why it did not hold more, where that is told.
    pub lack: Option<Lack>,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Bytes of the rendered prompt.
    pub prompt_bytes: u64,
}

impl Observation {
    /// Tokens of one byte block, by this prompt's own ratio.
    #[must_use]
    pub fn unit(&self) -> f64 {
        BYTE_BLOCK * self.prompt_tokens as f64 / (self.prompt_bytes.max(1)) as f64
    }

    /// What is compared with the belief: what was held on arrival where that is told, else what was
    /// found when the work began.
    #[must_use]
    pub fn truth(&self) -> u64 {
        self.held.unwrap_or(self.cached)
    }

    /// How far the belief is off, in byte blocks.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.believed.abs_diff(self.truth()) as f64 / self.unit()
    }

    /// Whether the belief is more than one byte block too high.
    #[must_use]
    pub fn over(&self) -> bool {
        self.believed.saturating_sub(self.truth()) as f64 > self.unit()
    }

    /// Whether the filter could not know better yet: what was missing was evicted, and the event that
    /// says so was not out for `delay_ms`.
    #[must_use]
    pub fn late(&self, delay_ms: f64) -> bool {
        match self.lack {
            Some(Lack::EvictionUntold) => true,
            Some(Lack::EvictionTold { ms }) => ms <= delay_ms,
            Some(Lack::NotHeld) | None => false,
        }
    }

    /// Whether there was anything to be right or wrong about.
    #[must_use]
    pub fn tells(&self) -> bool {
        self.believed > 0 || self.truth() > 0
    }
}

/// Where the truth comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The engine simulator.
    Sim,
    /// A real vLLM.
    Vllm,
}

/// Mean and 95th percentile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Spread {
    pub mean: f64,
    pub p95: f64,
}

/// Median and 99th percentile, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Delay {
    pub p50: f64,
    pub p99: f64,
}

/// What `truth.json` says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Where the truth comes from.
    pub source: Source,
    /// Requests with a precise belief in which engine or filter had something.
    pub requests: usize,
    /// How far these beliefs were off, in byte blocks of the prompt's own tokens.
    pub error_in_blocks: Spread,
    /// Beliefs more than one byte block too high that were not merely late.
    pub false_hits: usize,
    /// From an engine's event to every worker, during the flood.
    pub event_to_visible_ms: Delay,
    /// Endpoints whose events were followed at the end.
    pub endpoints_precise: usize,
}

/// What else is worth knowing; printed, not written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aside {
    /// Requests that were answered and are in the log.
    pub observed: usize,
    /// Precise, but neither engine nor filter had anything.
    pub nothing: usize,
    /// Picked by what is speculative, and how far those beliefs were off.
    pub speculative: (usize, Spread),
    /// Picked by what is approximate.
    pub approximate: usize,
    /// Beliefs more than a byte block too high of blocks whose eviction was not out yet.
    pub late: usize,
    /// Beliefs too low by more than two byte blocks.
    pub low: usize,
    /// The 95th percentile of the error less one engine block, in byte blocks.
    pub p95_less_engine_block: f64,
    /// Share of prompt tokens that was held.
    pub held_share: f64,
}

/// Judges the observations. `delay_ms`: for how long an event that is out may be unknown to the
/// filter; `engine_block`: tokens.
#[must_use]
pub fn judge(
    source: Source,
    observations: &[Observation],
    delay_ms: f64,
    engine_block: u64,
    visible: Delay,
    endpoints_precise: usize,
) -> (Report, Aside) {
    let of = |kind| observations.iter().filter(move |one| one.kind == kind);
    let (precise, compared): (usize, Vec<&Observation>) = {
        let precise = || observations.iter().filter(|one| one.kind.is_precise());
        (precise().count(), precise().filter(|one| one.tells()).collect())
    };
    let errors: Vec<f64> = compared.iter().map(|one| one.error()).collect();
    let (late, wrong): (Vec<&Observation>, Vec<&Observation>) =
        compared.iter().filter(|one| one.over()).partition(|one| one.late(delay_ms));
    let beyond =
        compared.iter().map(|one| one.error() - engine_block as f64 / one.unit()).collect();
    let speculative: Vec<f64> = of(Kind::Expected).map(Observation::error).collect();
    let tokens = |count: fn(&Observation) -> u64| observations.iter().map(count).sum::<u64>();
    let report = Report {
        source,
        requests: compared.len(),
        error_in_blocks: spread(errors),
        false_hits: wrong.len(),
        event_to_visible_ms: visible,
        endpoints_precise,
    };
    let aside = Aside {
        observed: observations.len(),
        nothing: precise - compared.len(),
        speculative: (speculative.len(), spread(speculative)),
        approximate: of(Kind::Approximate).count(),
        late: late.len(),
        low: compared.iter().filter(|one| one.truth() > one.believed && one.error() > 2.0).count(),
        p95_less_engine_block: quantile(beyond, 0.95),
        held_share: tokens(Observation::truth) as f64
            / tokens(|one| one.prompt_tokens).max(1) as f64,
    };
    (report, aside)
}

/// The false hits themselves, for whoever has to find out why.
pub fn false_hits(
    observations: &[Observation],
    delay_ms: f64,
) -> impl Iterator<Item = &Observation> {
    observations
        .iter()
        .filter(move |one| one.kind.is_precise() && one.over() && !one.late(delay_ms))
}

/// Bars that were missed, in words; none if all is well.
#[must_use]
pub fn missed(report: &Report, aside: &Aside) -> Vec<String> {
    let mut missed = Vec::new();
    let mut bar = |name: &str, value: f64, limit: f64| {
        // A value that is no number misses every bar.
        if value.is_nan() || value > limit {
            let mut line = String::new();
            let _ = write!(line, "{name} is {value:.3}, more than {limit}");
            missed.push(line);
        }
    };
    match report.source {
        Source::Sim => {
            bar("error_in_blocks.p95", report.error_in_blocks.p95, 1.7);
            bar("error_in_blocks.mean", report.error_in_blocks.mean, 0.85);
            bar("event_to_visible_ms.p99", report.event_to_visible_ms.p99, 50.0);
        }
        Source::Vllm => {
            bar("error_in_blocks.p95 less one engine block", aside.p95_less_engine_block, 1.0);
        }
    }
    let rate = report.false_hits as f64 / report.requests as f64;
    bar("the share of false hits", rate, 0.001);
    let least = match report.source {
        Source::Sim => 1_000,
        Source::Vllm => 200,
    };
    if report.requests < least {
        missed.push(format!("{} requests were compared, fewer than {least}", report.requests));
    }
    if report.endpoints_precise == 0 {
        missed.push("no endpoint is precise".to_owned());
    }
    missed
}

fn spread(values: Vec<f64>) -> Spread {
    let count = values.len().max(1) as f64;
    Spread { mean: values.iter().sum::<f64>() / count, p95: quantile(values, 0.95) }
}

/// The smallest value that at least `share` of all values do not exceed; 0 of none.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prompt of 4 bytes a token: a byte block is 32 tokens.
    fn observation(believed: u64, held: u64, lack: Option<Lack>) -> Observation {
        Observation {
            request: "r".to_owned(),
            believed,
            kind: if believed > 0 { Kind::Events } else { Kind::Nothing },
            cached: held,
            held: Some(held),
            lack,
            prompt_tokens: 1_000,
            prompt_bytes: 4_000,
        }
    }

    fn judged(observations: &[Observation]) -> (Report, Aside) {
        judge(Source::Sim, observations, 50.0, 16, Delay { p50: 1.0, p99: 9.0 }, 4)
    }

    #[test]
    fn errors_are_in_the_prompts_own_byte_blocks_both_ways() {
        let cases = [(0, 64, 2.0), (64, 0, 2.0), (100, 100, 0.0), (16, 32, 0.5)];
        for (believed, held, error) in cases {
            assert_eq!(observation(believed, held, None).error(), error);
        }
        let dense = Observation { prompt_bytes: 1_000, ..observation(0, 64, None) };
        assert_eq!((dense.unit(), dense.error()), (128.0, 0.5));
    }

    #[test]
    fn a_false_hit_is_more_than_a_byte_block_too_high_and_not_late() {
        let told = |ms| Some(Lack::EvictionTold { ms });
        let cases = [
            (32, None, 0, 0),
            (33, None, 1, 0),
            (33, Some(Lack::NotHeld), 1, 0),
            (33, Some(Lack::EvictionUntold), 0, 1),
            (33, told(50.0), 0, 1),
            (33, told(50.1), 1, 0),
        ];
        for (believed, lack, false_hits, late) in cases {
            let (report, aside) = judged(&[observation(believed, 0, lack)]);
            assert_eq!((report.false_hits, aside.late), (false_hits, late), "{believed} {lack:?}");
        }
    }

    #[test]
    fn what_is_speculative_approximate_or_empty_is_counted_apart() {
        let of = |kind| Observation { kind, ..observation(320, 0, None) };
        let all = [
            of(Kind::Expected),
            of(Kind::Approximate),
            observation(0, 0, None),
            observation(32, 48, None),
        ];
        let (report, aside) = judged(&all);
        assert_eq!((report.requests, report.false_hits), (1, 0));
        assert_eq!(report.error_in_blocks, Spread { mean: 0.5, p95: 0.5 });
        assert_eq!((aside.speculative.0, aside.approximate, aside.nothing), (1, 1, 1));
        assert_eq!(aside.speculative.1.mean, 10.0);
    }

    #[test]
    fn without_arrivals_usage_is_the_truth() {
        let vllm = Observation { held: None, cached: 96, ..observation(32, 0, None) };
        assert_eq!(vllm.truth(), 96);
        // Two byte blocks off, of which one engine block of 32 tokens is one.
        let (report, aside) = judge(Source::Vllm, &vec![vllm; 200], 0.0, 32, Delay::default(), 1);
        assert_eq!((report.error_in_blocks.p95, aside.p95_less_engine_block), (2.0, 1.0));
        assert_eq!(missed(&report, &aside), Vec::<String>::new());
    }

    #[test]
    fn every_bar_can_be_missed() {
        let good = Report {
            source: Source::Sim,
            requests: 2_000,
            error_in_blocks: Spread { mean: 0.8, p95: 1.7 },
            false_hits: 2,
            event_to_visible_ms: Delay { p50: 1.0, p99: 50.0 },
            endpoints_precise: 4,
        };
        let aside = Aside::default();
        assert_eq!(missed(&good, &aside), Vec::<String>::new());
        let worse: [fn(&mut Report); 7] = [
            |report| report.error_in_blocks.p95 = 1.71,
            |report| report.error_in_blocks.mean = f64::NAN,
            |report| report.event_to_visible_ms.p99 = 51.0,
            |report| report.false_hits = 3,
            |report| (report.requests, report.false_hits) = (999, 0),
            |report| report.endpoints_precise = 0,
            |report| report.error_in_blocks.mean = 0.86,
        ];
        for (case, worsen) in worse.into_iter().enumerate() {
            let mut report = good.clone();
            worsen(&mut report);
            assert_eq!(missed(&report, &aside).len(), 1, "case {case}");
        }
    }

    #[test]
    fn the_report_has_the_agreed_form() {
        let (report, _) = judged(&[observation(32, 48, None)]);
        let expected = serde_json::json!({
            "source": "sim", "requests": 1, "error_in_blocks": {"mean": 0.5, "p95": 0.5}, "false_hits": 0,
            "event_to_visible_ms": {"p50": 1.0, "p99": 9.0}, "endpoints_precise": 4,
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), expected);
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        assert_eq!(quantile((1..=100).map(f64::from).collect(), 0.95), 95.0);
        assert_eq!(quantile(vec![3.0], 0.95), 3.0);
        assert_eq!(quantile(vec![], 0.95), 0.0);
    }
}
