//! Filters: each takes candidates away.

use super::parameters::Parameters;
use super::session::SessionAffinity;
use super::{Detector, Kind, PluginError, References};
use serde::{Deserialize, Serialize};

/// The label that says what an endpoint does.
pub const ROLE_LABEL: &str = "llm-d.ai/role";

/// A filter with its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Filter {
    /// `decode-filter`, `prefill-filter`, `encode-filter`.
    Role(Role),
    /// `label-selector-filter`, and `by-label-selector`.
    LabelSelector(LabelSelector),
    /// `by-label`.
    ByLabel(ByLabel),
    /// `utilization-filter`.
    Utilization(Utilization),
    /// `endpoint-attribute-filter`.
    EndpointAttribute(AttributeThreshold),
    /// `prefix-cache-affinity-filter`.
    PrefixCacheAffinity(PrefixCacheAffinity),
    /// `session-affinity-filter`.
    SessionAffinity(SessionAffinity),
    /// `context-length-aware` with `enableFiltering: true`.
    ContextLength(ContextLength),
    /// `header-based-testing-filter`: only the endpoints that the header `test-epp-endpoint-selection` lists.
    HeaderBasedTesting,
    /// `utilization-detector` or `concurrency-detector` named in a profile.
    Detector(Detector),
}

/// What an endpoint can do, by [`ROLE_LABEL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Decode; an endpoint without the label, too.
    Decode,
    /// Prefill.
    Prefill,
    /// Encode.
    Encode,
}

impl Role {
    /// Whether an endpoint whose label has this value can do it.
    #[must_use]
    pub fn fits(self, label: Option<&str>) -> bool {
        let Some(label) = label else { return self == Self::Decode };
        let labels: &[&str] = match self {
            Self::Decode => &["decode", "prefill-decode", "both", "encode-prefill-decode"],
            Self::Prefill => {
                &["prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"]
            }
            Self::Encode => &["encode", "encode-prefill", "encode-prefill-decode"],
        };
        labels.contains(&label)
    }
}

/// A Kubernetes label selector; an empty one matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LabelSelector {
    /// All of these labels have these values.
    pub match_labels: Vec<(String, String)>,
    /// All of these hold.
    pub match_expressions: Vec<LabelExpression>,
}

/// One expression of a selector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelExpression {
    /// The label.
    pub key: String,
    /// What must hold of it.
    pub operator: LabelOperator,
    /// Values of `In` and `NotIn`.
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LabelOperator {
    /// It has one of the values.
    In,
    /// It has none of them, or is not there.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

impl LabelSelector {
    /// Whether labels that `label` looks up match.
    #[must_use]
    pub fn matches<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.match_labels.iter().all(|(key, value)| label(key) == Some(value.as_str()))
            && self.match_expressions.iter().all(|expression| {
                let value = label(&expression.key);
                let listed =
                    value.is_some_and(|v| expression.values.iter().any(|known| known == v));
                match expression.operator {
                    LabelOperator::In => listed,
                    LabelOperator::NotIn => !listed,
                    LabelOperator::Exists => value.is_some(),
                    LabelOperator::DoesNotExist => value.is_none(),
                }
            })
    }
}

/// Parameters of `by-label`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByLabel {
    /// The label.
    pub label: String,
    /// Values of it that are kept.
    pub valid_values: Vec<String>,
    /// Endpoints without it are kept, too. Default: false.
    pub allows_no_label: bool,
}

/// Parameters of `utilization-filter`: an endpoint is kept if no metric is above its maximum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Utilization {
    /// At least one.
    pub conditions: Vec<Condition>,
    /// If nobody is kept, everybody is. Default: false.
    pub fallback_on_empty: bool,
}

/// One cap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// What is capped.
    pub metric: Metric,
    /// The cap, itself allowed.
    pub max_value: f64,
}

/// A metric that [`Utilization`] caps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Metric {
    /// `active-requests`: sent by us and not finished.
    ActiveRequests,
    /// `running-requests`, as the engine says.
    RunningRequests,
    /// `waiting-queue`, as the engine says.
    WaitingQueue,
    /// `kv-cache-utilization`, 0 to 1.
    KvCacheUtilization,
}

