//! `EndpointPickerConfig`: how endpoints are picked, by llm-d's plugins.
//!
//! - [`document`]: the document as written;
//! - [`instances`]: its plugins, read by their types;
//! - [`profiles`]: scheduling profiles and who runs them, with llm-d's defaults;
//! - [`flow_control`]: what waits where when it is full;
//! - [`sources`]: what is read of endpoints.

pub mod document;
pub mod flow_control;
pub mod instances;
pub mod profiles;
pub mod quantity;
pub mod sources;

use super::document::Document;
use super::error::{Issue, Problem, did_you_mean};
use super::kv_events::KvEventsSpec;
use super::object::{Fault, Head};
use crate::scrape::plan::ScrapePlans;
use document::Raw;
use flow_control::FlowControlSpec;
use instances::Instances;
use serde_saphyr::Spanned;
use warmroute_shared_state::policy::plugin::{Kind, Parser, Plugin, PrefixProducer, Producer};
use warmroute_shared_state::policy::scheduler::{InflightLoad, Named, Scheduler};

/// Feature gates that there are; the first turns flow control on, the other means nothing here.
const GATES: &[&str] = &["flowControl", "haPopulateNonLeaderDatastore"];

/// One configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct PickerSpec {
    /// Name of its object or file.
    pub head: Head,
    /// It stands alone in a file and belongs to no namespace.
    pub of_any_namespace: bool,
    /// How endpoints are picked.
    pub scheduler: Scheduler,
    /// What waits where; without the gate only the detector counts.
    pub flow_control: FlowControlSpec,
    /// How endpoints are scraped.
    pub scrapes: ScrapePlans,
    /// Whose KV events are followed if no `KVEvents` document says, by a `precise-prefix-cache-producer`.
    pub kv_events: Option<KvEventsSpec>,
    /// What is strange, but allowed.
    pub warnings: Vec<Issue>,
}

impl Default for PickerSpec {
    /// llm-d's own, where nothing is configured.
    fn default() -> Self {
        let text = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n\
                    - {type: queue-scorer}\n- {type: kv-cache-utilization-scorer}\n- {type: prefix-cache-scorer}\n\
                    schedulingProfiles:\n- name: default\n  plugins:\n  - {pluginRef: queue-scorer, weight: 2}\n  \
                    - {pluginRef: kv-cache-utilization-scorer, weight: 2}\n  - {pluginRef: prefix-cache-scorer, weight: 3}\n";
        let file = std::path::Path::new("(default)");
        let head = Head { name: "default".into(), ..Head::default() };
        read(&Document::new(file, 0, text), Some(head)).unwrap_or_else(|_| Self {
            head: Head::default(),
            of_any_namespace: true,
            scheduler: profiles::empty(),
            flow_control: FlowControlSpec::default(),
            scrapes: ScrapePlans::default(),
            kv_events: None,
            warnings: Vec::new(),
        })
    }
}

/// Reads one document. `owner` is the ConfigMap that it stands in.
///
/// # Errors
/// Every fault of its plugins, or the first of anything else.
pub fn read(document: &Document<'_>, owner: Option<Head>) -> Result<PickerSpec, Vec<Issue>> {
    let mut raw: Raw = document.parse().map_err(|issue| vec![issue])?;
    let own = raw.metadata.take().map(|metadata| metadata.head(document)).transpose();
    let own = own.map_err(|issue| vec![issue])?;
    let of_any_namespace = owner.is_none() && own.is_none();
    let head = own.or(owner).unwrap_or_else(|| of_file(document));
    let mut notes = Notes { document, warnings: Vec::new() };
    let instances =
        Instances::read(std::mem::take(&mut raw.plugins), document, &mut notes.warnings)?;
    let compiled = compile(&head, raw, &instances, &mut notes);
    let mut spec = compiled.map_err(|(line, problem)| vec![document.issue(line, problem)])?;
    spec.of_any_namespace = of_any_namespace;
    spec.warnings = notes.warnings;
    Ok(spec)
}

/// What is strange, but allowed.
pub(super) struct Notes<'a> {
    document: &'a Document<'a>,
    warnings: Vec<Issue>,
}

impl Notes<'_> {
    fn warn(&mut self, line: u64, text: impl Into<String>) {
        self.warnings.push(self.document.issue(line, Problem::Conflict(text.into())));
    }
}

fn of_file(document: &Document<'_>) -> Head {
    let stem = document.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Head {
        namespace: "default".into(),
        name: stem.unwrap_or_default(),
        place: document.place(1),
        ..Head::default()
    }
}

