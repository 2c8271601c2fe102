//! Data producers: what the scorers and filters ask of an endpoint or a request, and how it is known.
//!
//! Warmroute knows all of it by itself, one way for everybody; of their parameters it takes the caps and what
//! is counted. Block sizes and hashes are its own.

use super::parameters::Parameters;
use super::session::SessionId;
use super::{Kind, PluginError, References};
use crate::policy::scheduler::InflightLoad;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// A producer with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Producer {
    /// `approx-prefix-cache-producer`.
    ApproxPrefix(ApproxPrefix),
    /// `precise-prefix-cache-producer`.
    PrecisePrefix(PrecisePrefix),
    /// `inflight-load-producer`.
    InflightLoad(InflightLoad),
    /// `token-producer`, and the deprecated `tokenizer`.
    Token(TokenProducer),
    /// `session-id-producer`.
    SessionId(SessionId),
}

/// What a prefix producer caps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixProducer {
    /// Tokens of a prompt that are matched at most; `None`: all.
    #[serde(default)]
    pub max_prefix_tokens: Option<u64>,
    /// Tokens that an endpoint is taken to hold if it does not say how many it has room for; `None`: not said.
    #[serde(default)]
    pub capacity_tokens: Option<u64>,
    /// An endpoint's own word on its room counts before `capacity_tokens`.
    #[serde(default)]
    pub auto_tune: bool,
}

impl Default for PrefixProducer {
    fn default() -> Self {
        ApproxPrefix::default().caps()
    }
}

/// Parameters of `approx-prefix-cache-producer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApproxPrefix {
    /// Engines' own block size and room count before these. Default: true.
    pub auto_tune: bool,
    /// Tokens in a block, of which 64 are the least that counts. Default: 16.
    pub block_size_tokens: u64,
    /// Blocks that are matched at most; 0: any number. Counts only if `max_prefix_tokens` is 0. Default: 2,048.
    pub max_prefix_blocks: u64,
    /// Tokens that are matched at most; 0: see `max_prefix_blocks`. Default: 131,072.
    pub max_prefix_tokens: u64,
    /// Blocks that an endpoint is taken to hold; 0: the default, 31,250.
    pub lru_capacity_per_server: u64,
}

impl Default for ApproxPrefix {
    fn default() -> Self {
        Self {
            auto_tune: true,
            block_size_tokens: 16,
            max_prefix_blocks: 2048,
            max_prefix_tokens: 131_072,
            lru_capacity_per_server: 31_250,
        }
    }
}

/// llm-d's blocks are never smaller.
const LEAST_BLOCK_TOKENS: u64 = 64;

impl ApproxPrefix {
    /// What they cap, in tokens: whole blocks.
    #[must_use]
    pub fn caps(&self) -> PrefixProducer {
        let block = self.block_size_tokens.max(LEAST_BLOCK_TOKENS);
        let blocks = match (self.max_prefix_tokens, self.max_prefix_blocks) {
            (0, 0) => None,
            (0, blocks) => Some(blocks),
            (tokens, _) => tokens.checked_div(block),
        };
        let capacity = match self.lru_capacity_per_server {
            0 => Self::default().lru_capacity_per_server,
            blocks => blocks,
        };
        PrefixProducer {
            max_prefix_tokens: blocks.map(|blocks| blocks.saturating_mul(block)),
            capacity_tokens: Some(capacity.saturating_mul(block)),
            auto_tune: self.auto_tune,
        }
    }
}

/// Parameters of `precise-prefix-cache-producer` and of the deprecated `precise-prefix-cache-scorer`.
#[derive(Debug, Clone, PartialEq)]
pub struct PrecisePrefix {
    /// What a block in each tier is worth. Default: `gpu` 1, `cpu` 0.8.
    pub tiers: Vec<(String, f64)>,
    /// Where KV events come from.
    pub events: KvEvents,
    /// How long a pick counts before events tell of it. Default: 2 s.
    pub speculative_ttl: Duration,
}

/// `kvEventsConfig`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEvents {
    /// One address that all engines publish to; `None`: each endpoint is asked.
    pub zmq_endpoint: Option<String>,
    /// Topics that are read begin so. Default: `kv@`.
    pub topic_filter: String,
    /// Each endpoint is asked. Default: true.
    pub discover_pods: bool,
    /// Port that an endpoint publishes at. Default: 5557.
    pub socket_port: u16,
    /// Port that replays lost events; `None` (the default): there is none.
    pub replay_socket_port: Option<u16>,
}

/// Parameters of `token-producer`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenProducer {
    /// Model whose tokenizer was asked for; `None`: tokens are estimated.
    pub model_name: Option<String>,
}

pub(super) const APPROX: [&str; 6] = [
    "autoTune",
    "blockSizeTokens",
    "blockSize",
    "maxPrefixBlocksToMatch",
    "maxPrefixTokensToMatch",
    "lruCapacityPerServer",
];

