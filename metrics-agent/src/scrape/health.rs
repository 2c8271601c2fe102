//! What the outcomes of scrapes say of an endpoint: may it be picked, is its cache still the same,
//! do its last signals still hold.
//!
//! Metrics never take an endpoint out: only a refused connection or silence does. An answer of
//! any status is an answer. Failed scrapes age the last values and do not zero them.

use super::engine::{Reading, StartTime};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warmroute_shared_state::endpoint::{Availability, Load};
use warmroute_shared_state::signals::Signals;

/// How one scrape ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// We could not ask, by a fault of our own: nothing is learned, the signals age.
    Untried,
    /// Nobody listens, or the connection was reset before any answer.
    Refused,
    /// No answer in time.
    NoAnswer,
    /// An answer without readable metrics: error status, blank, cut, too large.
    Unreadable,
    /// An answer with metrics.
    Read(Reading),
}

/// When an endpoint is taken out, and how long its signals hold.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Scrapes without an answer in a row until the endpoint is out; at least 1.
    pub failed_scrapes: u32,
    /// Age from which a signal counts as unknown.
    pub stale_after: Duration,
}

/// All that is known of one endpoint from its scrapes.
#[derive(Debug, Clone)]
pub struct Health {
    limits: Limits,
    availability: Option<Availability>,
    unanswered: u32,
    outages: u16,
    start: Option<StartTime>,
    /// Since the endpoint was out, another engine may listen there, also one started earlier.
    start_in_doubt: bool,
    block_tokens: u32,
    kv_blocks: u32,
    load: Option<Measured>,
    signals: Arc<Signals>,
}

/// Load and when the scrape that told them began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The load.
    pub load: Load,
    /// Start of the scrape.
    pub at: Instant,
}

