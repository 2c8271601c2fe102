//! The plugins of a configuration, read by their types, with their names.

use super::document::RawPlugin;
use crate::config::document::Document;
use crate::config::error::{Issue, Problem, did_you_mean};
use crate::config::object::{self, Fault};
use crate::config::tree::Tree;
use serde_json::Value;
use serde_saphyr::Spanned;
use warmroute_shared_state::policy::plugin::{self, Instance, Kind, Plugin, PluginError, Standing};
use warmroute_shared_state::policy::scheduler::Named;

/// Plugins of one configuration at most.
const MAX_PLUGINS: usize = 256;
/// What is there without being written: policies and parts that llm-d adds by their types' names.
const ALWAYS_THERE: &[&str] = &[
    "fcfs-ordering-policy",
    "global-strict-fairness-policy",
    "static-usage-limit-policy",
    "utilization-detector",
    "metrics-data-source",
    "core-metrics-extractor",
    "approx-prefix-cache-producer",
    "inflight-load-producer",
    "token-producer",
];

/// A plugin with its name and place.
#[derive(Debug, Clone, PartialEq)]
pub struct Configured {
    name: String,
    line: u64,
    instance: Instance,
    parameters: Option<Tree>,
}

impl Configured {
    /// Its name; its type's if it was given none.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        self.instance.type_name
    }

    /// What it does.
    #[must_use]
    pub fn plugin(&self) -> &Plugin {
        &self.instance.plugin
    }

    /// Line of a parameter in the document.
    #[must_use]
    pub fn line_of(&self, path: &str) -> u64 {
        self.parameters.as_ref().map_or(self.line, |tree| tree.line_of(path))
    }
}

/// All plugins, in the order of the file; behind them what is always there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Instances {
    written: Vec<Configured>,
    added: Vec<Configured>,
}

impl Instances {
    /// Reads the plugins, and checks what they name.
    ///
    /// # Errors
    /// Every fault.
    pub(super) fn read(
        raw: Option<Vec<Spanned<RawPlugin>>>,
        document: &Document<'_>,
        warnings: &mut Vec<Issue>,
    ) -> Result<Self, Vec<Issue>> {
        let raw = raw.unwrap_or_default();
        let mut issues = Vec::new();
        let mut instances = Self::default();
        if raw.len() > MAX_PLUGINS {
            return Err(vec![
                document.issue(1, Problem::TooMany { what: "plugins", limit: MAX_PLUGINS }),
            ]);
        }
        for plugin in raw {
            match configured(plugin) {
                Ok(plugin) => {
                    if let Some(first) = instances.written.iter().find(|p| p.name == plugin.name) {
                        let first = document.place(first.line).to_string();
                        let value = plugin.name.clone();
                        let problem = Problem::Duplicate { what: "plugin name", value, first };
                        issues.push(document.issue(plugin.line, problem));
                    }
                    for remark in &plugin.instance.remarks {
                        let text = format!("plugin `{}`: {remark}", plugin.name);
                        warnings.push(document.issue(plugin.line, Problem::Conflict(text)));
                    }
                    instances.written.push(plugin);
                }
                Err((line, problem)) => issues.push(document.issue(line, problem)),
            }
        }
        let missing = ALWAYS_THERE
            .iter()
            .filter(|name| !instances.written.iter().any(|plugin| plugin.name == **name));
        instances.added = missing.filter_map(|name| added(name)).collect();
        // Only once all are read: a plugin may name one that comes after it.
        if issues.is_empty() {
            for plugin in &instances.written {
                if let Err((line, problem)) = instances.check_references(plugin) {
                    issues.push(document.issue(line, problem));
                }
            }
        }
        if issues.is_empty() { Ok(instances) } else { Err(issues) }
    }

    fn check_references(&self, plugin: &Configured) -> Result<(), Fault> {
        for reference in &plugin.instance.references {
            // Of these the first counts, whatever its name.
            let is_identity = reference.kind == Kind::AgentIdentity;
            if is_identity && self.written.iter().any(|p| p.plugin().is(Kind::AgentIdentity)) {
                continue;
            }
            self.named(&reference.name, reference.kind, plugin.line_of(&reference.at))?;
        }
        Ok(())
    }

