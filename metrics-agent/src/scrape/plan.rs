//! How each endpoint is scraped: where its page is and what is read of it.
//!
//! llm-d's `metrics-data-source` and `core-metrics-extractor`. An endpoint's label says which engine it is; without
//! one, or with a name that nobody knows, it is the default engine.

use super::mapping::{BUILT_IN, CacheInfo, Mapping};
use super::selector::{Selector, SelectorError};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use warmroute_shared_state::signals::{MAX_NAME_BYTES, MAX_SIGNALS};

/// Label that names an endpoint's engine.
pub const ENGINE_LABEL: &str = "llm-d.ai/engine-type";
/// The label's former name, looked at if the other is missing or empty.
pub const FORMER_ENGINE_LABEL: &str = "inference.networking.k8s.io/engine-type";
/// Path of the page.
pub const METRICS_PATH: &str = "/metrics";
/// Name that no configuration of an engine can have: it stands for `defaultEngine`.
const RESERVED: &str = "default";

/// How one endpoint is scraped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrapePlan {
    /// What is read.
    pub mapping: Arc<Mapping>,
    /// Path and query of the page.
    pub path: Arc<str>,
    /// Port of the page, if it is not the endpoint's.
    pub port: Option<u16>,
    /// Shortest interval, if it is not the one of all endpoints.
    pub interval: Option<Duration>,
}

impl ScrapePlan {
    /// Where the page of the endpoint at `address` is.
    #[must_use]
    pub fn target(&self, address: SocketAddr) -> SocketAddr {
        SocketAddr::new(address.ip(), self.port.unwrap_or(address.port()))
    }
}

/// `metrics-data-source`: where pages are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSpec {
    /// Path, with its query if it has one.
    pub path: String,
    /// Port, if it is not the endpoint's.
    pub port: Option<u16>,
    /// Shortest interval between scrapes.
    pub interval: Option<Duration>,
}

impl Default for SourceSpec {
    fn default() -> Self {
        Self { path: METRICS_PATH.to_owned(), port: None, interval: None }
    }
}

/// `core-metrics-extractor`: what is read of them. Selectors are texts as written; an empty one is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractorSpec {
    /// `engineLabelKey`.
    pub engine_label: String,
    /// `defaultEngine`.
    pub default_engine: String,
    /// `engineConfigs`.
    pub engines: Vec<EngineSpec>,
}

impl Default for ExtractorSpec {
    fn default() -> Self {
        Self {
            engine_label: ENGINE_LABEL.to_owned(),
            default_engine: "vllm".to_owned(),
            engines: Vec::new(),
        }
    }
}

/// One entry of `engineConfigs`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineSpec {
    /// `name`. That of a built-in engine replaces it as a whole.
    pub name: String,
    /// `queuedRequestsSpec`.
    pub waiting: String,
    /// `runningRequestsSpec`.
    pub running: String,
    /// `kvUsageSpec`.
    pub kv_usage: String,
    /// `loraSpec`.
    pub adapters: String,
    /// `cacheInfoSpec`.
    pub cache_info: String,
    /// `cacheBlockSizeLabelName`; empty: `block_size`.
    pub block_tokens_label: String,
    /// `cacheNumBlocksLabelName`; empty: `num_gpu_blocks`.
    pub kv_blocks_label: String,
    /// `cacheBlockSizeSpec`.
    pub block_tokens: String,
    /// `cacheNumBlocksSpec`.
    pub kv_blocks: String,
    /// `customMetrics`: `attributeKey` and `metricSpec`.
    pub attributes: Vec<(String, String)>,
}

/// Why an extractor's parameters are refused. `at` is the parameter's path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// An engine without a name, with the reserved one, or with one that is given twice.
    #[error("{at}: {name:?} cannot be an engine's name: it is empty, reserved or given twice")]
    EngineName {
        /// Where.
        at: String,
        /// The name.
        name: String,
    },
    /// `defaultEngine` names no engine.
    #[error("{at}: there is no engine {name:?}; known are {known}")]
    UnknownEngine {
        /// Where.
        at: String,
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A text that is no selector.
    #[error("{at}: {text:?} selects no metric: {error}")]
    Selector {
        /// Where.
        at: String,
        /// As written.
        text: String,
        /// Why.
        error: SelectorError,
    },
    /// An attribute without a key, with one that is too long or given twice, or one too many.
    #[error(
        "{at}: {key:?} cannot be an attribute's key: it is empty, longer than {MAX_NAME_BYTES} bytes, given twice, \
         or the {MAX_SIGNALS} that an engine may have are there already"
    )]
    AttributeKey {
        /// Where.
        at: String,
        /// The key.
        key: String,
    },
}

