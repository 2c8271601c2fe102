//! llm-d's request metrics, from records: names, labels and buckets are those of llm-d-router
//! (`pkg/epp/metrics/llm_d_router_metrics.go`), with the deprecated names beside them.
//!
//! A filter's stats are whole numbers of Envoy's; times in seconds can only be told here. Label values that
//! clients choose are bounded as llm-d bounds them; what there is no room for is `other`.

mod buckets;
mod names;

use super::drops::Drops;
use super::tally::{Sums, Tally};
use buckets::{
    DURATION, INPUT_TOKENS, NTPOT, OUTPUT_TOKENS, QUEUE, REQUEST_SIZE, RESPONSE_SIZE, TPOT, TTFT,
};
use names::{ModelLabels, Names};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text::encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::{Mutex, PoisonError};
use warmroute_shared_state::usage_record::{EndCause, UsageRecord};

/// Of the deprecated names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectiveLabels {
    model_name: String,
    target_model_name: String,
    priority: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabel {
    error_code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StreamingLabel {
    streaming: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    fairness_id: String,
    priority: String,
    outcome: &'static str,
    inference_pool: String,
    model_name: String,
    target_model_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
    priority: String,
    inference_pool: String,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "they are the label values")]
pub enum RecordResult {
    /// Stored.
    stored,
    /// It was there already.
    duplicate,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "they are the label values")]
