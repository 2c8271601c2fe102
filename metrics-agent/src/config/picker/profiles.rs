//! Scheduling profiles and who runs them, with what llm-d adds where nothing is written.

use super::Notes;
use super::document::{RawProfile, WeightedReference};
use super::instances::{Configured, Instances};
use crate::config::error::Problem;
use crate::config::object::{self, Fault};
use serde_saphyr::Spanned;
use warmroute_shared_state::policy::plugin::{
    Decider, Detector, DisaggNames, Kind, Parser, Picker, Plugin, PrefixProducer, ProfileHandler,
};
use warmroute_shared_state::policy::scheduler::{
    Disagg, Handler, InflightLoad, Named, Profile, Scheduler, WeightedScorer,
};

/// Profiles of one configuration, and plugins of a profile, at most.
const MAX_PROFILES: usize = 64;
const DEFAULT_PICKER: &str = "max-score-picker";

/// A scheduler that picks by chance.
pub(super) fn empty() -> Scheduler {
    let picker = Named { name: DEFAULT_PICKER.into(), plugin: Picker::default() };
    let profile =
        Profile { name: "default".into(), filters: Vec::new(), scorers: Vec::new(), picker };
    Scheduler {
        name: "default".into(),
        parsers: vec![Parser::OpenAi, Parser::Anthropic, Parser::VllmHttp, Parser::Passthrough],
        handler: Handler::Single,
        profiles: vec![profile],
        prefix: PrefixProducer::default(),
        inflight: InflightLoad::default(),
        session_ids: Vec::new(),
        agent_identity: None,
        detector: Detector::default(),
        admitters: Vec::new(),
    }
}

/// The profiles. None written: one with every filter, scorer and picker that there is.
///
/// # Errors
/// The first fault.
pub(super) fn compile(
    raw: Vec<Spanned<RawProfile>>,
    instances: &Instances,
    notes: &mut Notes<'_>,
) -> Result<Vec<Profile>, Fault> {
    let mut pickers = instances.written().filter(|plugin| plugin.plugin().is(Kind::Picker));
    let default_picker = match pickers.next() {
        Some(first) => picker(first).unwrap_or_else(max_score),
        None => max_score(),
    };
    if raw.is_empty() {
        let mut draft = Draft::new("default".into());
        for plugin in instances.written() {
            draft.add(plugin, None, 1)?;
        }
        return Ok(vec![draft.finish(default_picker)]);
    }
    if raw.len() > MAX_PROFILES {
        let problem = Problem::TooMany { what: "scheduling profiles", limit: MAX_PROFILES };
        return Err((1, problem));
    }
    let mut profiles: Vec<Profile> = Vec::new();
    for profile in raw {
        let line = profile.referenced.line();
        let name = profile.value.name.ok_or((line, Problem::MissingField("name")))?;
        let name_line = name.referenced.line();
        let name = object::checked_name("name", name)?;
        if profiles.iter().any(|earlier| earlier.name == name) {
            let problem = Problem::bad("name", &name, "each profile a name of its own");
            return Err((name_line, problem));
        }
        let mut draft = Draft::new(name);
        for reference in profile.value.plugins.unwrap_or_default() {
            draft.add_reference(&reference, instances, notes)?;
        }
        profiles.push(draft.finish(default_picker.clone()));
    }
    Ok(profiles)
}

fn max_score() -> Named<Picker> {
    Named { name: DEFAULT_PICKER.into(), plugin: Picker::default() }
}

fn picker(plugin: &Configured) -> Option<Named<Picker>> {
    match plugin.plugin() {
        Plugin::Picker(picker) => Some(Named { name: plugin.name().into(), plugin: *picker }),
        _ => None,
    }
}

/// A profile that is being put together.
struct Draft {
    profile: Profile,
    picker: Option<Named<Picker>>,
}

impl Draft {
    fn new(name: String) -> Self {
        let profile =
            Profile { name, filters: Vec::new(), scorers: Vec::new(), picker: max_score() };
        Self { profile, picker: None }
    }

    fn add_reference(
        &mut self,
        reference: &WeightedReference,
        instances: &Instances,
        notes: &mut Notes<'_>,
    ) -> Result<(), Fault> {
        let line = reference.plugin_ref.referenced.line();
        let plugin = instances.any(&reference.plugin_ref.value, line)?;
        let weight = match &reference.weight {
            Some(weight) if !weight.value.is_finite() => {
                let problem = Problem::bad("weight", &weight.value.to_string(), "a number");
                return Err((weight.referenced.line(), problem));
            }
            weight => weight.as_ref().map(|weight| weight.value),
        };
        let usable = [Kind::Filter, Kind::Scorer, Kind::Picker];
        if !usable.iter().any(|kind| plugin.plugin().is(*kind)) {
            let text = format!(
                "plugin `{}` is no filter, scorer or picker and does nothing in a profile",
                plugin.name()
            );
            notes.warn(line, text);
        }
        self.add(plugin, weight, line)
    }

