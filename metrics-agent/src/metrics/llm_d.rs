//! The agent's part of llm-d's metrics, under llm-d's names and labels, so that its dashboards work: of pools, of the
//! scrapes, of KV events. The others are the filter's.
//!
//! Each has its present name, `llm_d_epp_…`, and where llm-d still has it the deprecated one beside it.
//! Labels are bounded by the configuration: pools and endpoints that are gone are not told any more.

use super::pools::{PoolFigures, Spread};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

/// `source_type` of the pages of engines.
const SOURCE: &str = "metrics-data-source";
/// `extractor_type` of what is read of them.
const EXTRACTOR: &str = "core-metrics-extractor";

type FloatGauge = Gauge<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    name: String,
    model_server_endpoint: String,
}

/// Of the deprecated name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PodLabels {
    name: String,
    model_server_pod: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InfoLabels {
    commit: &'static str,
    build_ref: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExtractorLabels {
    source_type: &'static str,
    extractor_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PublisherLabels {
    pod_identifier: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    pod_identifier: String,
    operation: &'static str,
}

/// What counts up, and what comes and goes.
#[derive(Debug, Default)]
pub(super) struct LlmdMetrics {
    poll_errors: Counter,
    extract_errors: Counter,
    kv_messages: Family<PublisherLabels, Counter>,
    kv_errors: Family<ErrorLabels, Counter>,
    kv_subscribers: Gauge,
}

/// What goes wrong with a publisher of KV events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KvFault {
    /// It cannot be reached.
    Connect,
    /// What it sent is no message.
    Receive,
}

impl KvFault {
    const ALL: [Self; 2] = [Self::Connect, Self::Receive];

    fn operation(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Receive => "receive",
        }
    }
}

impl LlmdMetrics {
    /// An endpoint's page was not had.
    pub(super) fn poll_failed(&self) {
        self.poll_errors.inc();
    }

    /// A page lacks a signal that its engine should tell.
    pub(super) fn signal_missing(&self) {
        self.extract_errors.inc();
    }

    /// Messages of a publisher were read.
    pub(super) fn kv_messages(&self, endpoint: &str, count: u64) {
        let labels = PublisherLabels { pod_identifier: endpoint.to_owned() };
        self.kv_messages.get_or_create(&labels).inc_by(count);
    }

    /// Something went wrong with a publisher.
    pub(super) fn kv_fault(&self, endpoint: &str, fault: KvFault, count: u64) {
        let (pod_identifier, operation) = (endpoint.to_owned(), fault.operation());
        self.kv_errors.get_or_create(&ErrorLabels { pod_identifier, operation }).inc_by(count);
    }

    /// One more publisher is followed.
    pub(super) fn kv_followed(&self) {
        self.kv_subscribers.inc();
    }

    /// A publisher is followed no more.
    pub(super) fn kv_forgotten(&self, endpoint: &str) {
        self.kv_subscribers.dec();
        self.kv_messages.remove(&PublisherLabels { pod_identifier: endpoint.to_owned() });
        for fault in KvFault::ALL {
            let (pod_identifier, operation) = (endpoint.to_owned(), fault.operation());
            self.kv_errors.remove(&ErrorLabels { pod_identifier, operation });
        }
    }

    /// The exposition, with the figures of this moment.
    pub(super) fn encode(
        &self,
        pools: &[PoolFigures],
        text: &mut String,
    ) -> Result<(), std::fmt::Error> {
        let mut registry = Registry::default();
        self.register_counts(&mut registry);
        register_pools(&mut registry, pools);
        prometheus_client::encoding::text::encode_registry(text, &registry)
    }