impl Health {
    /// An endpoint that was never scraped.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            availability: None,
            unanswered: 0,
            outages: 0,
            start: None,
            start_in_doubt: false,
            block_tokens: 0,
            kv_blocks: 0,
            load: None,
            signals: Arc::default(),
        }
    }

    /// Takes in how a scrape that began at `began` ended. `interval` is the endpoint's present
    /// pause between scrapes: signals hold at least twice as long, else a slow engine, which is
    /// scraped seldom, would lose them between two good scrapes.
    pub fn apply(&mut self, outcome: Outcome, began: Instant, now: Instant, interval: Duration) {
        match outcome {
            Outcome::Untried => {}
            Outcome::Refused => self.go_out(now),
            Outcome::NoAnswer => {
                self.unanswered = self.unanswered.saturating_add(1);
                if self.unanswered >= self.limits.failed_scrapes.max(1) {
                    self.go_out(now);
                }
            }
            Outcome::Unreadable => self.answered(),
            Outcome::Read(reading) => {
                self.answered();
                self.read(reading, began);
            }
        }
        let limit = self.limits.stale_after.max(interval.saturating_mul(2));
        if let Some(measured) = &mut self.load
            && now.saturating_duration_since(measured.at) > limit
        {
            measured.load = Load::default();
            self.signals = Arc::default();
        }
    }

    fn go_out(&mut self, now: Instant) {
        self.availability = Some(Availability::Out);
        self.start_in_doubt = true;
        self.signals = Arc::default();
        if let Some(measured) = &mut self.load
            && measured.load != Load::default()
        {
            *measured = Measured { load: Load::default(), at: now };
        }
    }

    fn answered(&mut self) {
        self.unanswered = 0;
        if self.availability == Some(Availability::Out) {
            self.outages = self.outages.wrapping_add(1);
        }
        self.availability = Some(Availability::Ready);
    }

    fn read(&mut self, reading: Reading, began: Instant) {
        if let Some(start) = reading.start {
            let restarted = self.start.is_none_or(|earlier| {
                start.is_restart_since(earlier) || (self.start_in_doubt && start != earlier)
            });
            self.start_in_doubt = false;
            if restarted {
                // The start time alone tells this run of the engine from the one before, also to
                // an agent that saw no outage.
                self.start = Some(start);
                self.outages = 0;
            }
        }
        self.block_tokens = reading.block_tokens.unwrap_or(self.block_tokens);
        self.kv_blocks = reading.kv_blocks.unwrap_or(self.kv_blocks);
        self.load = Some(Measured { load: reading.load, at: began });
        if *self.signals != reading.signals {
            self.signals = Arc::new(reading.signals);
        }
    }

    /// `None` until the endpoint answered once or was found out.
    #[must_use]
    pub fn availability(&self) -> Option<Availability> {
        self.availability
    }

    /// Changes when the engine was restarted or was out: start time in milliseconds, then the
    /// number of outages since that start in the low 16 bits. A restarted agent finds the same for
    /// an engine that was not out since it started: outages are counted in memory.
    #[must_use]
    pub fn generation(&self) -> u64 {
        let start = self.start.map_or(0, StartTime::millis);
        (start << 16) | u64::from(self.outages)
    }

    /// Tokens in a KV block, 0 = not known.
    #[must_use]
    pub fn block_tokens(&self) -> u32 {
        self.block_tokens
    }

    /// KV blocks, 0 = not known.
    #[must_use]
    pub fn kv_blocks(&self) -> u32 {
        self.kv_blocks
    }

    /// The last load; all unknown once it is stale or the endpoint is out.
    #[must_use]
    pub fn measured(&self) -> Option<Measured> {
        self.load
    }

    /// LoRA adapters and attributes; nothing once they are stale or the endpoint is out.
    #[must_use]
    pub fn signals(&self) -> &Arc<Signals> {
        &self.signals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { failed_scrapes: 3, stale_after: Duration::from_secs(2) };
    const INTERVAL: Duration = Duration::from_millis(50);

    fn scraped(start: u64, waiting: f32) -> Outcome {
        Outcome::Read(Reading {
            load: Load { waiting: Some(waiting), ..Load::default() },
            signals: Signals {
                adapters: None,
                attributes: vec![("waiting".into(), f64::from(waiting))],
            },
            block_tokens: Some(16),
            kv_blocks: Some(100),
            start: Some(StartTime::Process(start)),
            is_whole: true,
        })
    }

    /// Applies outcomes 100 ms apart and returns availability and generation after each.
    fn run(health: &mut Health, outcomes: &[Outcome]) -> Vec<(Option<Availability>, u64)> {
        let start = Instant::now();
        (0u32..)
            .zip(outcomes)
            .map(|(n, outcome)| {
                let now = start + Duration::from_millis(100) * n;
                health.apply(outcome.clone(), now, now, INTERVAL);
                (health.availability(), health.generation())
            })
            .collect()
    }

    #[test]
    fn availability_and_generation_follow_the_outcomes() {
        use Outcome::{NoAnswer, Refused, Unreadable, Untried};
        let (up, out) = (Some(Availability::Ready), Some(Availability::Out));
        let (g1, g2) = (1u64 << 16, 2u64 << 16);
        let (s1, s2) = (|| scraped(1, 0.0), || scraped(2, 0.0));
        type Case<'a> = (&'a str, &'a [Outcome], &'a [(Option<Availability>, u64)]);
        let cases: [Case<'_>; 12] = [
            ("one refusal", &[s1(), Refused, s1()], &[(up, g1), (out, g1), (up, g1 + 1)]),
            (
                "silence",
                &[s1(), NoAnswer, NoAnswer, s1(), NoAnswer, NoAnswer, NoAnswer, s1()],
                &[
                    (up, g1),
                    (up, g1),
                    (up, g1),
                    (up, g1),
                    (up, g1),
                    (up, g1),
                    (out, g1),
                    (up, g1 + 1),
                ],
            ),
            (
                "bad metrics",
                &[s1(), Unreadable, Unreadable, Unreadable, Unreadable],
                &[(up, g1); 5],
            ),
            (
                "an error status ends a silence",
                &[s1(), NoAnswer, NoAnswer, Unreadable, NoAnswer],
                &[(up, g1); 5],
            ),
            (
                "our own fault",
                &[s1(), Untried, NoAnswer, Untried, NoAnswer, Untried],
                &[(up, g1); 6],
            ),
            ("our own fault from the start", &[Untried, Untried, Untried], &[(None, 0); 3]),
            ("restart unseen", &[s1(), s2(), s2()], &[(up, g1), (up, g2), (up, g2)]),
            ("restart with outage", &[s1(), Refused, s2()], &[(up, g1), (out, g1), (up, g2)]),
            ("clock going back", &[s2(), s1()], &[(up, g2), (up, g2)]),
            (
                "an older engine takes the address over",
                &[s2(), Refused, Unreadable, s1()],
                &[(up, g2), (out, g2), (up, g2 + 1), (up, g1)],
            ),
            (
                "never up, then up: as if seen up from the start",
                &[NoAnswer, NoAnswer, Refused, s1()],
                &[(None, 0), (None, 0), (out, 0), (up, g1)],
            ),
            ("no start time", &[Unreadable, Refused, Unreadable], &[(up, 0), (out, 0), (up, 1)]),
        ];
        for (name, outcomes, expected) in cases {
            assert_eq!(run(&mut Health::new(LIMITS), outcomes), expected, "{name}");
        }
    }

    #[test]
    fn failed_scrapes_age_the_signals_until_they_are_unknown() {
        let start = Instant::now();
        let mut health = Health::new(LIMITS);
        health.apply(scraped(1, 7.0), start, start, INTERVAL);
        let waiting = |health: &Health| health.measured().unwrap().load.waiting;
        let steps = [
            (500, Outcome::Unreadable, Some(7.0)),
            (2000, Outcome::Untried, Some(7.0)),
            (2001, Outcome::Untried, None),
        ];
        for (millis, outcome, expected) in steps {
            let now = start + Duration::from_millis(millis);
            health.apply(outcome, now, now, INTERVAL);
            assert_eq!(waiting(&health), expected, "{millis} ms");
            let attribute = health.signals().attribute("waiting");
            assert_eq!(attribute, expected.map(f64::from), "{millis} ms");
            assert_eq!(health.availability(), Some(Availability::Ready));
            assert_eq!(health.measured().unwrap().at, start, "age counts from the good scrape");
        }
        let now = start + Duration::from_secs(3);
        health.apply(scraped(1, 1.0), now, now, INTERVAL);
        assert_eq!(waiting(&health), Some(1.0));
    }

    #[test]
    fn signals_of_a_slow_engine_hold_over_two_of_its_intervals() {
        let start = Instant::now();
        let slow = Duration::from_secs(4);
        let mut health = Health::new(LIMITS);
        health.apply(scraped(1, 7.0), start, start, slow);
        let now = start + Duration::from_secs(5);
        health.apply(Outcome::NoAnswer, now, now, slow);
        assert_eq!(health.measured().unwrap().load.waiting, Some(7.0));
        let now = start + Duration::from_secs(9);
        health.apply(Outcome::NoAnswer, now, now, slow);
        assert_eq!(health.measured().unwrap().load.waiting, None);
    }

    #[test]
    fn an_endpoint_that_is_out_has_no_signals_and_keeps_its_size() {
        let mut health = Health::new(LIMITS);
        run(&mut health, &[scraped(1, 7.0), Outcome::Refused]);
        assert_eq!(health.measured().unwrap().load, Load::default());
        assert_eq!((health.block_tokens(), health.kv_blocks()), (16, 100));
        assert_eq!(**health.signals(), Signals::default());
    }
}