    fn add(&mut self, plugin: &Configured, weight: Option<f64>, line: u64) -> Result<(), Fault> {
        let name = plugin.name();
        if let Some(filter) = plugin.plugin().filter() {
            self.profile.filters.push(Named { name: name.into(), plugin: filter });
        }
        if let Some(scorer) = plugin.plugin().scorer() {
            let weight = weight.unwrap_or(1.0);
            self.profile.scorers.push(WeightedScorer { name: name.into(), plugin: scorer, weight });
        }
        if let Some(picker) = picker(plugin) {
            if let Some(first) = &self.picker {
                let text = format!(
                    "profile `{}` has two pickers, `{}` and `{name}`; remove one of the two",
                    self.profile.name, first.name
                );
                return Err((line, Problem::Conflict(text)));
            }
            self.picker = Some(picker);
        }
        Ok(())
    }

    fn finish(self, default_picker: Named<Picker>) -> Profile {
        Profile { picker: self.picker.unwrap_or(default_picker), ..self.profile }
    }
}

/// Who runs the profiles.
///
/// # Errors
/// If there are two of them, none for several profiles, or one that does not fit.
pub(super) fn handler(
    profiles: &[Profile],
    instances: &Instances,
    notes: &mut Notes<'_>,
) -> Result<Handler, Fault> {
    let mut handlers = instances.written().filter(|p| p.plugin().is(Kind::ProfileHandler));
    let first = handlers.next();
    if let (Some(first), Some(second)) = (first, handlers.next()) {
        let text = format!(
            "`{}` and `{}` are both profile handlers; remove one of the two",
            first.name(),
            second.name()
        );
        return Err((second.line_of(""), Problem::Conflict(text)));
    }
    let Some(configured) = first else {
        if profiles.len() > 1 {
            let text = "several scheduling profiles and no profile handler; add `disagg-profile-handler` or \
                        `header-profile-handler` under `plugins`";
            return Err((1, Problem::Conflict(text.into())));
        }
        return Ok(Handler::Single);
    };
    let line = configured.line_of("");
    let Plugin::Handler(handler) = configured.plugin() else {
        return Ok(Handler::Single);
    };
    let only_one = || {
        if profiles.len() > 1 {
            let text = format!(
                "`{}` runs one scheduling profile and there are {}; remove the others or use another handler",
                configured.type_name(),
                profiles.len()
            );
            return Err((line, Problem::Conflict(text)));
        }
        Ok(())
    };
    let index = |name: &str| profiles.iter().position(|profile| profile.name == name);
    match handler {
        ProfileHandler::Single => {
            only_one()?;
            Ok(Handler::Single)
        }
        ProfileHandler::DataParallel { primary_port } => {
            only_one()?;
            Ok(Handler::DataParallel { primary_port: *primary_port })
        }
        ProfileHandler::Header { header, default_profile } => {
            if profiles.len() > 1 && index(default_profile).is_none() {
                let text = format!(
                    "there is no profile `{default_profile}` for requests without the header; they are answered with 429"
                );
                notes.warn(configured.line_of("defaultProfile"), text);
            }
            Ok(Handler::Header { header: header.clone(), default_profile: default_profile.clone() })
        }
        ProfileHandler::Disagg(names) => {
            let decide = |name: &Option<String>| decider(name.as_deref(), instances, configured);
            if index(&names.decode_profile).is_none() {
                let text = format!(
                    "there is no profile `{}` to decode: every request fails",
                    names.decode_profile
                );
                notes.warn(line, text);
            }
            stage(notes, configured, "prefill", index(&names.prefill_profile), names);
            Ok(Handler::Disagg(Disagg {
                plugin_type: configured.type_name().into(),
                name: configured.name().into(),
                prefill_first: names.prefill_first,
                decode: index(&names.decode_profile),
                prefill: index(&names.prefill_profile),
                encode: index(&names.encode_profile),
                prefill_decider: decide(&names.prefill_decider)?,
                encode_decider: decide(&names.encode_decider)?,
                primary_port: names.primary_port,
            }))
        }
    }
}

/// A stage that is decided on but has no profile never runs: most likely a slip in a name.
fn stage(
    notes: &mut Notes<'_>,
    handler: &Configured,
    what: &str,
    profile: Option<usize>,
    names: &DisaggNames,
) {
    if profile.is_none() && names.prefill_decider.is_some() {
        let text = format!(
            "there is no profile `{}`: nothing is ever sent to {what}",
            names.prefill_profile
        );
        notes.warn(handler.line_of("profiles.prefill"), text);
    }
}

fn decider(
    name: Option<&str>,
    instances: &Instances,
    handler: &Configured,
) -> Result<Option<Decider>, Fault> {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(None) };
    let line = handler.line_of("deciders");
    Ok(match instances.named(name, Kind::Decider, line)?.plugin() {
        Plugin::Decider(decider) => Some(*decider),
        _ => None,
    })
}