    /// The plugins that were written, in their order.
    pub fn written(&self) -> impl Iterator<Item = &Configured> {
        self.written.iter()
    }

    /// Those written plugins that `pick` finds something in.
    pub fn all<T>(&self, pick: impl Fn(&Plugin) -> Option<T>) -> Vec<Named<T>> {
        let found = self.written.iter().filter_map(|configured| {
            Some(Named { name: configured.name.clone(), plugin: pick(configured.plugin())? })
        });
        found.collect()
    }

    /// The plugin of this name, whatever it is.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn any(&self, name: &str, line: u64) -> Result<&Configured, Fault> {
        let mut all = self.written.iter().chain(&self.added);
        all.find(|plugin| plugin.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.written.iter().map(Configured::name).collect();
            (line, Problem::unknown("plugin", name, advice(name, &names)))
        })
    }

    /// The plugin of this name, if it can be used as `kind`.
    ///
    /// # Errors
    /// If there is none, or it is something else.
    pub(super) fn named(&self, name: &str, kind: Kind, line: u64) -> Result<&Configured, Fault> {
        let fitting = || self.written.iter().chain(&self.added).filter(|p| p.plugin().is(kind));
        if let Some(found) = fitting().find(|plugin| plugin.name == name) {
            return Ok(found);
        }
        let names: Vec<&str> = fitting().map(Configured::name).collect();
        let advice = advice(name, &names);
        if self.any(name, line).is_ok() {
            let text = format!("plugin `{name}` is no {}; {advice}", kind.as_str());
            return Err((line, Problem::Conflict(text)));
        }
        Err((line, Problem::unknown("plugin", name, advice)))
    }

    /// As [`named`](Self::named), for a name with its line.
    ///
    /// # Errors
    /// If there is none, or it is something else.
    pub(super) fn find(&self, name: &Spanned<String>, kind: Kind) -> Result<&Configured, Fault> {
        self.named(&name.value, kind, name.referenced.line())
    }
}

fn advice(name: &str, names: &[&str]) -> String {
    if names.is_empty() { "add it under `plugins`".to_owned() } else { did_you_mean(name, names) }
}

fn configured(raw: Spanned<RawPlugin>) -> Result<Configured, Fault> {
    let line = raw.referenced.line();
    let raw = raw.value;
    let plugin_type = raw.plugin_type.ok_or((line, Problem::MissingField("type")))?;
    let type_line = plugin_type.referenced.line();
    let name = match raw.name.filter(|name| !name.value.is_empty()) {
        Some(name) => object::checked_name("name", name)?,
        None => plugin_type.value.clone(),
    };
    let parameters = raw.parameters;
    let json = parameters.as_ref().map_or(Value::Null, Tree::to_json);
    match plugin::read(&plugin_type.value, &json) {
        Ok(instance) => Ok(Configured { name, line, instance, parameters }),
        Err(error) => {
            let at = error.parameter().map_or(type_line, |path| {
                parameters.as_ref().map_or(line, |tree| tree.line_of(path))
            });
            Err((at, refused(&name, &plugin_type.value, &error)))
        }
    }
}

fn refused(name: &str, plugin_type: &str, error: &PluginError) -> Problem {
    match error {
        PluginError::UnknownType { given, nearest } => {
            let advice = match nearest {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => {
                    let usable = plugin::types()
                        .iter()
                        .filter(|known| matches!(known.standing, Standing::Known))
                        .map(|known| known.name);
                    format!("valid here: {}", usable.collect::<Vec<_>>().join(", "))
                }
            };
            Problem::unknown("plugin type", given, advice)
        }
        PluginError::Unsupported { given, instead } => {
            Problem::Unsupported { what: format!("plugin type `{given}`"), instead }
        }
        PluginError::UnknownParameter { nearest: None, .. } => Problem::Conflict(format!(
            "plugin `{name}` of type `{plugin_type}`: {error}; remove it"
        )),
        _ => Problem::Conflict(format!("plugin `{name}` of type `{plugin_type}`: {error}")),
    }
}

/// A plugin that llm-d adds by itself.
fn added(name: &'static str) -> Option<Configured> {
    let instance = plugin::read(name, &Value::Null).ok()?;
    Some(Configured { name: name.to_owned(), line: 1, instance, parameters: None })
}
