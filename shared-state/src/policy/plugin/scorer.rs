//! Scorers and pickers: each scorer gives each candidate 0 to 1, the picker takes the best sum.

use super::parameters::Parameters;
use super::session::SessionAffinity;
use super::{ContextLength, Kind, PluginError, References};
use serde::{Deserialize, Serialize};

/// A scorer with its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Scorer {
    /// `prefix-cache-scorer`.
    PrefixCache(PrefixCache),
    /// `queue-scorer`: the fewest waiting requests, min-max.
    Queue,
    /// `running-requests-size-scorer`: the fewest running requests, min-max.
    RunningRequests,
    /// `kv-cache-utilization-scorer`: what is free of the KV cache.
    KvCacheUtilization,
    /// `load-aware-scorer`.
    LoadAware {
        /// Waiting requests from which the score is 0. Default: 128.
        threshold: u64,
    },
    /// `lora-affinity-scorer`: loaded 1, room 0.8, waiting 0.6, else 0.
    LoraAffinity,
    /// `token-load-scorer`.
    TokenLoad {
        /// Tokens in flight from which the score is 0. Default: 4,194,304.
        threshold_tokens: u64,
    },
    /// `active-request-scorer`.
    ActiveRequest(ActiveRequest),
    /// `no-hit-lru-scorer`: cold prompts go where the last cold prompt is longest ago.
    NoHitLru {
        /// Endpoints that are remembered. Default: 1,024.
        size: u32,
    },
    /// `session-affinity-scorer`.
    SessionAffinity(SessionAffinity),
    /// `context-length-aware`.
    ContextLength(ContextLength),
    /// `endpoint-attribute-scorer`.
    EndpointAttribute(AttributeScore),
    /// `header-label-affinity-scorer`: 1 where the label has the header's value.
    HeaderLabelAffinity {
        /// In lower case.
        header: String,
        /// The label.
        label: String,
    },
}

/// Parameters of `prefix-cache-scorer`: `weight × min(1, matched tokens / scale)² + (1 - weight) × share`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PrefixCache {
    /// What the matched length counts against the matched share. Default: 0.
    pub match_length_weight: f64,
    /// Tokens of a match that is as good as any. Default: 8,192.
    pub match_length_scale_tokens: u64,
}

/// Parameters of `active-request-scorer`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ActiveRequest {
    /// Requests that count as idle: 1. Default: 0.
    pub idle_threshold: u64,
    /// What the least busy one gets at most. Default: 1.
    pub max_busy_score: f64,
}

/// Parameters of `endpoint-attribute-scorer`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttributeScore {
    /// Key of the attribute.
    pub attribute: String,
    /// `linear_lower_is_better`; else higher is.
    pub lower_is_better: bool,
    /// Least and greatest value; `None` (the default): those of the candidates.
    pub fixed_range: Option<(f64, f64)>,
}

/// A picker with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picker {
    /// How it picks.
    pub kind: PickerKind,
    /// `maxNumOfEndpoints`: how many are named at most. Default: 1.
    pub max_endpoints: u32,
}

/// How a picker picks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PickerKind {
    /// `max-score-picker`: the best scores.
    MaxScore,
    /// `random-picker`: any.
    Random,
    /// `weighted-random-picker`: by chance, in proportion to the scores.
    WeightedRandom,
}

impl Default for Picker {
    fn default() -> Self {
        Self { kind: PickerKind::MaxScore, max_endpoints: 1 }
    }
}

