//! Which model a stream of events belongs to.

use crate::config::model::MAX_NAME_BYTES;
use crate::kv_index::{Encode, ModelContext};
use crate::tokenizer::bytes::TokenBytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use warmroute_shared_state::model::{MAX_NAMES, ModelRecord};

/// A model whose token ids can be turned into bytes.
pub struct EventModel {
    /// As the stream tells it, with the adapters that are configured.
    pub record: ModelRecord,
    /// Bytes of each token id.
    pub tokens: TokenBytes,
    /// Its tokenizer.
    pub encoder: Box<dyn Encode + Send + Sync>,
}

impl std::fmt::Debug for EventModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventModel").field("name", &self.record.name).finish_non_exhaustive()
    }
}

impl EventModel {
    /// What the index needs of it.
    #[must_use]
    pub fn context(&self) -> ModelContext<'_> {
        ModelContext {
            model: &self.record.name,
            stream: self.record.stream,
            tokens: &self.tokens,
            encoder: self.encoder.as_ref(),
        }
    }

    fn answers_to(&self, name: &str) -> bool {
        self.record.chain_name(name).is_some()
    }
}

/// All models, and adapters that events told of.
#[derive(Debug, Default)]
pub struct Models {
    models: Vec<Arc<EventModel>>,
    /// By model, adapters that are not configured.
    learned: BTreeMap<String, BTreeSet<String>>,
}

impl Models {
    /// These and no others. What was learned of those that stay is kept.
    pub fn set(&mut self, models: Vec<Arc<EventModel>>) {
        self.learned.retain(|name, _| models.iter().any(|model| model.record.name == *name));
        self.models = models;
    }

    /// The model of a stream: the one that its topic names if it is known, else the one that the
    /// configuration names, else, for a topic that names none, the only one. A name that is not
    /// known is another model's, whose ids would be read with the wrong tokenizer.
    #[must_use]
    pub fn find(&self, topic: Option<&str>, configured: Option<&str>) -> Option<Arc<EventModel>> {
        let named = |name: Option<&str>| {
            let name = name?;
            self.models.iter().find(|model| model.answers_to(name))
        };
        let only = || match self.models.as_slice() {
            [only] if topic.is_none() => Some(only),
            _ => None,
        };
        named(topic).or_else(|| named(configured)).or_else(only).cloned()
    }

    /// Notes an adapter of which events told. Returns whether it was new.
    pub fn learn(&mut self, model: &EventModel, adapter: &str) -> bool {
        let record = &model.record;
        if adapter.len() > MAX_NAME_BYTES || record.chain_name(adapter).is_some() {
            return false;
        }
        let known = self.learned.get(&record.name);
        let count = known.map_or(0, BTreeSet::len).saturating_add(record.adapters.len());
        if known.is_some_and(|known| known.contains(adapter)) || count >= MAX_NAMES {
            return false;
        }
        self.learned.entry(record.name.clone()).or_default().insert(adapter.to_owned())
    }

    /// As the stream tells them, learned adapters included.
    #[must_use]
    pub fn records(&self) -> Vec<ModelRecord> {
        let record = |model: &Arc<EventModel>| {
            let mut record = model.record.clone();
            let learned = self.learned.get(&record.name).into_iter().flatten();
            record.adapters.extend(learned.cloned());
            record
        };
        self.models.iter().map(record).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) struct NoEncoder;

    impl Encode for NoEncoder {
        fn encode(&self, _: &str, _: &mut Vec<u32>) -> bool {
            false
        }
    }

    /// A model whose ids below 256 are bytes.
    pub(crate) fn model(name: &str, adapters: &[&str]) -> Arc<EventModel> {
        let bytes: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let record = ModelRecord {
            name: name.into(),
            aliases: vec![format!("{name}-alias")],
            adapters: adapters.iter().map(|adapter| (*adapter).into()).collect(),
            stream: 7,
            ..ModelRecord::default()
        };
        let (tokens, encoder) = (TokenBytes::new(&bytes), Box::new(NoEncoder));
        Arc::new(EventModel { record, tokens, encoder })
    }

    #[test]
    fn a_stream_belongs_to_the_model_that_topic_configuration_or_nothing_else_names() {
        let mut models = Models::default();
        assert!(models.find(Some("a"), None).is_none());
        let found = |models: &Models, topic, configured| {
            models.find(topic, configured).map(|model| model.record.name.clone())
        };
        models.set(vec![model("a", &[])]);
        for (topic, configured, expected) in [
            (None, None, Some("a")),
            (None, Some("y"), Some("a")),
            (Some("a-alias"), None, Some("a")),
            (Some("x"), Some("a"), Some("a")),
            (Some("x"), None, None),
            (Some("x"), Some("y"), None),
        ] {
            assert_eq!(found(&models, topic, configured).as_deref(), expected, "{topic:?}");
        }
        models.set(vec![model("a", &[]), model("b", &["b-lora"])]);
        for (topic, configured, expected) in [
            (Some("b"), None, Some("b")),
            (Some("b-alias"), Some("a"), Some("b")),
            (Some("b-lora"), Some("a"), Some("b")),
            (Some("x"), Some("a"), Some("a")),
            (None, Some("b"), Some("b")),
            (Some("x"), Some("y"), None),
            (None, None, None),
        ] {
            assert_eq!(found(&models, topic, configured).as_deref(), expected, "{topic:?}");
        }
    }

    #[test]
    fn adapters_are_learned_once_and_not_without_end() {
        let mut models = Models::default();
        let a = model("a", &["known"]);
        models.set(vec![Arc::clone(&a)]);
        assert!(
            !models.learn(&a, "known") && !models.learn(&a, "a") && !models.learn(&a, "a-alias")
        );
        assert!(models.learn(&a, "new") && !models.learn(&a, "new"));
        assert_eq!(models.records()[0].adapters, ["known", "new"]);
        for n in 0..2 * MAX_NAMES {
            models.learn(&a, &format!("l{n}"));
        }
        assert_eq!(models.records()[0].adapters.len(), MAX_NAMES);
        models.set(vec![a]);
        assert_eq!(models.records()[0].adapters.len(), MAX_NAMES, "kept");
        models.set(vec![model("b", &[])]);
        assert_eq!(models.records()[0].adapters.len(), 0);
    }
}