/// Parameters of `endpoint-attribute-filter`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttributeThreshold {
    /// Key of the attribute.
    pub attribute: String,
    /// Endpoints without it are kept (`onMissing: Pass`, the default).
    pub keep_missing: bool,
    /// If nobody is kept, everybody is. Default: false.
    pub fallback_on_empty: bool,
    /// Kept if `attribute operator value`.
    pub operator: Comparison,
    /// See `operator`. Default: 0.
    pub value: f64,
}

/// How an attribute is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Comparison {
    LessThan,
    LessThanOrEqual,
    GreaterThan,
    GreaterThanOrEqual,
    Equal,
    NotEqual,
}

impl Comparison {
    /// Whether it holds.
    #[must_use]
    #[allow(clippy::float_cmp)]
    pub fn holds(self, value: f64, threshold: f64) -> bool {
        match self {
            Self::LessThan => value < threshold,
            Self::LessThanOrEqual => value <= threshold,
            Self::GreaterThan => value > threshold,
            Self::GreaterThanOrEqual => value >= threshold,
            Self::Equal => value == threshold,
            Self::NotEqual => value != threshold,
        }
    }
}

/// Parameters of `prefix-cache-affinity-filter`: endpoints that hold most of the prompt are kept to, unless their
/// queue makes that slower than starting anew.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PrefixCacheAffinity {
    /// Share of the prompt's blocks from which an endpoint is kept to; 0 or less: never. Default: 0.8.
    pub affinity_threshold: f64,
    /// Share of requests that keep everybody. Default: 0.
    pub exploration_probability: f64,
    /// The time to first token may be this much longer, in ms; 0: any time. Default: 18,000.
    pub max_ttft_penalty_ms: f64,
    /// Where that time comes from. Default: [`TtftSource::PrefillThroughput`].
    pub ttft_source: TtftSource,
    /// Tokens a second that an engine prefills. Default: 15,928.
    pub peak_prefill_throughput: f64,
}

/// How [`PrefixCacheAffinity`] knows the time to first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TtftSource {
    /// Tokens in flight over the peak throughput.
    PrefillThroughput,
    /// A prediction; endlessly long where there is none.
    LatencyPredictor,
}

/// Parameters of `context-length-aware`: endpoints are labelled with the prompt lengths they are for, `min-max`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextLength {
    /// The label. Default: `llm-d.ai/context-length-range`.
    pub label: String,
    /// Endpoints whose range does not hold the prompt are dropped. Default: false.
    pub enable_filtering: bool,
}

pub(super) fn label_selector(p: &Parameters<'_>) -> Result<Filter, PluginError> {
    let expressions = p.objects("matchExpressions", &["key", "operator", "values"])?;
    let match_expressions = expressions
        .iter()
        .map(|e| {
            let operators = [
                ("In", LabelOperator::In),
                ("NotIn", LabelOperator::NotIn),
                ("Exists", LabelOperator::Exists),
                ("DoesNotExist", LabelOperator::DoesNotExist),
            ];
            let operator = e.one_of("operator", None, &operators)?;
            let values = e.texts("values")?;
            let lists = matches!(operator, LabelOperator::In | LabelOperator::NotIn);
            match (lists, values.is_empty()) {
                (true, true) => Err(e.refuse("values", "at least one value for In and NotIn")),
                (false, false) => Err(e.refuse("values", "no values for Exists and DoesNotExist")),
                _ => Ok(LabelExpression { key: e.required("key")?.to_owned(), operator, values }),
            }
        })
        .collect::<Result<_, _>>()?;
    let match_labels = p.text_map("matchLabels")?;
    Ok(Filter::LabelSelector(LabelSelector { match_labels, match_expressions }))
}

pub(super) fn by_label(p: &Parameters<'_>) -> Result<Filter, PluginError> {
    let by_label = ByLabel {
        label: p.required("label")?.to_owned(),
        valid_values: p.texts("validValues")?,
        allows_no_label: p.flag("allowsNoLabel", false)?,
    };
    if by_label.valid_values.is_empty() && !by_label.allows_no_label {
        return Err(p.refuse("validValues", "at least one value, or `allowsNoLabel: true`"));
    }
    Ok(Filter::ByLabel(by_label))
}