    fn register_counts(&self, registry: &mut Registry) {
        let info = Family::<InfoLabels, Gauge>::default();
        let commit = option_env!("WARMROUTE_COMMIT").unwrap_or("unknown");
        let build_ref = concat!("warmroute-", env!("CARGO_PKG_VERSION"));
        info.get_or_create(&InfoLabels { commit, build_ref }).set(1);
        let polls = Family::<SourceLabels, Counter>::default();
        let source = SourceLabels { source_type: SOURCE };
        polls.get_or_create(&source).inc_by(self.poll_errors.get());
        let extracts = Family::<ExtractorLabels, Counter>::default();
        let extractor = ExtractorLabels { source_type: SOURCE, extractor_type: EXTRACTOR };
        extracts.get_or_create(&extractor).inc_by(self.extract_errors.get());
        let (poll_help, extract_help) =
            ("Scrapes without a readable page", "Pages without a signal that their engine tells");
        for name in ["llm_d_epp_info", "inference_extension_info"] {
            registry.register(name, "1, with the build in its labels", info.clone());
        }
        for prefix in ["llm_d_epp", "llm_d_inference_scheduler"] {
            let name = |rest: &str| format!("{prefix}_datalayer_{rest}_errors");
            registry.register(name("poll"), poll_help, polls.clone());
            registry.register(name("extract"), extract_help, extracts.clone());
        }
        registry.register(
            "llm_d_epp_kv_cache_events_messages_received",
            "Batches of KV events by publisher",
            self.kv_messages.clone(),
        );
        registry.register(
            "llm_d_epp_kv_cache_events_zmq_errors",
            "Faults of publishers' sockets by what was tried: connect, receive",
            self.kv_errors.clone(),
        );
        registry.register(
            "llm_d_epp_kv_cache_events_active_subscribers",
            "Publishers of KV events that are followed",
            self.kv_subscribers.clone(),
        );
    }
}

