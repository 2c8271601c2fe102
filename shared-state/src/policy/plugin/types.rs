//! Every plugin type that llm-d registers, and what Warmroute does about it.

use super::parameters::Parameters;
use super::{
    DataLayer, Decider, Eviction, Fairness, Filter, Instance, Ordering, Parser, PickerKind, Plugin,
    PluginError, Producer, ProfileHandler, References, Role, Scorer, UsageLimit, data_layer,
    filter, flow_control, handler, nearest, producer, scorer, session,
};
use serde_json::Value;

/// A plugin type.
#[derive(Debug, Clone, Copy)]
pub struct PluginType {
    /// Its name.
    pub name: &'static str,
    /// What Warmroute does about it.
    pub standing: Standing,
    parameters: &'static [&'static str],
    read: Read,
}

/// What Warmroute does about a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is there.
    Known,
    /// It is there under a name that llm-d gives up; what to use instead.
    Deprecated(&'static str),
    /// It is not there; what to use instead.
    Unsupported(&'static str),
}

impl PluginType {
    /// Names of its outermost parameters.
    #[must_use]
    pub fn parameters(&self) -> &'static [&'static str] {
        self.parameters
    }
}

type Read = fn(&Parameters<'_>, &mut References) -> Result<Plugin, PluginError>;

const fn known(name: &'static str, parameters: &'static [&'static str], read: Read) -> PluginType {
    PluginType { name, standing: Standing::Known, parameters, read }
}

const fn old(
    name: &'static str,
    instead: &'static str,
    parameters: &'static [&'static str],
    read: Read,
) -> PluginType {
    PluginType { name, standing: Standing::Deprecated(instead), parameters, read }
}

const fn none(name: &'static str, instead: &'static str) -> PluginType {
    let read: Read = |_, _| Ok(Plugin::HeaderWriter);
    PluginType { name, standing: Standing::Unsupported(instead), parameters: &[], read }
}

const SESSION: &[&str] =
    &["strategy", "encodedEndpointHeaderConfig", "sessionIdConfig", "profileName"];
const SELECTOR: &[&str] = &["matchLabels", "matchExpressions"];
const PICKER: &[&str] = &["maxNumOfEndpoints"];
const HEADERS_HANDLER: &[&str] = &["prefillProfile", "encodeProfile"];
const NO_PREDICTOR: &str = "Warmroute predicts no latencies: use prefix-cache-affinity-filter with \
                            ttftSource prefillThroughput, and token-load-scorer";
const NO_TOPOLOGY: &str = "label the endpoints and use label-selector-filter or \
                           header-label-affinity-scorer";
const NO_CLUSTERS: &str = "an endpoint is an engine here: use the type without `multicluster-`";
const NO_GRPC: &str = "bodies are read as HTTP JSON only: use openai-parser or vllmhttp-parser";

static TYPES: &[PluginType] = &[
    // Filters.
    known("decode-filter", &[], |_, _| Ok(Plugin::Filter(Filter::Role(Role::Decode)))),
    known("prefill-filter", &[], |_, _| Ok(Plugin::Filter(Filter::Role(Role::Prefill)))),
    known("encode-filter", &[], |_, _| Ok(Plugin::Filter(Filter::Role(Role::Encode)))),
    known("label-selector-filter", SELECTOR, |p, _| filter::label_selector(p).map(Plugin::Filter)),
    old("by-label-selector", "label-selector-filter", SELECTOR, |p, _| {
        filter::label_selector(p).map(Plugin::Filter)
    }),
    old(
        "by-label",
        "label-selector-filter, decode-filter, prefill-filter or encode-filter",
        &["label", "validValues", "allowsNoLabel"],
        |p, _| filter::by_label(p).map(Plugin::Filter),
    ),
    known(
        "utilization-filter",
        &["conditions", "fallbackOnEmpty", "inFlightLoadProducerName"],
        |p, r| filter::utilization(p, r).map(Plugin::Filter),
    ),
    known(
        "endpoint-attribute-filter",
        &["attribute", "producer", "onMissing", "fallbackOnEmpty", "algorithm"],
        |p, r| filter::endpoint_attribute(p, r).map(Plugin::Filter),
    ),
    known(
        "prefix-cache-affinity-filter",
        &[
            "affinityThreshold",
            "explorationProbability",
            "maxTTFTPenaltyMs",
            "ttftSource",
            "peakPrefillThroughput",
            "prefixMatchInfoProducerName",
            "latencyPredictionInfoProducerName",
            "inFlightLoadProducerName",
        ],
        |p, r| filter::prefix_cache_affinity(p, r).map(Plugin::Filter),
    ),
    known("session-affinity-filter", SESSION, |p, r| {
        Ok(Plugin::Filter(Filter::SessionAffinity(session::session_affinity(p, r)?)))
    }),
    known("header-based-testing-filter", &[], |_, _| {
        Ok(Plugin::Filter(Filter::HeaderBasedTesting))
    }),
    none("slo-headroom-tier-filter", NO_PREDICTOR),
    none("topology-affinity-filter", NO_TOPOLOGY),
    none("multicluster-session-affinity-filter", NO_CLUSTERS),
    // Filter and scorer in one.
    known("context-length-aware", &["label", "enableFiltering"], |p, _| {
        filter::context_length(p).map(Plugin::ContextLength)
    }),
    // Scorers.
    known(
        "prefix-cache-scorer",
        &["prefixMatchInfoProducerName", "matchLengthWeight", "matchLengthScaleTokens"],
        |p, r| scorer::prefix_cache(p, r).map(Plugin::Scorer),
    ),
    old(
        "precise-prefix-cache-scorer",
        "precise-prefix-cache-producer with prefix-cache-scorer",
        &producer::PRECISE,
        |p, r| {
            let scorer = scorer::prefix_cache(&Parameters::new(&Value::Null, &[])?, r)?;
            Ok(Plugin::PreciseScorer(producer::precise_prefix(p, r)?, scorer))
        },
    ),
    known("queue-scorer", &[], |_, _| Ok(Plugin::Scorer(Scorer::Queue))),
    known("running-requests-size-scorer", &[], |_, _| Ok(Plugin::Scorer(Scorer::RunningRequests))),
    known("kv-cache-utilization-scorer", &[], |_, _| {
        Ok(Plugin::Scorer(Scorer::KvCacheUtilization))
    }),
    known("load-aware-scorer", &["threshold"], |p, _| scorer::load_aware(p).map(Plugin::Scorer)),
    known("lora-affinity-scorer", &[], |_, _| Ok(Plugin::Scorer(Scorer::LoraAffinity))),
    known("token-load-scorer", &["queueThresholdTokens", "inFlightLoadProducerName"], |p, r| {
        scorer::token_load(p, r).map(Plugin::Scorer)
    }),
    known(
        "active-request-scorer",
        &["requestTimeout", "idleThreshold", "maxBusyScore", "inFlightLoadProducerName"],
        |p, r| scorer::active_request(p, r).map(Plugin::Scorer),
    ),
    known(
        "no-hit-lru-scorer",
        &["prefixPluginType", "prefixPluginName", "lruSize", "prefixMatchInfoProducerName"],
        |p, r| scorer::no_hit_lru(p, r).map(Plugin::Scorer),
    ),
    known("session-affinity-scorer", SESSION, |p, r| {
        Ok(Plugin::Scorer(Scorer::SessionAffinity(session::session_affinity(p, r)?)))
    }),
    known("endpoint-attribute-scorer", &["attributeKey", "producer", "algorithm"], |p, r| {
        scorer::endpoint_attribute(p, r).map(Plugin::Scorer)
    }),
    known("header-label-affinity-scorer", &["headerName", "labelKey"], |p, _| {
        scorer::header_label_affinity(p).map(Plugin::Scorer)
    }),
    none("latency-scorer", NO_PREDICTOR),
    none(
        "mm-embeddings-cache-scorer",
        "what encoders have cached is not followed: use always-disagg-multimodal-decider",
    ),
    none("topology-affinity-scorer", NO_TOPOLOGY),
    none("multicluster-queue-scorer", NO_CLUSTERS),
    none("multicluster-kv-cache-utilization-scorer", NO_CLUSTERS),
    none("multicluster-prefix-cache-scorer", NO_CLUSTERS),
    // Pickers.
    known("max-score-picker", PICKER, |p, _| {
        scorer::picker(p, PickerKind::MaxScore).map(Plugin::Picker)
    }),
    known("random-picker", PICKER, |p, _| {
        scorer::picker(p, PickerKind::Random).map(Plugin::Picker)
    }),
    known("weighted-random-picker", PICKER, |p, _| {
        scorer::picker(p, PickerKind::WeightedRandom).map(Plugin::Picker)
    }),
    // Profile handlers and deciders.
    known("single-profile-handler", &[], |_, _| Ok(Plugin::Handler(ProfileHandler::Single))),
    known("header-profile-handler", &["headerName", "defaultProfile"], |p, _| {
        handler::header(p).map(Plugin::Handler)
    }),
    known("disagg-profile-handler", &handler::DISAGG, |p, r| {
        handler::disagg(p, r).map(Plugin::Handler)
    }),
    old(
        "pd-profile-handler",
        "disagg-profile-handler",
        &[
            "decodeProfile",
            "prefillProfile",
            "prefixPluginType",
            "prefixPluginName",
            "primaryPort",
            "deciderPluginName",
            "prefixMatchInfoProducerName",
        ],
        |p, r| handler::pd(p, r).map(Plugin::Handler),
    ),
    old(
        "data-parallel-profile-handler",
        "single-profile-handler: each rank is an endpoint of its own",
        &["primaryPort"],
        |p, _| handler::data_parallel(p).map(Plugin::Handler),
    ),
    old("disagg-headers-handler", "disagg-profile-handler", HEADERS_HANDLER, |p, _| {
        handler::headers(p)
    }),
    old("prefill-header-handler", "disagg-profile-handler", HEADERS_HANDLER, |p, _| {
        handler::headers(p)
    }),
    known("always-disagg-pd-decider", &[], |_, _| Ok(Plugin::Decider(Decider::Always))),
    known("prefix-based-pd-decider", &["nonCachedTokens", "promptTokens"], |p, _| {
        handler::prefix_based_decider(p).map(Plugin::Decider)
    }),
    known("always-disagg-multimodal-decider", &[], |_, _| Ok(Plugin::Decider(Decider::Multimodal))),
    // Data producers.
    known("approx-prefix-cache-producer", &producer::APPROX, |p, r| {
        Ok(Plugin::Producer(Producer::ApproxPrefix(producer::approx_prefix(p, r)?)))
    }),
    known("precise-prefix-cache-producer", &producer::PRECISE, |p, r| {
        Ok(Plugin::Producer(Producer::PrecisePrefix(producer::precise_prefix(p, r)?)))
    }),
    known(
        "inflight-load-producer",
        &[
            "addEstimatedOutputTokens",
            "outputRatio",
            "maxEstimatedOutputTokens",
            "prefixMatchInfoProducerName",
            "syncCrossReplicaState",
        ],
        |p, r| Ok(Plugin::Producer(Producer::InflightLoad(producer::inflight_load(p, r)?))),
    ),
    known("token-producer", &producer::TOKEN, |p, r| {
        Ok(Plugin::Producer(Producer::Token(producer::token(p, r)?)))
    }),
    old("tokenizer", "token-producer", &producer::TOKEN, |p, r| {
        Ok(Plugin::Producer(Producer::Token(producer::token(p, r)?)))
    }),
    known("session-id-producer", &["headerName", "cookieName"], |p, _| {
        Ok(Plugin::Producer(Producer::SessionId(session::session_id(p)?)))
    }),
    none("predicted-latency-producer", NO_PREDICTOR),
    none(
        "mm-embeddings-cache-producer",
        "what encoders have cached is not followed: use always-disagg-multimodal-decider",
    ),
    none(
        "burst-prefix-cache-producer",
        "a burst is kept together without a wait: leave it out, a pick counts at once",
    ),
    none("p2p-source-producer", "leave it out: KV blocks are not fetched from a peer"),
    none("multicluster-approx-prefix-cache-producer", NO_CLUSTERS),
    // Request control.
    known("agent-identity", &["additionalSessionHeaders"], |p, _| {
        session::agent_identity(p).map(Plugin::AgentIdentity)
    }),
    known(
        "probabilistic-admitter",
        &["queueDepthThreshold", "kvCacheUtilThreshold", "power", "k"],
        |p, _| flow_control::probabilistic_admitter(p).map(Plugin::Admitter),
    ),
    none(
        "latency-slo-admitter",
        "Warmroute predicts no latencies: use probabilistic-admitter or flow control",
    ),
    none(
        "disaggregatedset-rollout-screener",
        "give each revision a pool of its own and weigh them in an HTTPRoute",
    ),
    none(
        "request-attribute-reporter",
        "leave it out: usage is in Envoy's statistics and the filter's records",
    ),
    none(
        "destination-endpoint-served-verifier",
        "leave it out: the endpoint that served is in the filter's records",
    ),
    // Flow control.
    known(
        "utilization-detector",
        &["queueDepthThreshold", "kvCacheUtilThreshold", "metricsStalenessThreshold", "headroom"],
        |p, _| flow_control::utilization_detector(p).map(Plugin::Detector),
    ),
    known(
        "concurrency-detector",
        &[
            "maxConcurrency",
            "headroom",
            "concurrencyMode",
            "maxTokenConcurrency",
            "inFlightLoadProducerName",
        ],
        |p, r| flow_control::concurrency_detector(p, r).map(Plugin::Detector),
    ),
    known("global-strict-fairness-policy", &[], |_, _| {
        Ok(Plugin::Fairness(Fairness::GlobalStrict))
    }),
    known("round-robin-fairness-policy", &[], |_, _| Ok(Plugin::Fairness(Fairness::RoundRobin))),
    known(
        "program-aware-fairness",
        &[
            "strategy",
            "evictionTtlSeconds",
            "evictionSweepSeconds",
            "lasWeightService",
            "lasWeightHeadWait",
            "lasHalfLifeSeconds",
        ],
        |p, _| flow_control::program_aware(p).map(Plugin::Fairness),
    ),
    known("weighted-token-fairness-policy", &["weights", "defaultWeight"], |p, _| {
        flow_control::weighted_token(p).map(Plugin::Fairness)
    }),
    known("fcfs-ordering-policy", &[], |_, _| Ok(Plugin::Ordering(Ordering::FirstCome))),
    known("edf-ordering-policy", &[], |_, _| Ok(Plugin::Ordering(Ordering::EarliestDeadline))),
    known("slo-deadline-ordering-policy", &[], |_, _| Ok(Plugin::Ordering(Ordering::SloDeadline))),
    known("static-usage-limit-policy", &["threshold"], |p, _| {
        flow_control::static_limit(p).map(Plugin::UsageLimit)
    }),
    known("priority-holdback-policy", &["shape", "domain", "minCeiling", "maxCeiling"], |p, _| {
        flow_control::priority_holdback(p).map(Plugin::UsageLimit)
    }),
    known("soft-reflective-ceiling-policy", &[], |_, _| {
        Ok(Plugin::UsageLimit(UsageLimit::SoftReflective))
    }),
    known("sheddable-eviction-filter", &[], |_, _| Ok(Plugin::Eviction(Eviction::Sheddable))),
    known("priority-then-time-eviction-order-policy", &[], |_, _| {
        Ok(Plugin::Eviction(Eviction::PriorityThenTime))
    }),
    none("eviction-sheddable-filter", "it is called sheddable-eviction-filter now"),
    none(
        "eviction-priority-then-time-ordering",
        "it is called priority-then-time-eviction-order-policy now",
    ),
    // Parsers.
    known("openai-parser", &[], |_, _| Ok(Plugin::Parser(Parser::OpenAi))),
    known("anthropic-parser", &[], |_, _| Ok(Plugin::Parser(Parser::Anthropic))),
    known("vllmhttp-parser", &[], |_, _| Ok(Plugin::Parser(Parser::VllmHttp))),
    known("sglanghttp-parser", &[], |_, _| Ok(Plugin::Parser(Parser::SglangHttp))),
    known("passthrough-parser", &[], |_, _| Ok(Plugin::Parser(Parser::Passthrough))),
    none("vllmgrpc-parser", NO_GRPC),
    none("vertexai-parser", NO_GRPC),
    // Data layer.
    known("metrics-data-source", &data_layer::HTTP_SOURCE, |p, _| {
        Ok(Plugin::DataLayer(DataLayer::MetricsSource(data_layer::http_source(p, "/metrics")?)))
    }),
    known(
        "core-metrics-extractor",
        &["engineLabelKey", "defaultEngine", "engineConfigs"],
        |p, _| {
            Ok(Plugin::DataLayer(DataLayer::MetricsExtractor(data_layer::metrics_extractor(p)?)))
        },
    ),
    known("models-data-source", &data_layer::HTTP_SOURCE, |p, _| {
        Ok(Plugin::DataLayer(DataLayer::ModelsSource(data_layer::http_source(p, "/v1/models")?)))
    }),
    known("models-data-extractor", &[], |_, _| Ok(Plugin::DataLayer(DataLayer::ModelsExtractor))),
    known("file-discovery", &["path", "watchFile"], |p, _| {
        data_layer::file_discovery(p).map(Plugin::DataLayer)
    }),
    known("k8s-notification-source", &["group", "version", "kind"], |_, r| {
        r.remark("means nothing: the agent watches Kubernetes by itself");
        Ok(Plugin::DataLayer(DataLayer::Notifications))
    }),
    known("endpoint-notification-source", &[], |_, r| {
        r.remark("means nothing: the agent follows its endpoints by itself");
        Ok(Plugin::DataLayer(DataLayer::Notifications))
    }),
    none("topology-extractor", NO_TOPOLOGY),
    none("dcgm-data-source", "use customMetrics of core-metrics-extractor"),
    none("dcgm-extractor", "use customMetrics of core-metrics-extractor"),
    none("multicluster-metrics-data-source", NO_CLUSTERS),
    none("multicluster-metrics-extractor", NO_CLUSTERS),
    none("multicluster-file-discovery", NO_CLUSTERS),
];

/// Every type that is known by name, those that Warmroute refuses included.
#[must_use]
pub fn types() -> &'static [PluginType] {
    TYPES
}

/// Reads an instance of `plugin_type` with its `parameters` (`Null` if there are none).
///
/// # Errors
/// If the type or a parameter is unknown, or a value cannot be.
pub fn read(plugin_type: &str, parameters: &Value) -> Result<Instance, PluginError> {
    let Some(known) = TYPES.iter().find(|known| known.name == plugin_type) else {
        let usable = TYPES.iter().filter(|t| !matches!(t.standing, Standing::Unsupported(_)));
        let nearest = nearest(plugin_type, usable.map(|known| known.name));
        return Err(PluginError::UnknownType { given: plugin_type.to_owned(), nearest });
    };
    let mut references = References::default();
    match known.standing {
        Standing::Unsupported(instead) => {
            return Err(PluginError::Unsupported { given: plugin_type.to_owned(), instead });
        }
        Standing::Deprecated(instead) => {
            references.remark(format!("`{plugin_type}` is deprecated; use {instead}"));
        }
        Standing::Known => {}
    }
    let parameters = Parameters::new(parameters, known.parameters)?;
    let plugin = (known.read)(&parameters, &mut references)?;
    Ok(Instance {
        type_name: known.name,
        plugin,
        references: references.names,
        remarks: references.remarks,
    })
}
