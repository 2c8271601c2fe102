//! The data layer: where endpoints and their metrics come from. All of it is the agent's business.

use super::PluginError;
use super::parameters::Parameters;
use core::time::Duration;

/// A source, extractor or discovery with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum DataLayer {
    /// `metrics-data-source`: each endpoint's metrics page.
    MetricsSource(HttpSource),
    /// `core-metrics-extractor`.
    MetricsExtractor(MetricsExtractor),
    /// `models-data-source`: `/v1/models` of each endpoint.
    ModelsSource(HttpSource),
    /// `models-data-extractor`.
    ModelsExtractor,
    /// `file-discovery`.
    FileDiscovery {
        /// The file.
        path: String,
        /// It is read again when it changes. Default: false.
        watch: bool,
    },
    /// `k8s-notification-source`, `endpoint-notification-source`: the agent is told of changes by itself.
    Notifications,
}

/// How an endpoint is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSource {
    /// `https`; the default is `http`.
    pub https: bool,
    /// Default: `/metrics`, or `/v1/models`.
    pub path: String,
    /// A port of its own; `None`: the endpoint's.
    pub port: Option<u16>,
    /// Any certificate will do. Default: true.
    pub insecure_skip_verify: bool,
    /// How often it is asked; `None`: as often as is cheap.
    pub interval: Option<Duration>,
}

/// Parameters of `core-metrics-extractor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsExtractor {
    /// Label that names an endpoint's engine. Default: `llm-d.ai/engine-type`.
    pub engine_label_key: String,
    /// Engine of an endpoint without it. Default: `vllm`.
    pub default_engine: String,
    /// Engines; one with a known name replaces what is known of it.
    pub engine_configs: Vec<EngineConfig>,
}

/// Where an engine's signals are: `name` or `name{label=value,…}`; `None`: it has no such signal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineConfig {
    /// The engine's name.
    pub name: String,
    /// Waiting requests.
    pub queued_requests: Option<String>,
    /// Running requests.
    pub running_requests: Option<String>,
    /// KV utilization.
    pub kv_usage: Option<String>,
    /// LoRA adapters, in labels.
    pub lora: Option<String>,
    /// Block size and number of blocks, in labels.
    pub cache_info: Option<String>,
    /// Label of the block size. Default: `block_size`.
    pub block_size_label: String,
    /// Label of the number of blocks. Default: `num_gpu_blocks`.
    pub num_blocks_label: String,
    /// Block size as a value.
    pub block_size: Option<String>,
    /// Number of blocks as a value.
    pub num_blocks: Option<String>,
    /// Attributes: key and where it is.
    pub custom_metrics: Vec<(String, String)>,
}

pub(super) const HTTP_SOURCE: [&str; 8] = [
    "scheme",
    "path",
    "port",
    "insecureSkipVerify",
    "caCertPath",
    "clientCertPath",
    "clientKeyPath",
    "interval",
];

pub(super) fn http_source(
    p: &Parameters<'_>,
    default_path: &str,
) -> Result<HttpSource, PluginError> {
    for name in ["caCertPath", "clientCertPath", "clientKeyPath"] {
        p.text(name)?;
    }
    let port = match p.has("port") {
        true => Some(p.port("port")?.ok_or_else(|| p.refuse("port", "a port, 1 to 65535"))?),
        false => None,
    };
    let interval = p.duration("interval")?;
    if interval.is_some_and(|interval| interval.is_zero()) {
        return Err(p.refuse("interval", "a duration above 0, like `200ms`"));
    }
    Ok(HttpSource {
        https: p.one_of("scheme", Some(false), &[("http", false), ("https", true)])?,
        path: p.text_or("path", default_path)?,
        port,
        insecure_skip_verify: p.flag("insecureSkipVerify", true)?,
        interval,
    })
}

const ENGINES: [&str; 5] = ["vllm", "sglang", "trtllm-serve", "triton-tensorrt-llm", "triton"];

