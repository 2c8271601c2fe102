//! The models whose prompts this VM can tell byte for byte, as the agent describes them.

use super::parts::Parts;
use core::fmt;
use std::rc::Rc;
use std::sync::Arc;
use warmroute_chat_template::{Template, TemplateError, TemplateSource};
use warmroute_shared_state::model::ModelRecord;
use warmroute_shared_state::table_op::{MODEL_PART_BYTES, TableOp};
use warmroute_shared_state::wire::{Reader, Writer};

/// Models kept: one more is ignored, and its requests are routed approximately.
const MAX_MODELS: usize = 256;

/// A model's template, compiled.
#[derive(Clone)]
pub enum Rendering {
    /// The model has no template: it serves no chats.
    None,
    /// It works.
    Template(Rc<Template>),
    /// It cannot be used: chats of this model are routed approximately.
    Unusable(TemplateError),
}

impl Rendering {
    fn compile(text: &str, special_tokens: &[(String, String)]) -> Self {
        if text.is_empty() {
            return Self::None;
        }
        let source = TemplateSource { text: text.into(), special_tokens: special_tokens.to_vec() };
        match Template::compile(&source) {
            Ok(template) => Self::Template(Rc::new(template)),
            Err(error) => Self::Unusable(error),
        }
    }
}

/// One model.
#[derive(Clone)]
pub struct Model {
    /// What the agent says.
    pub record: Arc<ModelRecord>,
    /// Number of the record, by its bytes.
    pub revision: u64,
    /// What was expected of its prompts seldom came true: its requests are routed approximately.
    pub distrusted: bool,
    rendering: Rendering,
    rendering_tools: Option<Rendering>,
}

impl Model {
    fn new(revision: u64, record: ModelRecord) -> Self {
        let compile = |text: &str| Rendering::compile(text, &record.special_tokens);
        let rendering = compile(&record.template);
        let rendering_tools = record.tool_template.as_deref().map(compile);
        Self { revision, distrusted: false, rendering, rendering_tools, record: Arc::new(record) }
    }

    /// The template for a chat, with tools or without.
    #[must_use]
    pub fn rendering(&self, with_tools: bool) -> &Rendering {
        match &self.rendering_tools {
            Some(rendering) if with_tools => rendering,
            _ => &self.rendering,
        }
    }

    /// Why chats of this model are routed approximately, if they are. No text of a request is in it.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        if self.distrusted {
            return Some("engines seldom hold what its template says they should".into());
        }
        let error = |rendering: &Rendering| match rendering {
            Rendering::Unusable(error) => Some(error.to_string()),
            Rendering::None | Rendering::Template(_) => None,
        };
        error(&self.rendering)
            .or_else(|| Some(format!("with tools: {}", error(self.rendering_tools.as_ref()?)?)))
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.record.name)
            .field("revision", &self.revision)
            .field("problem", &self.problem())
            .finish_non_exhaustive()
    }
}

/// All models.
#[derive(Debug, Default)]
pub struct Models {
    models: Vec<Model>,
    parts: Parts,
}

