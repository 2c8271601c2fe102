//! `dataLayer`: what is read of endpoints, and where. The agent does it; of llm-d's plugins it takes what they say of
//! the metrics' place and names, and of KV events.

use super::Notes;
use super::document::RawDataLayer;
use super::instances::{Configured, Instances};
use crate::config::error::Problem;
use crate::config::kv_events::{KvEventsSpec, Ports};
use crate::config::object::Fault;
use crate::scrape::plan::{EngineSpec, ExtractorSpec, PlanError, ScrapePlans, SourceSpec};
use warmroute_shared_state::policy::plugin::{
    DataLayer, EngineConfig, HttpSource, Kind, MetricsExtractor, Plugin, Producer,
};

const DEFAULT_SOURCE: &str = "metrics-data-source";
const DEFAULT_EXTRACTOR: &str = "core-metrics-extractor";

/// How endpoints are scraped.
///
/// # Errors
/// The first fault.
pub(super) fn compile(
    raw: Option<RawDataLayer>,
    instances: &Instances,
    notes: &mut Notes<'_>,
) -> Result<ScrapePlans, Fault> {
    let mut source = instances.named(DEFAULT_SOURCE, Kind::DataSource, 1).ok();
    let mut extractor = instances.named(DEFAULT_EXTRACTOR, Kind::Extractor, 1).ok();
    if let Some(raw) = raw {
        for named in raw.sources.unwrap_or_default() {
            let found = instances.find(&named.plugin_ref, Kind::DataSource)?;
            if http_source(found).is_some() {
                source = Some(found);
            }
            for reference in named.extractors.unwrap_or_default() {
                let found = instances.find(&reference.plugin_ref, Kind::Extractor)?;
                if metrics_extractor(found).is_some() {
                    extractor = Some(found);
                }
            }
        }
        if let Some(discovery) = raw.discovery {
            let found = instances.find(&discovery.plugin_ref, Kind::Discovery)?;
            if let Plugin::DataLayer(DataLayer::FileDiscovery { path, .. }) = found.plugin() {
                let text = format!(
                    "the agent does not open `{path}`; put that file into its configuration folder"
                );
                notes.warn(found.line_of("path"), text);
            }
        }
        if let Some(inject) = raw.inject_defaults.filter(|inject| !inject.value) {
            let text =
                "the agent scrapes all endpoints anyway: that is how it knows that they live";
            notes.warn(inject.referenced.line(), text);
        }
        let replicas = [
            raw.peer_discovery,
            raw.cross_replica_syncer_plugin_ref,
            raw.cross_replica_sync_interval,
        ];
        for line in replicas.iter().flatten().map(|field| field.referenced.line()) {
            notes.warn(line, "means nothing: every Envoy picks by itself, from the same stream");
        }
    }
    let source_spec = source.and_then(|found| Some((found, http_source(found)?)));
    let source_spec =
        source_spec.map(|(found, source)| spec_of_source(found, source)).transpose()?;
    let extractor_spec = extractor.and_then(metrics_extractor).map(spec_of_extractor);
    ScrapePlans::new(&source_spec.unwrap_or_default(), &extractor_spec.unwrap_or_default()).map_err(
        |errors| {
            let Some(error) = errors.first() else {
                return (1, Problem::Conflict("the extractor cannot be used".into()));
            };
            let line = extractor.map_or(1, |found| found.line_of(path_of(error)));
            (line, Problem::Conflict(error.to_string()))
        },
    )
}

fn path_of(error: &PlanError) -> &str {
    match error {
        PlanError::EngineName { at, .. }
        | PlanError::UnknownEngine { at, .. }
        | PlanError::Selector { at, .. }
        | PlanError::AttributeKey { at, .. } => at,
    }
}

fn http_source(found: &Configured) -> Option<&HttpSource> {
    match found.plugin() {
        Plugin::DataLayer(DataLayer::MetricsSource(source)) => Some(source),
        _ => None,
    }
}

fn metrics_extractor(found: &Configured) -> Option<&MetricsExtractor> {
    match found.plugin() {
        Plugin::DataLayer(DataLayer::MetricsExtractor(extractor)) => Some(extractor),
        _ => None,
    }
}

fn spec_of_source(found: &Configured, source: &HttpSource) -> Result<SourceSpec, Fault> {
    if source.https {
        let what = "scraping over TLS".to_owned();
        let instead = "give `scheme: http`, with the agent in the engines' own network";
        return Err((found.line_of("scheme"), Problem::Unsupported { what, instead }));
    }
    if !source.path.starts_with('/') || source.path.chars().any(|c| c.is_control() || c == ' ') {
        let expected = "a path that begins with `/`";
        return Err((found.line_of("path"), Problem::bad("path", &source.path, expected)));
    }
    Ok(SourceSpec { path: source.path.clone(), port: source.port, interval: source.interval })
}

fn spec_of_extractor(extractor: &MetricsExtractor) -> ExtractorSpec {
    ExtractorSpec {
        engine_label: extractor.engine_label_key.clone(),
        default_engine: extractor.default_engine.clone(),
        engines: extractor.engine_configs.iter().map(spec_of_engine).collect(),
    }
}

fn spec_of_engine(engine: &EngineConfig) -> EngineSpec {
    let text = |selector: &Option<String>| selector.clone().unwrap_or_default();
    EngineSpec {
        name: engine.name.clone(),
        waiting: text(&engine.queued_requests),
        running: text(&engine.running_requests),
        kv_usage: text(&engine.kv_usage),
        adapters: text(&engine.lora),
        cache_info: text(&engine.cache_info),
        block_tokens_label: engine.block_size_label.clone(),
        kv_blocks_label: engine.num_blocks_label.clone(),
        block_tokens: text(&engine.block_size),
        kv_blocks: text(&engine.num_blocks),
        attributes: engine.custom_metrics.clone(),
    }
}

/// What a precise producer says of KV events, as a `KVEvents` document would.
pub(super) fn kv_events(instances: &Instances, notes: &mut Notes<'_>) -> Option<KvEventsSpec> {
    let precise = instances.written().find_map(|found| match found.plugin() {
        Plugin::Producer(Producer::PrecisePrefix(precise)) | Plugin::PreciseScorer(precise, _) => {
            Some((found, precise))
        }
        _ => None,
    });
    let (found, precise) = precise?;
    let events = &precise.events;
    if let Some(address) = &events.zmq_endpoint {
        let text = format!(
            "engines that publish to `{address}` are not heard: the agent connects to each engine, port {}",
            events.socket_port
        );
        notes.warn(found.line_of("kvEventsConfig.zmqEndpoint"), text);
    }
    let lower =
        precise.tiers.iter().find(|(tier, _)| tier == "cpu").map(|(_, worth)| worth * 100.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let percent = lower.map(|percent| percent.clamp(0.0, 100.0).round() as u8);
    let ports = Ports { live: events.socket_port, replay: events.replay_socket_port, ranks: 1 };
    let default = KvEventsSpec::default();
    Some(KvEventsSpec {
        discover: events.discover_pods,
        ports: Some(ports),
        topic_filter: events.topic_filter.clone(),
        lower_tier_percent: percent.unwrap_or(default.lower_tier_percent),
        ..default
    })
}