/// The plans of all endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrapePlans {
    engine_label: String,
    engines: BTreeMap<String, Arc<Mapping>>,
    default: Arc<Mapping>,
    path: Arc<str>,
    port: Option<u16>,
    interval: Option<Duration>,
}

impl Default for ScrapePlans {
    /// As llm-d without configuration: vLLM on `/metrics`, unless a label says otherwise.
    fn default() -> Self {
        let engines = built_in();
        let default = engines.get("vllm").map(Arc::clone).unwrap_or_default();
        Self {
            engine_label: ENGINE_LABEL.to_owned(),
            engines,
            default,
            path: METRICS_PATH.into(),
            port: None,
            interval: None,
        }
    }
}

impl ScrapePlans {
    /// The plans that these parameters make.
    ///
    /// # Errors
    /// All faults of the extractor's parameters.
    pub fn new(source: &SourceSpec, extractor: &ExtractorSpec) -> Result<Self, Vec<PlanError>> {
        let mut engines = built_in();
        let mut errors = Vec::new();
        for (n, spec) in extractor.engines.iter().enumerate() {
            let at = format!("engineConfigs[{n}]");
            let twice = extractor.engines.iter().take(n).any(|earlier| earlier.name == spec.name);
            if spec.name.is_empty() || spec.name == RESERVED || twice {
                let (at, name) = (format!("{at}.name"), spec.name.clone());
                errors.push(PlanError::EngineName { at, name });
            }
            let mapping = mapping(spec, &at, &mut errors);
            engines.insert(spec.name.clone(), Arc::new(mapping));
        }
        let default = engines.get(&extractor.default_engine).map(Arc::clone);
        if default.is_none() {
            errors.push(PlanError::UnknownEngine {
                at: "defaultEngine".to_owned(),
                name: extractor.default_engine.clone(),
                known: engines.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
            });
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self {
            engine_label: extractor.engine_label.clone(),
            engines,
            default: default.unwrap_or_default(),
            path: source.path.as_str().into(),
            port: source.port,
            interval: source.interval,
        })
    }

    /// How an endpoint with these labels is scraped.
    #[must_use]
    pub fn of(&self, labels: &BTreeMap<String, String>) -> ScrapePlan {
        let labelled = [self.engine_label.as_str(), FORMER_ENGINE_LABEL]
            .iter()
            .find_map(|key| labels.get(*key).filter(|engine| !engine.is_empty()));
        let mapping = labelled.and_then(|engine| self.engines.get(engine)).unwrap_or(&self.default);
        ScrapePlan {
            mapping: Arc::clone(mapping),
            path: Arc::clone(&self.path),
            port: self.port,
            interval: self.interval,
        }
    }
}

fn built_in() -> BTreeMap<String, Arc<Mapping>> {
    let known = BUILT_IN.iter().filter_map(|engine| Some((*engine, Mapping::built_in(engine)?)));
    known.map(|(engine, mapping)| (engine.to_owned(), Arc::new(mapping))).collect()
}