impl Models {
    /// The model that a client means by `name`, and what that name is in the prefix chain.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(&Model, &str)> {
        self.models.iter().find_map(|model| Some((model, model.record.chain_name(name)?)))
    }

    /// Every model.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Model> {
        self.models.iter()
    }

    /// The model of this rendered stream.
    #[must_use]
    pub fn by_stream(&self, stream: u64) -> Option<&Model> {
        self.models.iter().find(|model| model.record.stream == stream)
    }

    /// A part of a record came.
    pub(super) fn part(&mut self, revision: u64, part: u16, parts: u16, bytes: &[u8]) {
        if let Some(whole) = self.parts.add(revision, part, parts, bytes)
            && let Ok(record) = ModelRecord::read(&mut Reader::new(&whole))
        {
            self.put(revision, record);
        }
    }

    fn put(&mut self, revision: u64, record: ModelRecord) {
        let room = self.models.len() < MAX_MODELS;
        let known = self.models.iter_mut().find(|model| model.record.name == record.name);
        match known {
            Some(model) if model.record.stream == record.stream => {
                // Other names, say, change nothing about the bytes.
                model.revision = revision;
                model.record = Arc::new(record);
            }
            Some(model) => *model = Model::new(revision, record),
            None if room => self.models.push(Model::new(revision, record)),
            None => {}
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.models.retain(|model| model.record.name != name);
    }

    pub(super) fn distrust(&mut self, stream: u64) {
        for model in self.models.iter_mut().filter(|model| model.record.stream == stream) {
            model.distrusted = true;
        }
    }

    /// Calls `each` with the operations that rebuild all this.
    pub fn for_each_op(&self, mut each: impl FnMut(&TableOp<'_>)) {
        for model in &self.models {
            record_ops(&model.record, &mut each);
            if model.distrusted {
                each(&TableOp::Distrust { stream: model.record.stream });
            }
        }
    }
}

/// Number of a record: XXH3 of its bytes.
#[must_use]
pub fn revision(record: &ModelRecord) -> u64 {
    let mut w = Writer::new();
    record.write(&mut w);
    xxhash_rust::xxh3::xxh3_64(w.as_bytes())
}

/// Calls `each` with the operations that tell a record.
pub fn record_ops(record: &ModelRecord, mut each: impl FnMut(&TableOp<'_>)) {
    let mut w = Writer::new();
    record.write(&mut w);
    let bytes = w.as_bytes();
    let revision = xxhash_rust::xxh3::xxh3_64(bytes);
    let parts = u16::try_from(bytes.chunks(MODEL_PART_BYTES).len()).unwrap_or(u16::MAX);
    for (part, bytes) in (0u16..).zip(bytes.chunks(MODEL_PART_BYTES)) {
        each(&TableOp::ModelPart { revision, part, parts, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::super::Replica;
    use super::*;

    fn model(name: &str, template: &str) -> ModelRecord {
        ModelRecord {
            name: name.into(),
            aliases: vec![format!("{name}-alias")],
            adapters: vec![format!("{name}-lora")],
            stream: 5,
            template: template.into(),
            ..ModelRecord::default()
        }
    }

    fn tell(replica: &mut Replica, record: &ModelRecord) {
        record_ops(record, |op| replica.apply(1, op));
    }

    crate::tests! {
        fn a_long_record_comes_in_parts_and_is_found_by_each_name() {
            let mut replica = Replica::default();
            let record = model("m", &"x".repeat(40_000));
            tell(&mut replica, &record);
            for (name, chain) in [("m", "m"), ("m-alias", "m"), ("m-lora", "m-lora")] {
                let (found, chain_name) = replica.models.find(name).unwrap();
                assert_eq!((&*found.record, chain_name), (&record, chain));
            }
            assert!(replica.models.find("other").is_none());
            replica.apply(1, &TableOp::RemoveModel("m"));
            assert!(replica.models.find("m").is_none());
        }

        fn parts_of_two_records_do_not_mix() {
            let mut replica = Replica::default();
            let records = [model("a", &"x".repeat(20_000)), model("b", &"y".repeat(20_000))];
            let mut ops = Vec::new();
            for record in &records {
                record_ops(record, |op| if let TableOp::ModelPart { revision, part, parts, bytes } = op {
                    ops.push((*revision, *part, *parts, bytes.to_vec()));
                });
            }
            // The first of a, all of b, the rest of a.
            for i in [0, 2, 3, 1] {
                let (revision, part, parts, bytes) = &ops[i];
                let op = TableOp::ModelPart { revision: *revision, part: *part, parts: *parts, bytes };
                replica.apply(1, &op);
            }
            let names: Vec<_> = replica.models.iter().map(|m| m.record.name.clone()).collect();
            assert_eq!(names, ["b"]);
        }

        fn its_operations_rebuild_it_and_distrust_ends_with_the_stream() {
            let mut replica = Replica::default();
            tell(&mut replica, &model("m", "x"));
            replica.apply(1, &TableOp::Distrust { stream: 5 });
            let mut copy = Replica::default();
            replica.models.for_each_op(|op| copy.apply(1, op));
            assert!(copy.models.find("m").unwrap().0.distrusted);
            tell(&mut copy, &ModelRecord { aliases: vec![], ..model("m", "x") });
            assert!(copy.models.find("m").unwrap().0.distrusted);
            tell(&mut copy, &ModelRecord { stream: 6, ..model("m", "y") });
            assert!(!copy.models.find("m").unwrap().0.distrusted);
        }
    }
}