pub(super) fn utilization(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<Filter, PluginError> {
    references.add(p, "inFlightLoadProducerName", Kind::InflightLoad)?;
    let metrics = [
        ("active-requests", Metric::ActiveRequests),
        ("running-requests", Metric::RunningRequests),
        ("waiting-queue", Metric::WaitingQueue),
        ("kv-cache-utilization", Metric::KvCacheUtilization),
    ];
    let conditions = p.objects("conditions", &["metric", "maxValue"])?;
    let conditions = conditions
        .iter()
        .map(|c| {
            let metric = c.one_of("metric", None, &metrics)?;
            let (most, what) = match metric {
                Metric::KvCacheUtilization => (1.0, "a share from 0 to 1; it must be given"),
                _ => (f64::MAX, "a number, 0 or more; it must be given"),
            };
            let max_value = c.number_that("maxValue", -1.0, what, |n| (0.0..=most).contains(&n))?;
            Ok(Condition { metric, max_value })
        })
        .collect::<Result<Vec<_>, _>>()?;
    if conditions.is_empty() {
        return Err(p.refuse("conditions", "at least one condition"));
    }
    let fallback_on_empty = p.flag("fallbackOnEmpty", false)?;
    Ok(Filter::Utilization(Utilization { conditions, fallback_on_empty }))
}

pub(super) fn endpoint_attribute(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<Filter, PluginError> {
    references.add(p, "producer", Kind::Extractor)?;
    let algorithm = p.object("algorithm", &["type", "threshold"])?;
    algorithm.one_of("type", None, &[("threshold", ())])?;
    if !algorithm.has("threshold") {
        return Err(algorithm.refuse("threshold", "an object with `operator` and `value`"));
    }
    let threshold = algorithm.object("threshold", &["operator", "value"])?;
    let operators = [
        ("LessThan", Comparison::LessThan),
        ("LessThanOrEqual", Comparison::LessThanOrEqual),
        ("GreaterThan", Comparison::GreaterThan),
        ("GreaterThanOrEqual", Comparison::GreaterThanOrEqual),
        ("Equal", Comparison::Equal),
        ("NotEqual", Comparison::NotEqual),
    ];
    Ok(Filter::EndpointAttribute(AttributeThreshold {
        attribute: p.required("attribute")?.to_owned(),
        keep_missing: p.one_of("onMissing", Some(true), &[("Pass", true), ("Fail", false)])?,
        fallback_on_empty: p.flag("fallbackOnEmpty", false)?,
        operator: threshold.one_of("operator", None, &operators)?,
        value: threshold.number("value")?.unwrap_or(0.0),
    }))
}

pub(super) fn prefix_cache_affinity(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<Filter, PluginError> {
    references.add(p, "prefixMatchInfoProducerName", Kind::PrefixProducer)?;
    references.add(p, "latencyPredictionInfoProducerName", Kind::LatencyPredictor)?;
    references.add(p, "inFlightLoadProducerName", Kind::InflightLoad)?;
    let positive = |n| n >= 0.0;
    let sources = [
        ("prefillThroughput", TtftSource::PrefillThroughput),
        ("latencyPredictor", TtftSource::LatencyPredictor),
    ];
    let affinity = PrefixCacheAffinity {
        affinity_threshold: p.number_that(
            "affinityThreshold",
            0.8,
            "a number, at most 1",
            |n| n <= 1.0,
        )?,
        exploration_probability: p.share("explorationProbability", 0.0)?,
        max_ttft_penalty_ms: p.number_that(
            "maxTTFTPenaltyMs",
            18_000.0,
            "milliseconds, 0 or more",
            positive,
        )?,
        ttft_source: p.one_of("ttftSource", Some(TtftSource::PrefillThroughput), &sources)?,
        peak_prefill_throughput: p.number_that(
            "peakPrefillThroughput",
            15_928.0,
            "tokens a second, 0 or more",
            positive,
        )?,
    };
    if affinity.ttft_source == TtftSource::PrefillThroughput
        && affinity.max_ttft_penalty_ms > 0.0
        && affinity.peak_prefill_throughput <= 0.0
    {
        let what = "tokens a second, above 0 where `ttftSource` is `prefillThroughput`";
        return Err(p.refuse("peakPrefillThroughput", what));
    }
    Ok(Filter::PrefixCacheAffinity(affinity))
}

pub(super) fn context_length(p: &Parameters<'_>) -> Result<ContextLength, PluginError> {
    let label = match p.has("label") {
        true => p.required("label")?.to_owned(),
        false => "llm-d.ai/context-length-range".into(),
    };
    Ok(ContextLength { label, enable_filtering: p.flag("enableFiltering", false)? })
}