pub(super) fn approx_prefix(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<ApproxPrefix, PluginError> {
    let default = ApproxPrefix::default();
    let auto_tune = p.flag("autoTune", default.auto_tune)?;
    let mut block = p.count("blockSizeTokens", default.block_size_tokens, 0)?;
    let old = p.count("blockSize", 0, 0)?;
    if old > 0 {
        references.remark("`blockSize` is deprecated; use `blockSizeTokens`");
        if block == default.block_size_tokens {
            block = old;
        }
    }
    if block == 0 && !auto_tune {
        return Err(p.refuse("blockSizeTokens", "tokens, above 0 without `autoTune`"));
    }
    if p.has("blockSizeTokens") || old > 0 {
        references.remark("blocks are 128 bytes of the prompt; the block size only sets the caps");
    }
    Ok(ApproxPrefix {
        auto_tune,
        block_size_tokens: block,
        max_prefix_blocks: p.count("maxPrefixBlocksToMatch", default.max_prefix_blocks, 0)?,
        max_prefix_tokens: p.count("maxPrefixTokensToMatch", default.max_prefix_tokens, 0)?,
        lru_capacity_per_server: p
            .count_or("lruCapacityPerServer", default.lru_capacity_per_server)?,
    })
}

pub(super) const PRECISE: [&str; 5] = [
    "tokenProcessorConfig",
    "indexerConfig",
    "kvEventsConfig",
    "speculativeIndexing",
    "speculativeTTL",
];

pub(super) fn precise_prefix(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<PrecisePrefix, PluginError> {
    let processor = p.object(
        "tokenProcessorConfig",
        &["blockSizeTokens", "blockSize", "hashSeed", "hashAlgorithm"],
    )?;
    processor.count("blockSizeTokens", 16, 0)?;
    processor.count("blockSize", 0, 0)?;
    processor.text("hashSeed")?;
    processor.one_of("hashAlgorithm", Some(()), &[("cbor-fnv", ()), ("xxh64", ())])?;
    if p.has("tokenProcessorConfig") {
        references.remark("`tokenProcessorConfig` means nothing: prefixes are matched by bytes");
    }
    p.flag("speculativeIndexing", false)?;
    let ttl = p.duration("speculativeTTL")?.filter(|ttl| !ttl.is_zero());
    Ok(PrecisePrefix {
        tiers: tiers(p, references)?,
        events: kv_events(p, references)?,
        speculative_ttl: ttl.unwrap_or(Duration::from_secs(2)),
    })
}

fn tiers(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<Vec<(String, f64)>, PluginError> {
    let indexer = p.object(
        "indexerConfig",
        &["kvBlockIndexConfig", "kvCacheBackendConfigs", "tokenizersPoolConfig"],
    )?;
    if indexer.has("tokenizersPoolConfig") {
        let what = "nothing; give the model's tokenizer to the agent instead";
        return Err(indexer.refuse("tokenizersPoolConfig", what));
    }
    let index = indexer.object(
        "kvBlockIndexConfig",
        &[
            "inMemoryConfig",
            "costAwareMemoryConfig",
            "redisConfig",
            "enableMetrics",
            "metricsLoggingInterval",
        ],
    )?;
    let memory = index.object("inMemoryConfig", &["size", "podCacheSize"])?;
    memory.count("size", 0, 0)?;
    memory.count("podCacheSize", 0, 0)?;
    index.object("costAwareMemoryConfig", &["size"])?.text("size")?;
    if index.has("redisConfig") {
        return Err(index.refuse("redisConfig", "nothing; the index lives in Envoy's memory"));
    }
    index.flag("enableMetrics", false)?;
    if indexer.has("kvBlockIndexConfig") {
        references.remark("`kvBlockIndexConfig` means nothing: the index is sized by the engines");
    }
    let backends = indexer.objects("kvCacheBackendConfigs", &["name", "weight"])?;
    if backends.is_empty() {
        return Ok(vec![("gpu".into(), 1.0), ("cpu".into(), 0.8)]);
    }
    backends.iter().map(|b| Ok((b.required("name")?.to_owned(), b.share("weight", 0.0)?))).collect()
}

fn kv_events(p: &Parameters<'_>, references: &mut References) -> Result<KvEvents, PluginError> {
    let events = p.object(
        "kvEventsConfig",
        &[
            "zmqEndpoint",
            "topicFilter",
            "concurrency",
            "engineType",
            "discoverPods",
            "podDiscoveryConfig",
        ],
    )?;
    events.count("concurrency", 4, 0)?;
    events.one_of("engineType", Some(()), &[("vllm", ()), ("sglang", ())])?;
    let pods = events.object(
        "podDiscoveryConfig",
        &["podLabelSelector", "podNamespace", "socketPort", "replaySocketPort"],
    )?;
    for name in ["podLabelSelector", "podNamespace"] {
        if pods.text(name)?.is_some() {
            references.remark(format!("`{name}` means nothing: the pool says which endpoints"));
        }
    }
    Ok(KvEvents {
        zmq_endpoint: events.text("zmqEndpoint")?.map(str::to_owned),
        topic_filter: events.text_or("topicFilter", "kv@")?,
        discover_pods: events.flag("discoverPods", true)?,
        socket_port: pods.port("socketPort")?.unwrap_or(5557),
        replay_socket_port: pods.port("replaySocketPort")?,
    })
}

pub(super) fn inflight_load(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<InflightLoad, PluginError> {
    references.add(p, "prefixMatchInfoProducerName", Kind::PrefixProducer)?;
    if p.has("syncCrossReplicaState") {
        p.flag("syncCrossReplicaState", true)?;
        references.remark(
            "`syncCrossReplicaState` means nothing: all workers of an Envoy count together",
        );
    }
    let default = InflightLoad::default();
    let cap = p.integer("maxEstimatedOutputTokens")?;
    let cap = cap.map(|cap| u64::try_from(cap).ok().ok_or(cap)).transpose();
    Ok(InflightLoad {
        add_estimated_output_tokens: p.flag("addEstimatedOutputTokens", false)?,
        output_ratio: p.number_that(
            "outputRatio",
            default.output_ratio,
            "a number, 0 or more",
            |n| n >= 0.0,
        )?,
        max_estimated_output_tokens: cap
            .map_err(|_| p.refuse("maxEstimatedOutputTokens", "tokens, 0 or more"))?,
    })
}

pub(super) const TOKEN: [&str; 4] = ["udsTokenizerConfig", "vllm", "estimate", "modelName"];

pub(super) fn token(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<TokenProducer, PluginError> {
    let vllm = p.object("vllm", &["url", "timeout", "mmTimeout"])?;
    vllm.text("url")?;
    vllm.duration("timeout")?;
    vllm.duration("mmTimeout")?;
    let backends = ["udsTokenizerConfig", "vllm", "estimate"].map(|name| p.has(name));
    if backends.iter().filter(|given| **given).count() > 1 {
        return Err(p.refuse("estimate", "one of `estimate`, `vllm` and `udsTokenizerConfig`"));
    }
    check_estimate(p)?;
    let model_name = p.text("modelName")?.map(str::to_owned);
    let [uds, vllm, _] = backends;
    if uds || vllm {
        if model_name.is_none() {
            return Err(p.refuse("modelName", "the model's name; it must be given"));
        }
        references.remark("no tokenizer is asked: the agent tells what each engine holds in bytes");
    }
    Ok(TokenProducer { model_name })
}

/// What images and videos count is accepted; here a prompt with them is matched up to the first one.
fn check_estimate(p: &Parameters<'_>) -> Result<(), PluginError> {
    let estimate = p.object("estimate", &["image", "video"])?;
    let resolution = |object: &Parameters<'_>| {
        let size = object.object("defaultResolution", &["width", "height"])?;
        size.count("width", 0, 0)?;
        size.count("height", 0, 0)
    };
    let image = estimate.object("image", &["mode", "defaultResolution", "static", "dynamic"])?;
    image.one_of("mode", Some(()), &[("dynamic", ()), ("static", ())])?;
    resolution(&image)?;
    image.object("static", &["staticToken"])?.count("staticToken", 0, 0)?;
    image.object("dynamic", &["factor"])?.count("factor", 0, 0)?;
    let video = estimate.object(
        "video",
        &["defaultResolution", "defaultDuration", "tokensPerFrame", "frames", "maxVideoTokens"],
    )?;
    resolution(&video)?;
    video.number("defaultDuration")?;
    video.count("maxVideoTokens", 0, 0)?;
    let tokens = video.object("tokensPerFrame", &["mode", "static", "dynamic"])?;
    tokens.one_of("mode", Some(()), &[("dynamic", ()), ("static", ())])?;
    tokens.object("static", &["numTokensPerFrame"])?.count("numTokensPerFrame", 0, 0)?;
    tokens.object("dynamic", &["factor"])?.count("factor", 0, 0)?;
    let frames =
        video.object("frames", &["mode", "minFrames", "maxFrames", "sampled", "strided"])?;
    frames.one_of("mode", Some(()), &[("sampled", ()), ("strided", ())])?;
    frames.count("minFrames", 0, 0)?;
    frames.count("maxFrames", 0, 0)?;
    let sampled = frames.object("sampled", &["sampleFPS", "temporalPatchSize"])?;
    sampled.number("sampleFPS")?;
    sampled.count("temporalPatchSize", 0, 0)?;
    let strided = frames.object("strided", &["defaultSourceFPS", "frameStride"])?;
    strided.number("defaultSourceFPS")?;
    strided.count("frameStride", 0, 0)?;
    Ok(())
}