pub enum BatchResult {
    /// All of it is stored.
    stored,
    /// It could not be read.
    refused,
    /// Too many at once.
    busy,
    /// The file could not be written.
    failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RecordLabels {
    result: RecordResult,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BatchLabels {
    result: BatchResult,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    tenant: String,
    model: String,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    tenant: String,
    reason: String,
}

/// Makes histograms of given buckets.
#[derive(Debug, Clone, Copy)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

type Histograms<L> = Family<L, Histogram, Buckets>;

fn histograms<L: Clone + std::hash::Hash + Eq>(buckets: &'static [f64]) -> Histograms<L> {
    Family::new_with_constructor(Buckets(buckets))
}

/// What is told of every request, by one set of labels.
#[derive(Debug)]
struct Requests<L: Clone + std::hash::Hash + Eq + EncodeLabelSet> {
    total: Family<L, Counter>,
    errors: Family<(L, ErrorLabel), Counter>,
    duration: Histograms<L>,
    request_size: Histograms<L>,
    response_size: Histograms<L>,
    input: Histograms<L>,
    cached: Histograms<L>,
    output: Histograms<L>,
    ntpot: Histograms<L>,
}

impl<L> Requests<L>
where
    L: Clone + std::hash::Hash + Eq + EncodeLabelSet + std::fmt::Debug + Send + Sync + 'static,
{
    fn new() -> Self {
        Self {
            total: Family::default(),
            errors: Family::default(),
            duration: histograms(DURATION),
            request_size: histograms(REQUEST_SIZE),
            response_size: histograms(RESPONSE_SIZE),
            input: histograms(INPUT_TOKENS),
            cached: histograms(INPUT_TOKENS),
            output: histograms(OUTPUT_TOKENS),
            ntpot: histograms(NTPOT),
        }
    }

    fn finished(&self, labels: &L, record: &UsageRecord) {
        self.total.get_or_create(labels).inc();
        self.request_size.get_or_create(labels).observe(number(record.request_bytes));
        if let Some(error_code) = error_code(record) {
            let error = ErrorLabel { error_code };
            self.errors.get_or_create(&(labels.clone(), error)).inc();
        }
        if record.cause == EndCause::Rejected {
            return;
        }
        self.duration.get_or_create(labels).observe(seconds(record.duration_ms));
        self.response_size.get_or_create(labels).observe(number(record.response_bytes));
        if record.input_tokens > 0 {
            self.input.get_or_create(labels).observe(number(record.input_tokens));
            self.cached.get_or_create(labels).observe(number(record.cached_tokens));
        }
        if record.output_tokens > 0 {
            self.output.get_or_create(labels).observe(number(record.output_tokens));
            let each = seconds(record.duration_ms) / number(record.output_tokens);
            self.ntpot.get_or_create(labels).observe(each);
        }
    }

    /// `name` turns the present name's end into the whole name; `None`: it is not told here.
    fn register(&self, registry: &mut Registry, name: impl Fn(&str) -> Option<String>) {
        if let Some(name) = name("request") {
            registry.register(name, "Requests that ended", self.total.clone());
        }
        if let Some(name) = name("request_error") {
            registry.register(name, "Requests that failed", self.errors.clone());
        }
        for (rest, help, family) in [
            ("request_duration_seconds", "From a request's headers to its end", &self.duration),
            ("request_size_bytes", "Bytes of the request's body", &self.request_size),
            ("response_size_bytes", "Bytes of the response's body", &self.response_size),
            ("request_input_tokens", "Prompt tokens", &self.input),
            ("request_cached_tokens", "Prompt tokens out of the cache", &self.cached),
            ("request_output_tokens", "Output tokens", &self.output),
            ("request_ntpot_seconds", "Duration by output token", &self.ntpot),
        ] {
            if let Some(name) = name(rest) {
                registry.register(name, help, family.clone());
            }
        }
    }
}

/// Everything that is counted of records.
#[derive(Debug)]
pub struct LedgerMetrics {
    names: Mutex<Names>,
    by_model: Requests<ModelLabels>,
    by_objective: Requests<ObjectiveLabels>,
    ttft: Histograms<(ModelLabels, StreamingLabel)>,
    tpot: Histograms<ModelLabels>,
    queue: Histograms<QueueLabels>,
    outcomes: Family<OutcomeLabels, Counter>,
    records: Family<RecordLabels, Counter>,
    batches: Family<BatchLabels, Counter>,
    pruned: Counter,
}

impl Default for LedgerMetrics {
    fn default() -> Self {
        Self {
            names: Mutex::default(),
            by_model: Requests::new(),
            by_objective: Requests::new(),
            ttft: histograms(TTFT),
            tpot: histograms(TPOT),
            queue: histograms(QUEUE),
            outcomes: Family::default(),
            records: Family::default(),
            batches: Family::default(),
            pruned: Counter::default(),
        }
    }
}

impl LedgerMetrics {
    /// A request that was not counted before.
    pub fn finished(&self, record: &UsageRecord) {
        let (labels, pool) =
            self.names.lock().unwrap_or_else(PoisonError::into_inner).bounded(record);
        let ModelLabels { model_name, target_model_name, fairness_id, priority } = labels.clone();
        self.by_model.finished(&labels, record);
        let former = ObjectiveLabels {
            model_name: model_name.clone(),
            target_model_name: target_model_name.clone(),
            priority: priority.clone(),
        };
        self.by_objective.finished(&former, record);
        if let Some(outcome) = record.flow.map(|flow| flow.as_str()) {
            let by_outcome =
                OutcomeLabels { outcome, priority: priority.clone(), inference_pool: pool.clone() };
            self.outcomes.get_or_create(&by_outcome).inc();
            let queued = QueueLabels {
                fairness_id,
                priority,
                outcome,
                inference_pool: pool,
                model_name,
                target_model_name,
            };
            self.queue.get_or_create(&queued).observe(seconds(record.queue_ms));
        }
        let Some(ttft) = record.ttft_ms else { return };
        let later = record.output_tokens.saturating_sub(1);
        if record.streamed && later > 0 {
            let time = seconds(record.duration_ms.saturating_sub(ttft));
            self.tpot.get_or_create(&labels).observe(time / number(later));
        }
        let streaming = if record.streamed { "true" } else { "false" };
        let labels = (labels, StreamingLabel { streaming });
        self.ttft.get_or_create(&labels).observe(seconds(ttft));
    }

    /// A batch was answered.
    pub fn batch(&self, result: BatchResult) {
        self.batches.get_or_create(&BatchLabels { result }).inc();
    }

    pub(super) fn records(&self, result: RecordResult, count: u64) {
        self.records.get_or_create(&RecordLabels { result }).inc_by(count);
    }

    pub(super) fn pruned(&self, count: u64) {
        self.pruned.inc_by(count);
    }

    /// The exposition, without an end mark: to stand before the agent's other metrics.
    ///
    /// # Errors
    /// If the text could not be written, which a string does not do.
    pub(super) fn encode(&self, tally: &Tally, drops: &Drops) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::default();
        // Counters and whole numbers are Envoy's to tell: of one name in two places, a sum would count twice.
        self.by_model.register(&mut registry, |rest| {
            rest.ends_with("_seconds").then(|| format!("llm_d_epp_{rest}"))
        });
        self.by_objective.register(&mut registry, |rest| {
            let rest = match rest {
                "request_size_bytes" => "request_sizes",
                "response_size_bytes" => "response_sizes",
                "request_input_tokens" => "input_tokens",
                "request_cached_tokens" => "prompt_cached_tokens",
                "request_output_tokens" => "output_tokens",
                "request_ntpot_seconds" => "normalized_time_per_output_token_seconds",
                same => same,
            };
            Some(format!("inference_objective_{rest}"))
        });
        let first = "From a request's headers to the first token";
        registry.register("llm_d_epp_request_ttft_seconds", first, self.ttft.clone());
        let each = "Time by output token after the first, of streams";
        registry.register("llm_d_epp_request_streaming_tpot_seconds", each, self.tpot.clone());
        for prefix in ["llm_d_epp", "inference_extension"] {
            let name = |rest: &str| format!("{prefix}_flow_control_{rest}");
            let (time, help) = (name("request_queue_duration_seconds"), "Time in the queue");
            registry.register(time, help, self.queue.clone());
            let (count, help) = (name("requests"), "Requests by what flow control did");
            registry.register(count, help, self.outcomes.clone());
        }
        let own = |rest: &str| format!("warmroute_agent_ledger_{rest}");
        registry.register(own("records"), "Usage records by result", self.records.clone());
        registry.register(own("batches"), "Batches of them by result", self.batches.clone());
        registry.register(own("removed_records"), "Too old ones removed", self.pruned.clone());
        register_tally(&mut registry, tally);
        register_drops(&mut registry, drops);
        let mut text = String::new();
        encode_registry(&mut text, &registry)?;
        Ok(text)
    }
}

fn register_tally(registry: &mut Registry, tally: &Tally) {
    let tokens = Family::<TenantLabels, Counter>::default();
    for ((tenant, model), sums) in tally.sums() {
        let Sums { input, cached, output, charged, .. } = sums;
        for (kind, count) in
            [("input", input), ("cached", cached), ("output", output), ("charged", charged)]
        {
            let labels = TenantLabels { tenant: tenant.clone(), model: model.clone(), kind };
            tokens.get_or_create(&labels).inc_by(count);
        }
    }
    let help = "Tokens by tenant and model since the agent's start; cached ones are input too";
    registry.register("warmroute_agent_tenant_tokens", help, tokens);
}

fn register_drops(registry: &mut Registry, drops: &Drops) {
    let requests = Family::<DropLabels, Counter>::default();
    for ((tenant, reason), count) in drops.counts() {
        requests.get_or_create(&DropLabels { tenant, reason }).inc_by(count);
    }
    let help = "Requests that were refused or ended early, by tenant and reason";
    registry.register("warmroute_agent_tenant_drops", help, requests);
}

/// llm-d's word for a failure (`pkg/common/error`); `None` for a request that did not fail.
fn error_code(record: &UsageRecord) -> Option<&'static str> {
    let by_status = match record.status {
        400 => Some("BadRequest"),
        401 => Some("Unauthorized"),
        403 => Some("Forbidden"),
        404 => Some("NotFound"),
        412 => Some("PreconditionFailed"),
        429 => Some("ResourceExhausted"),
        500 => Some("Internal"),
        503 => Some("ServiceUnavailable"),
        other if other > 400 => Some("Unknown"),
        _ => None,
    };
    match record.cause {
        EndCause::Evicted => Some("ResourceExhausted"),
        EndCause::UpstreamError | EndCause::Timeout => {
            Some(by_status.unwrap_or("ModelServerError"))
        }
        EndCause::Natural | EndCause::Disconnect | EndCause::Rejected => by_status,
    }
}

fn seconds(ms: u64) -> f64 {
    number(ms) / 1000.0
}

/// Exact up to 2^53, which is more than is counted here.
#[expect(clippy::cast_precision_loss, reason = "buckets are far coarser")]
fn number(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests;