pub(super) fn prefix_cache(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<Scorer, PluginError> {
    references.add(p, "prefixMatchInfoProducerName", Kind::PrefixProducer)?;
    let match_length_weight = p.share("matchLengthWeight", 0.0)?;
    let scale = p.integer("matchLengthScaleTokens")?.unwrap_or(8192);
    let scale = u64::try_from(scale).ok().filter(|n| *n > 0 || match_length_weight == 0.0);
    let what = "tokens, above 0 where `matchLengthWeight` is";
    let match_length_scale_tokens =
        scale.ok_or_else(|| p.refuse("matchLengthScaleTokens", what))?;
    Ok(Scorer::PrefixCache(PrefixCache { match_length_weight, match_length_scale_tokens }))
}

pub(super) fn load_aware(p: &Parameters<'_>) -> Result<Scorer, PluginError> {
    Ok(Scorer::LoadAware { threshold: p.count_or("threshold", 128)? })
}

pub(super) fn token_load(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<Scorer, PluginError> {
    references.add(p, "inFlightLoadProducerName", Kind::InflightLoad)?;
    let threshold_tokens = p.count_or("queueThresholdTokens", 4_194_304)?;
    Ok(Scorer::TokenLoad { threshold_tokens })
}

pub(super) fn active_request(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<Scorer, PluginError> {
    references.add(p, "inFlightLoadProducerName", Kind::InflightLoad)?;
    if p.text("requestTimeout")?.is_some() {
        references.remark("`requestTimeout` means nothing: requests are followed to their end");
    }
    // Values out of range are passed over, as in llm-d.
    let idle = p.integer("idleThreshold")?.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let max = p.number("maxBusyScore")?.filter(|n| (0.0..=1.0).contains(n)).unwrap_or(1.0);
    Ok(Scorer::ActiveRequest(ActiveRequest { idle_threshold: idle, max_busy_score: max }))
}

pub(super) fn no_hit_lru(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<Scorer, PluginError> {
    references.add(p, "prefixMatchInfoProducerName", Kind::PrefixProducer)?;
    for name in ["prefixPluginType", "prefixPluginName"] {
        if p.text(name)?.is_some() {
            references.remark(format!("`{name}` means nothing; leave it out"));
        }
    }
    // More endpoints than one Envoy could have.
    const MOST: u64 = 65_536;
    let size = p.count_or("lruSize", 1024)?.min(MOST);
    Ok(Scorer::NoHitLru { size: u32::try_from(size).unwrap_or(u32::MAX) })
}

pub(super) fn endpoint_attribute(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<Scorer, PluginError> {
    references.add(p, "producer", Kind::Extractor)?;
    let algorithm = p.object("algorithm", &["type", "normalization"])?;
    let types = [("linear_lower_is_better", true), ("linear_higher_is_better", false)];
    let lower_is_better = algorithm.one_of("type", None, &types)?;
    let ranges = algorithm.object("normalization", &["fixedRange", "adaptiveRange"])?;
    ranges.object("adaptiveRange", &[])?;
    let fixed = ranges.object("fixedRange", &["min", "max"])?;
    let fixed_range = match (ranges.has("fixedRange"), ranges.has("adaptiveRange")) {
        (true, true) => {
            return Err(ranges.refuse("adaptiveRange", "one of fixedRange and adaptiveRange"));
        }
        (true, false) => {
            let min = fixed.number("min")?.unwrap_or(0.0);
            let what = "a number above `min`";
            Some((min, fixed.number_that("max", 0.0, what, |max| max > min)?))
        }
        (false, _) => None,
    };
    let attribute = p.required("attributeKey")?.to_owned();
    Ok(Scorer::EndpointAttribute(AttributeScore { attribute, lower_is_better, fixed_range }))
}

pub(super) fn header_label_affinity(p: &Parameters<'_>) -> Result<Scorer, PluginError> {
    let header = p.required("headerName")?.to_lowercase();
    Ok(Scorer::HeaderLabelAffinity { header, label: p.required("labelKey")?.to_owned() })
}

pub(super) fn picker(p: &Parameters<'_>, kind: PickerKind) -> Result<Picker, PluginError> {
    let most = p.count_or("maxNumOfEndpoints", 1)?;
    Ok(Picker { kind, max_endpoints: u32::try_from(most).unwrap_or(u32::MAX) })
}