const ENGINE_CONFIG: [&str; 11] = [
    "name",
    "queuedRequestsSpec",
    "runningRequestsSpec",
    "kvUsageSpec",
    "loraSpec",
    "cacheInfoSpec",
    "cacheBlockSizeLabelName",
    "cacheNumBlocksLabelName",
    "cacheBlockSizeSpec",
    "cacheNumBlocksSpec",
    "customMetrics",
];

pub(super) fn metrics_extractor(p: &Parameters<'_>) -> Result<MetricsExtractor, PluginError> {
    let configs = p.objects("engineConfigs", &ENGINE_CONFIG)?;
    let mut engine_configs = Vec::new();
    for config in &configs {
        let engine = engine_config(config)?;
        if engine_configs.iter().any(|known: &EngineConfig| known.name == engine.name) {
            return Err(config.refuse("name", "a name that no other engine has"));
        }
        engine_configs.push(engine);
    }
    let default_engine = p.text_or("defaultEngine", "vllm")?;
    let known = engine_configs.iter().map(|engine| engine.name.as_str()).chain(ENGINES);
    if !known.into_iter().any(|name| name == default_engine) {
        let what =
            format!("the name of an engine: {}, or one of engineConfigs", ENGINES.join(", "));
        return Err(p.refuse("defaultEngine", what));
    }
    let engine_label_key = p.text_or("engineLabelKey", "llm-d.ai/engine-type")?;
    Ok(MetricsExtractor { engine_label_key, default_engine, engine_configs })
}

fn engine_config(p: &Parameters<'_>) -> Result<EngineConfig, PluginError> {
    let name = p.required("name")?;
    if name == "default" {
        return Err(p.refuse("name", "another name: `default` is taken"));
    }
    let spec = |object: &Parameters<'_>, name| {
        let Some(spec) = object.text(name)? else { return Ok(None) };
        if is_spec(spec) {
            return Ok(Some(spec.to_owned()));
        }
        Err(object.refuse(name, "a metric like `name` or `name{label=value}`"))
    };
    let custom = p.objects("customMetrics", &["attributeKey", "metricSpec"])?;
    let custom_metrics = custom
        .iter()
        .map(|metric| {
            let spec = spec(metric, "metricSpec")?;
            let spec = spec.ok_or_else(|| metric.refuse("metricSpec", "it must be given"))?;
            Ok((metric.required("attributeKey")?.to_owned(), spec))
        })
        .collect::<Result<_, _>>()?;
    Ok(EngineConfig {
        name: name.to_owned(),
        queued_requests: spec(p, "queuedRequestsSpec")?,
        running_requests: spec(p, "runningRequestsSpec")?,
        kv_usage: spec(p, "kvUsageSpec")?,
        lora: spec(p, "loraSpec")?,
        cache_info: spec(p, "cacheInfoSpec")?,
        block_size_label: p.text_or("cacheBlockSizeLabelName", "block_size")?,
        num_blocks_label: p.text_or("cacheNumBlocksLabelName", "num_gpu_blocks")?,
        block_size: spec(p, "cacheBlockSizeSpec")?,
        num_blocks: spec(p, "cacheNumBlocksSpec")?,
        custom_metrics,
    })
}

/// Whether it is a Prometheus metric name with or without labels in braces.
fn is_spec(spec: &str) -> bool {
    let (name, labels) = match spec.split_once('{') {
        None => (spec, ""),
        Some((name, rest)) => match rest.trim_end().strip_suffix('}') {
            None => return false,
            Some(labels) => (name, labels),
        },
    };
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c))
    };
    is_name(name.trim())
        && (labels.trim().is_empty()
            || labels
                .split(',')
                .all(|label| label.split_once('=').is_some_and(|(key, _)| is_name(key.trim()))))
}

pub(super) fn file_discovery(p: &Parameters<'_>) -> Result<DataLayer, PluginError> {
    let watch = p.flag("watchFile", false)?;
    Ok(DataLayer::FileDiscovery { path: p.required("path")?.to_owned(), watch })
}
