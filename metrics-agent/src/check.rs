//! `check-config`: prints what was understood.

mod policy;

use crate::config::Configuration;
use crate::config::kv_events::Plan;
use crate::tokenizer::Tokenizer;
use std::io::{self, Write};
use std::path::Path;

/// Checks `root`, prints what was understood to `out` and issues to `errors`. The last line of
/// `out` counts objects by kind. Models' folders are loaded; one that does not load is a warning. Returns whether the configuration would be accepted.
///
/// # Errors
/// If the output cannot be written.
pub fn run(root: &Path, out: &mut impl Write, errors: &mut impl Write) -> io::Result<bool> {
    let configuration = match Configuration::load(root) {
        Ok(configuration) => configuration,
        Err(issues) => {
            for issue in &issues {
                writeln!(errors, "error: {issue}")?;
            }
            writeln!(out, "refused: {}", count(issues.len(), "error"))?;
            return Ok(false);
        }
    };
    for warning in &configuration.warnings {
        writeln!(errors, "warning: {warning}")?;
    }
    for spec in &configuration.endpoints {
        write!(out, "endpoint {} at {}", spec.full_name(), spec.address)?;
        for (key, value) in &spec.labels {
            write!(out, " {key}={value}")?;
        }
        if let Some(plan) = Plan::of(spec, &configuration.kv_events) {
            write!(out, ", KV events {}", describe(&plan))?;
        }
        writeln!(out)?;
    }
    let mut warnings = configuration.warnings.len();
    for spec in &configuration.models {
        match Tokenizer::load(&spec.folder) {
            Ok(model) => writeln!(out, "model {}, {}", spec.name, describe_model(&model))?,
            Err(error) => {
                warnings = warnings.saturating_add(1);
                writeln!(errors, "warning: model {}: {error}", spec.name)?;
                writeln!(out, "model {}, approximate", spec.name)?;
            }
        }
    }
    policy::print(&configuration, out)?;
    let mut counts = vec![
        count(configuration.files, "file"),
        count(configuration.endpoint_lists, "endpoint list"),
        count(configuration.endpoints.len(), "endpoint"),
        count(configuration.kv_events_documents, "KVEvents document"),
        count(configuration.models.len(), "model"),
    ];
    counts.extend(configuration.objects.counts().iter().map(|(kind, n)| count(*n, kind)));
    counts.push(count(warnings, "warning"));
    writeln!(out, "ok: {}", counts.join(", "))?;
    Ok(true)
}

/// Where an endpoint's events come from.
fn describe(plan: &Plan) -> String {
    let asked = if plan.discover { "where the engine says" } else { "" };
    let ports = plan.ports.map(|ports| {
        let replay = ports.replay.map(|port| format!(", replay {port}")).unwrap_or_default();
        format!("port {}{replay}, {}", ports.live, count(ports.ranks.into(), "rank"))
    });
    match ports {
        Some(ports) if plan.discover => format!("{asked}, else {ports}"),
        Some(ports) => ports,
        None => asked.to_owned(),
    }
}

fn describe_model(model: &Tokenizer) -> String {
    let template = match &model.files.template {
        Some(_) => "chat template",
        None => "no chat template",
    };
    let nfc = if model.files.nfc { ", NFC" } else { "" };
    format!("{} token ids, {template}{nfc}", model.tokens.len())
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
