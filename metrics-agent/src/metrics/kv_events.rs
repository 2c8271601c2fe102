//! Metrics of KV events, by endpoint.

use super::llm_d::{KvFault, LlmdMetrics};
use crate::kv_events::tally::{self, Tally};
use crate::kv_index::Index;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    endpoint: String,
}

macro_rules! labels {
    ($($name:ident $label:ident,)*) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name {
            endpoint: String,
            $label: &'static str,
        }
    )*};
}

labels! {
    BatchLabels result,
    EventLabels r#type,
    StreamLabels event,
    VoidLabels cause,
    BlockLabels fate,
}

/// See the module.
#[derive(Default)]
pub struct KvEventMetrics {
    batches: Family<BatchLabels, Counter>,
    events: Family<EventLabels, Counter>,
    stream: Family<StreamLabels, Counter>,
    voids: Family<VoidLabels, Counter>,
    blocks: Family<BlockLabels, Counter>,
    held: Family<EndpointLabels, Gauge>,
    remembered: Family<EndpointLabels, Gauge>,
    precise: Family<EndpointLabels, Gauge>,
    last_batch: Family<EndpointLabels, Gauge<f64, AtomicU64>>,
    llm_d: Arc<LlmdMetrics>,
}

impl KvEventMetrics {
    /// All at zero; what llm-d counts too is counted there.
    pub(super) fn new(llm_d: Arc<LlmdMetrics>) -> Self {
        Self { llm_d, ..Self::default() }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "kv_batches",
            "Batches of KV events by result: read, unreadable, without_model (nothing says which \
             configured model they are of)",
            self.batches.clone(),
        );
        registry.register(
            "kv_events",
            "KV events by type: stored, removed, cleared, undecodable (passed over)",
            self.events.clone(),
        );
        registry.register(
            "kv_stream",
            "What happened to streams of KV events: gap, duplicate, overflow (more waited for a \
             replay than may), malformed (a message that is no batch), replayed, replay_retried, \
             unreachable, foreign_topic (not as topicFilter says), incomplete (so many blocks hang \
             on unknown ones that the endpoint is approximate for now)",
            self.stream.clone(),
        );
        registry.register(
            "kv_voids",
            "Times that all blocks of a publisher were given up, by cause: restarted, gap, \
             reconnected, replay_too_late, replay_hole, replay_failed",
            self.voids.clone(),
        );
        registry.register(
            "kv_blocks",
            "Engine blocks by fate: stored, removed, orphan (unknown parent), revived (not known to \
             be held until others were stored under them), unknown_removal, unknown_copy, \
             other_group (no whole prefixes), malformed, unknown_id (a token without bytes), \
             opaque_key (an image or the like), decoded_same, decoded_differs, over_limit",
            self.blocks.clone(),
        );
        registry.register(
            "kv_blocks_held",
            "Engine blocks that an endpoint is known to hold",
            self.held.clone(),
        );
        registry.register(
            "kv_blocks_remembered",
            "Engine blocks that an endpoint is not known to hold, but whose names are kept, for \
             others hang on them or events were lost",
            self.remembered.clone(),
        );
        registry.register(
            "kv_precise",
            "1 while an endpoint's events come, none is missing, and what they hang on is known",
            self.precise.clone(),
        );
        registry.register(
            "kv_last_batch_timestamp_seconds",
            "When the engine made its last batch of events, in seconds since 1970, by its clock",
            self.last_batch.clone(),
        );
    }

    /// Adds what was counted of an endpoint.
    pub fn add(&self, endpoint: &str, tally: &Tally) {
        for (family, label, count) in tally.counts() {
            match (family, label) {
                (tally::Family::Batches, _) => self.llm_d.kv_messages(endpoint, count),
                (tally::Family::Stream, "unreachable") => {
                    self.llm_d.kv_fault(endpoint, KvFault::Connect, count);
                }
                (tally::Family::Stream, "malformed") => {
                    self.llm_d.kv_fault(endpoint, KvFault::Receive, count);
                }
                _ => {}
            }
            let endpoint = endpoint.to_owned();
            match family {
                tally::Family::Batches => self
                    .batches
                    .get_or_create(&BatchLabels { endpoint, result: label })
                    .inc_by(count),
                tally::Family::Events => self
                    .events
                    .get_or_create(&EventLabels { endpoint, r#type: label })
                    .inc_by(count),
                tally::Family::Stream => self
                    .stream
                    .get_or_create(&StreamLabels { endpoint, event: label })
                    .inc_by(count),
                tally::Family::Voids => {
                    self.voids.get_or_create(&VoidLabels { endpoint, cause: label }).inc_by(count)
                }
                tally::Family::Blocks => {
                    self.blocks.get_or_create(&BlockLabels { endpoint, fate: label }).inc_by(count)
                }
            };
        }
    }

    /// Sets what an endpoint holds now, what else is remembered of it, and whether that is precise.
    pub fn set(&self, endpoint: &str, index: &Index, precise: bool, last_batch: Option<f64>) {
        let labels = EndpointLabels { endpoint: endpoint.to_owned() };
        if self.precise.get(&labels).is_none() {
            self.llm_d.kv_followed();
        }
        for (family, blocks) in
            [(&self.held, index.blocks()), (&self.remembered, index.remembered())]
        {
            family.get_or_create(&labels).set(i64::try_from(blocks).unwrap_or(i64::MAX));
        }
        self.precise.get_or_create(&labels).set(i64::from(precise));
        if let Some(at) = last_batch {
            self.last_batch.get_or_create(&labels).set(at);
        }
    }

    /// Drops the series of an endpoint that is not followed any more.
    pub fn forget(&self, endpoint: &str) {
        for (family, label) in Tally::LABELS {
            let (endpoint, label) = (endpoint.to_owned(), *label);
            match family {
                tally::Family::Batches => {
                    self.batches.remove(&BatchLabels { endpoint, result: label })
                }
                tally::Family::Events => {
                    self.events.remove(&EventLabels { endpoint, r#type: label })
                }
                tally::Family::Stream => {
                    self.stream.remove(&StreamLabels { endpoint, event: label })
                }
                tally::Family::Voids => self.voids.remove(&VoidLabels { endpoint, cause: label }),
                tally::Family::Blocks => self.blocks.remove(&BlockLabels { endpoint, fate: label }),
            };
        }
        let labels = EndpointLabels { endpoint: endpoint.to_owned() };
        self.held.remove(&labels);
        self.remembered.remove(&labels);
        if self.precise.remove(&labels) {
            self.llm_d.kv_forgotten(endpoint);
        }
        self.last_batch.remove(&labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &KvEventMetrics) -> String {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn an_endpoints_series_come_and_go_with_it() {
        let metrics = KvEventMetrics::default();
        let tally = Tally {
            read: 1,
            stored: 2,
            gaps: 3,
            void_gap: 4,
            blocks_orphaned: 5,
            ..Tally::default()
        };
        for endpoint in ["n/a", "n/b"] {
            metrics.add(endpoint, &tally);
            metrics.add(endpoint, &tally);
            metrics.set(endpoint, &Index::default(), true, Some(1.5));
        }
        let seen = text(&metrics);
        for line in [
            "kv_batches_total{endpoint=\"n/a\",result=\"read\"} 2",
            "kv_events_total{endpoint=\"n/a\",type=\"stored\"} 4",
            "kv_stream_total{endpoint=\"n/a\",event=\"gap\"} 6",
            "kv_voids_total{endpoint=\"n/a\",cause=\"gap\"} 8",
            "kv_blocks_total{endpoint=\"n/a\",fate=\"orphan\"} 10",
            "kv_blocks_held{endpoint=\"n/a\"} 0",
            "kv_blocks_remembered{endpoint=\"n/a\"} 0",
            "kv_precise{endpoint=\"n/a\"} 1",
            "kv_last_batch_timestamp_seconds{endpoint=\"n/a\"} 1.5",
        ] {
            assert!(seen.lines().any(|seen| seen == line), "{line}\n{seen}");
        }
        metrics.forget("n/a");
        let seen = text(&metrics);
        assert!(!seen.contains("n/a") && seen.contains("n/b"));
    }
}
