//! The agent's own Prometheus metrics.
//!
//! Series with an endpoint's name are removed with the endpoint, so labels are bounded by the
//! configuration.

mod kv_events;
mod llm_d;
pub mod pools;
pub mod tenants;

pub use kv_events::KvEventMetrics;

use crate::scrape::health::Outcome;
use llm_d::LlmdMetrics;
use pools::PoolFigures;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;

/// How a scrape ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "they are the label values")]
enum ScrapeResult {
    ok,
    unreadable,
    no_answer,
    refused,
    untried,
}

const SCRAPE_RESULTS: [ScrapeResult; 5] = [
    ScrapeResult::ok,
    ScrapeResult::unreadable,
    ScrapeResult::no_answer,
    ScrapeResult::refused,
    ScrapeResult::untried,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScrapeLabels {
    endpoint: String,
    result: ScrapeResult,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SignalLabels {
    signal: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// How many endpoints are in which state, counted when the metrics are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// Neither answered nor found out yet.
    pub pending: u32,
    /// May be picked.
    pub ready: u32,
    /// Taken out.
    pub out: u32,
    /// Ready, but waiting requests are not known.
    pub no_waiting: u32,
    /// Ready, but running requests are not known.
    pub no_running: u32,
    /// Ready, but KV usage is not known.
    pub no_kv_usage: u32,
}

/// What is only known at the moment at which the metrics are read.
#[derive(Debug, Clone, Default)]
pub struct Moment {
    /// Endpoints by state.
    pub census: Census,
    /// Figures of pools.
    pub pools: Vec<PoolFigures>,
    /// Number of the stream's last operation.
    pub seq: u64,
    /// Age of the configuration in force.
    pub config_age_seconds: u64,
}

/// All metrics.
pub struct Metrics {
    registry: Registry,
    endpoints: Family<StateLabels, Gauge>,
    missing_signals: Family<SignalLabels, Gauge>,
    scrapes: Family<ScrapeLabels, Counter>,
    scrape_seconds: Histogram,
    stream_seq: Gauge,
    config_loads: Family<ResultLabels, Counter>,
    config_refused: Gauge,
    config_age_seconds: Gauge,
    host_writes: Family<ResultLabels, Counter>,
    /// Polls of the stream that are being answered.
    pub stream_readers: Gauge,
    /// Answers of the stream, by kind.
    stream_answers: Family<ResultLabels, Counter>,
    /// Of KV events.
    pub kv_events: KvEventMetrics,
    llm_d: Arc<LlmdMetrics>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero.
    #[must_use]
    pub fn new() -> Self {
        let llm_d = Arc::new(LlmdMetrics::default());
        let mut metrics = Self {
            registry: Registry::with_prefix("warmroute_agent"),
            endpoints: Family::default(),
            missing_signals: Family::default(),
            scrapes: Family::default(),
            scrape_seconds: Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0]),
            stream_seq: Gauge::default(),
            config_loads: Family::default(),
            config_refused: Gauge::default(),
            config_age_seconds: Gauge::default(),
            host_writes: Family::default(),
            stream_readers: Gauge::default(),
            stream_answers: Family::default(),
            kv_events: KvEventMetrics::new(Arc::clone(&llm_d)),
            llm_d,
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "endpoints",
            "Endpoints by state: pending (not known yet), ready, out",
            self.endpoints.clone(),
        );
        registry.register(
            "endpoints_without_signal",
            "Ready endpoints whose signal is missing or stale, and so neutral",
            self.missing_signals.clone(),
        );
        registry.register("scrapes", "Scrapes by endpoint and result", self.scrapes.clone());
        registry.register_with_unit(
            "scrape_duration",
            "Duration of scrapes",
            Unit::Seconds,
            self.scrape_seconds.clone(),
        );
        registry.register(
            "stream_seq",
            "Number of the last operation of the stream",
            self.stream_seq.clone(),
        );
        registry.register(
            "stream_readers",
            "Polls of the stream that are being answered",
            self.stream_readers.clone(),
        );
        registry.register(
            "stream_answers",
            "Answers of the stream: snapshot, delta, empty, not_ready",
            self.stream_answers.clone(),
        );
        registry.register(
            "config_loads",
            "Contents of the configuration that were judged, by verdict",
            self.config_loads.clone(),
        );
        registry.register(
            "config_refused",
            "1 while the files on disk are bad and an earlier configuration is in force",
            self.config_refused.clone(),
        );
        registry.register_with_unit(
            "config_age",
            "Age of the configuration in force",
            Unit::Seconds,
            self.config_age_seconds.clone(),
        );
        registry.register(
            "host_writes",
            "Writes of the hosts that Envoy loads, by result",
            self.host_writes.clone(),
        );
        self.kv_events.register(registry);
    }

    /// Counts a scrape of the endpoint `name`.
    pub fn scraped(&self, name: &str, outcome: &Outcome, seconds: f64) {
        let result = match outcome {
            Outcome::Read(_) => ScrapeResult::ok,
            Outcome::Unreadable => ScrapeResult::unreadable,
            Outcome::NoAnswer => ScrapeResult::no_answer,
            Outcome::Refused => ScrapeResult::refused,
            Outcome::Untried => ScrapeResult::untried,
        };
        match outcome {
            Outcome::Read(reading) if reading.is_whole => {}
            Outcome::Read(_) => self.llm_d.signal_missing(),
            _ => self.llm_d.poll_failed(),
        }
        let labels = ScrapeLabels { endpoint: name.to_owned(), result };
        self.scrapes.get_or_create(&labels).inc();
        self.scrape_seconds.observe(seconds);
    }

    /// Drops the series of an endpoint that is gone.
    pub fn forget(&self, name: &str) {
        for result in SCRAPE_RESULTS {
            self.scrapes.remove(&ScrapeLabels { endpoint: name.to_owned(), result });
        }
    }

    /// Counts a judged configuration.
    pub fn config_judged(&self, good: bool) {
        let result = if good { "ok" } else { "refused" };
        self.config_loads.get_or_create(&ResultLabels { result }).inc();
        self.config_refused.set(i64::from(!good));
    }

    /// Counts a write of Envoy's hosts.
    pub fn hosts_written(&self, good: bool) {
        let result = if good { "ok" } else { "failed" };
        self.host_writes.get_or_create(&ResultLabels { result }).inc();
    }

    /// Counts an answer of the stream.
    pub fn stream_answered(&self, result: &'static str) {
        self.stream_answers.get_or_create(&ResultLabels { result }).inc();
    }

    /// The exposition at this moment.
    ///
    /// # Errors
    /// If the text could not be written, which a string does not do.
    pub fn encode(&self, moment: &Moment) -> Result<String, std::fmt::Error> {
        let Moment { census, pools, seq, config_age_seconds } = moment;
        for (state, count) in
            [("pending", census.pending), ("ready", census.ready), ("out", census.out)]
        {
            self.endpoints.get_or_create(&StateLabels { state }).set(count.into());
        }
        for (signal, count) in [
            ("waiting", census.no_waiting),
            ("running", census.no_running),
            ("kv_usage", census.no_kv_usage),
        ] {
            self.missing_signals.get_or_create(&SignalLabels { signal }).set(count.into());
        }
        self.stream_seq.set(i64::try_from(*seq).unwrap_or(i64::MAX));
        self.config_age_seconds.set(i64::try_from(*config_age_seconds).unwrap_or(i64::MAX));
        let mut text = String::new();
        text::encode_registry(&mut text, &self.registry)?;
        self.llm_d.encode(pools, &mut text)?;
        text::encode_eof(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoints_series_go_with_it() {
        let metrics = Metrics::new();
        metrics.scraped("default/a", &Outcome::Refused, 0.001);
        metrics.scraped("default/b", &Outcome::NoAnswer, 0.001);
        let census = Census { ready: 1, out: 1, no_kv_usage: 1, ..Census::default() };
        let moment = Moment { census, seq: 7, config_age_seconds: 3, ..Moment::default() };
        let text = metrics.encode(&moment).unwrap();
        assert!(text.ends_with("\n# EOF\n"));
        for line in [
            "warmroute_agent_scrapes_total{endpoint=\"default/a\",result=\"refused\"} 1",
            "warmroute_agent_endpoints{state=\"out\"} 1",
            "warmroute_agent_endpoints_without_signal{signal=\"kv_usage\"} 1",
            "warmroute_agent_stream_seq 7",
            "warmroute_agent_config_age_seconds 3",
            "llm_d_epp_datalayer_poll_errors_total{source_type=\"metrics-data-source\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        metrics.scraped("default/a", &Outcome::Untried, 0.001);
        metrics.scraped("default/a", &Outcome::Unreadable, 0.001);
        metrics.forget("default/a");
        let text = metrics.encode(&moment).unwrap();
        assert!(!text.contains("default/a") && text.contains("default/b"));
    }
}