fn mapping(spec: &EngineSpec, at: &str, errors: &mut Vec<PlanError>) -> Mapping {
    let mut selector = |field: &str, text: &str| {
        if text.trim().is_empty() {
            return None;
        }
        let parsed = Selector::parse(text).map_err(|error| {
            let (at, text) = (format!("{at}.{field}"), text.to_owned());
            errors.push(PlanError::Selector { at, text, error });
        });
        parsed.ok()
    };
    let label = |given: &str, default: &str| {
        if given.is_empty() { default.to_owned() } else { given.to_owned() }
    };
    let cache_info = selector("cacheInfoSpec", &spec.cache_info).map(|family| CacheInfo {
        family,
        block_tokens_label: label(&spec.block_tokens_label, "block_size"),
        kv_blocks_label: label(&spec.kv_blocks_label, "num_gpu_blocks"),
    });
    let mut mapping = Mapping {
        waiting: selector("queuedRequestsSpec", &spec.waiting),
        running: selector("runningRequestsSpec", &spec.running),
        kv_usage: selector("kvUsageSpec", &spec.kv_usage).into_iter().collect(),
        adapters: selector("loraSpec", &spec.adapters),
        cache_info,
        block_tokens: selector("cacheBlockSizeSpec", &spec.block_tokens),
        kv_blocks: selector("cacheNumBlocksSpec", &spec.kv_blocks),
        ..Mapping::default()
    };
    for (n, (key, text)) in spec.attributes.iter().enumerate() {
        let at = format!("{at}.customMetrics[{n}]");
        let twice = mapping.attributes.iter().any(|(known, _)| known == key);
        if key.is_empty() || key.len() > MAX_NAME_BYTES || twice || n >= MAX_SIGNALS {
            let (at, key) = (format!("{at}.attributeKey"), key.clone());
            errors.push(PlanError::AttributeKey { at, key });
            continue;
        }
        match Selector::parse(text) {
            Ok(selector) => mapping.attributes.push((key.clone(), selector)),
            Err(error) => {
                let (at, text) = (format!("{at}.metricSpec"), text.clone());
                errors.push(PlanError::Selector { at, text, error });
            }
        }
    }
    mapping
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn engine(name: &str, waiting: &str) -> EngineSpec {
        EngineSpec { name: name.into(), waiting: waiting.into(), ..EngineSpec::default() }
    }

    fn plans(engines: Vec<EngineSpec>, default: &str) -> Result<ScrapePlans, Vec<PlanError>> {
        let extractor =
            ExtractorSpec { engines, default_engine: default.into(), ..ExtractorSpec::default() };
        ScrapePlans::new(&SourceSpec::default(), &extractor)
    }

    #[test]
    fn without_parameters_they_are_the_default() {
        let plans = ScrapePlans::new(&SourceSpec::default(), &ExtractorSpec::default());
        assert_eq!(plans, Ok(ScrapePlans::default()));
    }

    #[test]
    fn a_label_names_the_engine() {
        let plans = plans(vec![engine("mine", "my_queue")], "sglang").unwrap();
        let cases: [(&[(&str, &str)], &str); 7] = [
            (&[], "sglang:num_queue_reqs"),
            (&[(ENGINE_LABEL, "vllm")], "vllm:num_requests_waiting"),
            (&[(FORMER_ENGINE_LABEL, "vllm")], "vllm:num_requests_waiting"),
            (&[(ENGINE_LABEL, ""), (FORMER_ENGINE_LABEL, "mine")], "my_queue"),
            (&[(ENGINE_LABEL, "mine"), (FORMER_ENGINE_LABEL, "vllm")], "my_queue"),
            (&[(ENGINE_LABEL, "unheard-of")], "sglang:num_queue_reqs"),
            (&[(ENGINE_LABEL, "default")], "sglang:num_queue_reqs"),
        ];
        for (pairs, waiting) in cases {
            let plan = plans.of(&labels(pairs));
            assert_eq!(plan.mapping.waiting, Some(Selector::family(waiting)), "{pairs:?}");
        }
    }

    #[test]
    fn an_engine_of_a_built_in_name_replaces_it_whole() {
        let plan = plans(vec![engine("vllm", "my_queue")], "vllm").unwrap().of(&labels(&[]));
        assert_eq!(plan.mapping.waiting, Some(Selector::family("my_queue")));
        assert_eq!((&plan.mapping.running, plan.mapping.kv_usage.len()), (&None, 0));
    }

    #[test]
    fn a_source_moves_the_page() {
        let source = SourceSpec {
            path: "/m?x=1".into(),
            port: Some(9),
            interval: Some(Duration::from_secs(1)),
        };
        let plans = ScrapePlans::new(&source, &ExtractorSpec::default()).unwrap();
        let plan = plans.of(&labels(&[]));
        let target = plan.target("127.0.0.1:8000".parse().unwrap());
        assert_eq!(target, "127.0.0.1:9".parse().unwrap());
        assert_eq!((&*plan.path, plan.interval), ("/m?x=1", source.interval));
        let plan = ScrapePlans::default().of(&labels(&[]));
        assert_eq!(plan.target("[::1]:8000".parse().unwrap()), "[::1]:8000".parse().unwrap());
    }

    #[test]
    fn every_fault_is_told_with_its_place() {
        let mut bad = engine("default", "m{a}");
        bad.cache_info = "1x".into();
        bad.attributes = vec![
            ("k".into(), "m".into()),
            ("k".into(), "m".into()),
            (String::new(), "m".into()),
            ("l".into(), String::new()),
        ];
        let faults = plans(vec![engine("mine", ""), engine("mine", ""), bad], "other").unwrap_err();
        let places: Vec<_> = faults
            .iter()
            .map(|fault| match fault {
                PlanError::EngineName { at, .. }
                | PlanError::UnknownEngine { at, .. }
                | PlanError::Selector { at, .. }
                | PlanError::AttributeKey { at, .. } => at.as_str(),
            })
            .collect();
        assert_eq!(
            places,
            [
                "engineConfigs[1].name",
                "engineConfigs[2].name",
                "engineConfigs[2].cacheInfoSpec",
                "engineConfigs[2].queuedRequestsSpec",
                "engineConfigs[2].customMetrics[1].attributeKey",
                "engineConfigs[2].customMetrics[2].attributeKey",
                "engineConfigs[2].customMetrics[3].metricSpec",
                "defaultEngine",
            ]
        );
    }
}