fn compile(
    head: &Head,
    raw: Raw,
    instances: &Instances,
    notes: &mut Notes<'_>,
) -> Result<PickerSpec, Fault> {
    let gate = gate(&raw.feature_gates.unwrap_or_default(), notes)?;
    let profiles =
        profiles::compile(raw.scheduling_profiles.unwrap_or_default(), instances, notes)?;
    let handler = profiles::handler(&profiles, instances, notes)?;
    let parsers = parsers(raw.request_handler, raw.parser, instances, notes)?;
    let detector = raw.saturation_detector;
    let flow_control = flow_control::compile(raw.flow_control, detector, gate, instances, notes)?;
    let scrapes = sources::compile(raw.data_layer, instances, notes)?;
    let scheduler = Scheduler {
        name: head.name.clone(),
        parsers,
        handler,
        profiles,
        prefix: prefix(instances),
        inflight: inflight(instances),
        session_ids: instances.all(|plugin| match plugin {
            Plugin::Producer(Producer::SessionId(id)) => Some(id.clone()),
            _ => None,
        }),
        agent_identity: instances
            .all(|plugin| match plugin {
                Plugin::AgentIdentity(identity) => Some(identity.clone()),
                _ => None,
            })
            .into_iter()
            .next()
            .map(|identity| identity.plugin),
        detector: flow_control.detector.plugin,
        admitters: instances.all(|plugin| match plugin {
            Plugin::Admitter(admitter) => Some(*admitter),
            _ => None,
        }),
    };
    let kv_events = sources::kv_events(instances, notes);
    Ok(PickerSpec {
        head: head.clone(),
        of_any_namespace: false,
        scheduler,
        flow_control,
        scrapes,
        kv_events,
        warnings: Vec::new(),
    })
}

/// Whether flow control is on.
fn gate(gates: &[Spanned<String>], notes: &mut Notes<'_>) -> Result<bool, Fault> {
    let mut flow_control = false;
    for gate in gates {
        let line = gate.referenced.line();
        let (name, value) = gate.value.split_once('=').unwrap_or((&gate.value, "true"));
        let value = match value.trim().to_ascii_lowercase().as_str() {
            "true" | "t" | "1" => true,
            "false" | "f" | "0" => false,
            _ => {
                let expected = "a gate's name, or `name=true` or `name=false`";
                return Err((line, Problem::bad("featureGates", &gate.value, expected)));
            }
        };
        match name.trim() {
            "flowControl" => flow_control = value,
            name if GATES.contains(&name) => {}
            name => {
                let advice = did_you_mean(name, GATES);
                notes.warn(
                    line,
                    format!("feature gate `{name}` is not known and means nothing; {advice}"),
                );
            }
        }
    }
    Ok(flow_control)
}

fn parsers(
    handler: Option<document::RequestHandler>,
    former: Option<document::Reference>,
    instances: &Instances,
    notes: &mut Notes<'_>,
) -> Result<Vec<Parser>, Fault> {
    let named = handler.and_then(|handler| handler.parsers).filter(|parsers| !parsers.is_empty());
    let named = match (named, former) {
        (Some(named), _) => named,
        (None, Some(former)) => {
            let line = former.plugin_ref.referenced.line();
            notes.warn(line, "top-level `parser` is deprecated; use `requestHandler.parsers`");
            vec![former]
        }
        (None, None) => {
            return Ok(vec![
                Parser::OpenAi,
                Parser::Anthropic,
                Parser::VllmHttp,
                Parser::Passthrough,
            ]);
        }
    };
    let mut parsers = Vec::new();
    for reference in named {
        let found = instances.find(&reference.plugin_ref, Kind::Parser)?;
        if let Plugin::Parser(parser) = found.plugin() {
            if parsers.contains(parser) {
                let text = format!(
                    "a parser of type `{}` is there already; this one is skipped",
                    found.type_name()
                );
                notes.warn(reference.plugin_ref.referenced.line(), text);
            } else {
                parsers.push(*parser);
            }
        }
    }
    Ok(parsers)
}

fn prefix(instances: &Instances) -> PrefixProducer {
    let approximate = instances.all(|plugin| match plugin {
        Plugin::Producer(Producer::ApproxPrefix(producer)) => Some(producer.caps()),
        _ => None,
    });
    let precise = instances.all(|plugin| plugin.is(Kind::PrefixProducer).then_some(()));
    match (approximate.first(), precise.is_empty()) {
        (Some(producer), _) => producer.plugin,
        (None, true) => PrefixProducer::default(),
        // A precise index has no caps of its own.
        (None, false) => {
            PrefixProducer { max_prefix_tokens: None, capacity_tokens: None, auto_tune: true }
        }
    }
}

fn inflight(instances: &Instances) -> InflightLoad {
    let all: Vec<Named<InflightLoad>> = instances.all(|plugin| match plugin {
        Plugin::Producer(Producer::InflightLoad(load)) => Some(*load),
        _ => None,
    });
    all.first().map(|load| load.plugin).unwrap_or_default()
}

#[cfg(test)]
mod tests;
