//! llm-d's request metrics, from records: names, labels and buckets are those of llm-d-router
//! (`pkg/epp/metrics/llm_d_router_metrics.go`), with the deprecated names beside them.
//!
//! A filter's stats are whole numbers of Envoy's; times in seconds can only be told here. Label values that
//! clients choose are bounded as llm-d bounds them; what there is no room for is `other`.

use super::tally::{Sums, Tally};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text::encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use warmroute_shared_state::usage_record::{EndCause, UsageRecord};

/// Distinct names of models, of fairness IDs, and of pools.
const MAX_NAMES: usize = 1000;
/// Combinations of all labels; llm-d has no such bound, but each takes some 300 series here.
const MAX_COMBINATIONS: usize = 2000;
/// Stands for whatever there is no room for.
const OTHER: &str = "other";

const DURATION: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0,
    1200.0, 1800.0, 2700.0, 3600.0,
];
const REQUEST_SIZE: &[f64] = &[
    64.0,
    128.0,
    256.0,
    512.0,
    1024.0,
    2048.0,
    4096.0,
    8192.0,
    16_384.0,
    32_768.0,
    65_536.0,
    131_072.0,
    262_144.0,
    524_288.0,
    1_048_576.0,
    2_097_152.0,
    4_194_304.0,
    8_388_608.0,
    16_777_216.0,
    33_554_432.0,
    67_108_864.0,
    134_217_728.0,
    268_435_456.0,
    536_870_912.0,
    1_073_741_824.0,
];
/// 32778 is llm-d's.
const RESPONSE_SIZE: &[f64] = &[
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16_384.0,
    32_778.0, 65_536.0,
];
const INPUT_TOKENS: &[f64] = &[
    1.0,
    8.0,
    16.0,
    32.0,
    64.0,
    128.0,
    256.0,
    512.0,
    1024.0,
    2048.0,
    4096.0,
    8192.0,
    16_384.0,
    32_778.0,
    65_536.0,
    131_072.0,
    262_144.0,
    524_288.0,
    1_048_576.0,
];
const OUTPUT_TOKENS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];
const NTPOT: &[f64] = &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
const TTFT: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0,
];
const TPOT: &[f64] = &[
    0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5,
    0.6, 0.8, 1.0, 2.0,
];
const QUEUE: &[f64] = &[
    0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model_name: String,
    target_model_name: String,
    fairness_id: String,
    priority: String,
}

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

    /// `name` turns the present name's end into the whole name.
    fn register(&self, registry: &mut Registry, name: impl Fn(&str) -> String) {
        registry.register(name("request"), "Requests that ended", self.total.clone());
        registry.register(name("request_error"), "Requests that failed", self.errors.clone());
        for (rest, help, family) in [
            ("request_duration_seconds", "From a request's headers to its end", &self.duration),
            ("request_size_bytes", "Bytes of the request's body", &self.request_size),
            ("response_size_bytes", "Bytes of the response's body", &self.response_size),
            ("request_input_tokens", "Prompt tokens", &self.input),
            ("request_cached_tokens", "Prompt tokens out of the cache", &self.cached),
            ("request_output_tokens", "Output tokens", &self.output),
            ("request_ntpot_seconds", "Duration by output token", &self.ntpot),
        ] {
            registry.register(name(rest), help, family.clone());
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
    pub fn encode(&self, tally: &Tally) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::default();
        self.by_model.register(&mut registry, |rest| format!("llm_d_epp_{rest}"));
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
            format!("inference_objective_{rest}")
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

/// Names that have been told.
#[derive(Debug, Default)]
struct Names {
    models: HashSet<String>,
    fairness_ids: HashSet<String>,
    pools: HashSet<String>,
    combinations: HashSet<ModelLabels>,
}

impl Names {
    fn bounded(&mut self, record: &UsageRecord) -> (ModelLabels, String) {
        // What is refused may name any model, and makes no room for it.
        let adds = record.cause != EndCause::Rejected;
        let labels = ModelLabels {
            model_name: name(&mut self.models, &record.model, adds),
            target_model_name: name(&mut self.models, &record.target_model, adds),
            fairness_id: name(&mut self.fairness_ids, &record.fairness_id, adds),
            priority: record.priority.to_string(),
        };
        let pool = name(&mut self.pools, &record.pool, adds);
        if self.combinations.contains(&labels) {
            return (labels, pool);
        }
        if self.combinations.len() < MAX_COMBINATIONS {
            self.combinations.insert(labels.clone());
            return (labels, pool);
        }
        let other = || OTHER.to_owned();
        let labels = ModelLabels {
            model_name: other(),
            target_model_name: other(),
            fairness_id: other(),
            priority: other(),
        };
        (labels, other())
    }
}

fn name(known: &mut HashSet<String>, name: &str, adds: bool) -> String {
    // Empty is "none": it takes no room.
    if name.is_empty() || known.contains(name) {
        return name.to_owned();
    }
    if adds && known.len() < MAX_NAMES {
        known.insert(name.to_owned());
        return name.to_owned();
    }
    OTHER.to_owned()
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
        400.. => Some("Unknown"),
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