fn register_pools(registry: &mut Registry, pools: &[PoolFigures]) {
    let ready = Family::<PoolLabels, Gauge>::default();
    let queues = Family::<EndpointLabels, FloatGauge>::default();
    let former_queues = Family::<PodLabels, FloatGauge>::default();
    for pool in pools {
        let name = &pool.name;
        ready.get_or_create(&PoolLabels { name: name.clone() }).set(pool.ready.into());
        for (endpoint, waiting) in &pool.queues {
            let (name, endpoint) = (name.clone(), endpoint.clone());
            let waiting = f64::from(*waiting);
            let former = PodLabels { name: name.clone(), model_server_pod: endpoint.clone() };
            former_queues.get_or_create(&former).set(waiting);
            let labels = EndpointLabels { name, model_server_endpoint: endpoint };
            queues.get_or_create(&labels).set(waiting);
        }
    }
    type Signal = fn(&PoolFigures) -> Option<Spread>;
    let signals: [(&str, &str, Signal); 3] = [
        ("kv_cache_utilization", "share of KV blocks in use", |pool| pool.kv_usage),
        ("queue_size", "waiting requests", |pool| pool.waiting),
        ("running_requests", "running requests", |pool| pool.running),
    ];
    for (signal, what, of) in signals {
        let (mean, deviation) = (Family::default(), Family::<PoolLabels, FloatGauge>::default());
        for pool in pools {
            let Some(spread) = of(pool) else { continue };
            let labels = PoolLabels { name: pool.name.clone() };
            let of_mean: &Family<PoolLabels, FloatGauge> = &mean;
            of_mean.get_or_create(&labels).set(spread.mean);
            deviation.get_or_create(&labels).set(spread.deviation);
        }
        let mean_help = format!("Mean over the pool's endpoints: {what}");
        for prefix in ["llm_d_epp", "inference_pool"] {
            registry.register(format!("{prefix}_average_{signal}"), &mean_help, mean.clone());
        }
        registry.register(
            format!("llm_d_epp_std_dev_{signal}"),
            format!("Standard deviation over the pool's endpoints: {what}"),
            deviation,
        );
    }
    let ready_help = "Endpoints of the pool that may be picked";
    registry.register("llm_d_epp_ready_endpoints", ready_help, ready.clone());
    registry.register("inference_pool_ready_pods", ready_help, ready);
    let queue_help = "Waiting requests by endpoint";
    registry.register("llm_d_epp_per_endpoint_queue_size", queue_help, queues);
    registry.register("inference_pool_per_pod_queue_size", queue_help, former_queues);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &LlmdMetrics, pools: &[PoolFigures]) -> String {
        let mut text = String::new();
        metrics.encode(pools, &mut text).unwrap();
        text
    }

    fn pool(name: &str) -> PoolFigures {
        let spread = |mean| Some(Spread { mean, deviation: mean / 2.0 });
        PoolFigures {
            name: name.to_owned(),
            ready: 2,
            kv_usage: spread(0.5),
            waiting: spread(3.0),
            running: spread(4.0),
            queues: vec![("a".to_owned(), 3.0)],
        }
    }

    /// llm-d's dashboards and alerts ask for exactly these.
    #[test]
    fn names_and_labels_are_llm_ds() {
        let metrics = LlmdMetrics::default();
        metrics.poll_failed();
        metrics.signal_missing();
        metrics.kv_followed();
        metrics.kv_messages("n/a", 7);
        metrics.kv_fault("n/a", KvFault::Connect, 1);
        let seen = text(&metrics, &[pool("p")]);
        let samples: Vec<_> = seen.lines().filter(|line| !line.starts_with('#')).collect();
        let build = concat!("build_ref=\"warmroute-", env!("CARGO_PKG_VERSION"), "\"} 1");
        let commit = option_env!("WARMROUTE_COMMIT").unwrap_or("unknown");
        let info = |name: &str| format!("{name}{{commit=\"{commit}\",{build}");
        let expected = [
            &info("llm_d_epp_info"),
            &info("inference_extension_info"),
            "llm_d_epp_datalayer_poll_errors_total{source_type=\"metrics-data-source\"} 1",
            "llm_d_epp_datalayer_extract_errors_total{source_type=\"metrics-data-source\",\
             extractor_type=\"core-metrics-extractor\"} 1",
            "llm_d_inference_scheduler_datalayer_poll_errors_total{source_type=\"metrics-data-source\"} 1",
            "llm_d_inference_scheduler_datalayer_extract_errors_total{source_type=\"metrics-data-source\",\
             extractor_type=\"core-metrics-extractor\"} 1",
            "llm_d_epp_kv_cache_events_messages_received_total{pod_identifier=\"n/a\"} 7",
            "llm_d_epp_kv_cache_events_zmq_errors_total{pod_identifier=\"n/a\",operation=\"connect\"} 1",
            "llm_d_epp_kv_cache_events_active_subscribers 1",
            "llm_d_epp_average_kv_cache_utilization{name=\"p\"} 0.5",
            "inference_pool_average_kv_cache_utilization{name=\"p\"} 0.5",
            "llm_d_epp_std_dev_kv_cache_utilization{name=\"p\"} 0.25",
            "llm_d_epp_average_queue_size{name=\"p\"} 3.0",
            "inference_pool_average_queue_size{name=\"p\"} 3.0",
            "llm_d_epp_std_dev_queue_size{name=\"p\"} 1.5",
            "llm_d_epp_average_running_requests{name=\"p\"} 4.0",
            "inference_pool_average_running_requests{name=\"p\"} 4.0",
            "llm_d_epp_std_dev_running_requests{name=\"p\"} 2.0",
            "llm_d_epp_ready_endpoints{name=\"p\"} 2",
            "inference_pool_ready_pods{name=\"p\"} 2",
            "llm_d_epp_per_endpoint_queue_size{name=\"p\",model_server_endpoint=\"a\"} 3.0",
            "inference_pool_per_pod_queue_size{name=\"p\",model_server_pod=\"a\"} 3.0",
        ];
        assert_eq!(samples, expected, "{seen}");
    }

    #[test]
    fn what_nobody_tells_is_not_told() {
        let silent = PoolFigures { kv_usage: None, queues: vec![], ..pool("p") };
        let seen = text(&LlmdMetrics::default(), &[silent]);
        assert!(
            !seen.contains("kv_cache_utilization{") && !seen.contains("queue_size{name=\"p\",m")
        );
        assert!(seen.contains("llm_d_epp_average_queue_size{name=\"p\"} 3.0"));
    }

    #[test]
    fn a_publishers_series_go_with_it() {
        let metrics = LlmdMetrics::default();
        for name in ["n/a", "n/b"] {
            metrics.kv_followed();
            metrics.kv_messages(name, 1);
            metrics.kv_fault(name, KvFault::Receive, 1);
        }
        metrics.kv_forgotten("n/a");
        let seen = text(&metrics, &[]);
        assert!(!seen.contains("n/a") && seen.contains("n/b"));
        assert!(seen.contains("active_subscribers 1"));
    }
}
