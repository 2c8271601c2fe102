//! What was understood of pools, plugins, routes, names and tenants, defaults included.

use crate::config::Configuration;
use crate::config::gateway::pool::PoolSpec;
use crate::config::picker::PickerSpec;
use crate::config::picker::flow_control::{Band, FlowControlSpec};
use crate::config::tenant::{Limits, TenantSpec};
use serde::Serialize;
use serde_json::Value;
use std::io::{self, Write};
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::routing::{
    ModelRewrite, PathMatch, Pool, RouteMatch, RouteRule, Split,
};
use warmroute_shared_state::policy::scheduler::{Handler, Profile};

/// Name that stands for `--pool` of `run`, which is not known here.
const SINGLE: &str = "--pool";

/// Prints it all.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn print(configuration: &Configuration, out: &mut impl Write) -> io::Result<()> {
    let policy = configuration.policy(SINGLE);
    for (pool, spec) in policy.pools.iter().zip(&configuration.objects.pools) {
        print_pool(configuration, &policy, pool, spec, out)?;
    }
    for picker in &configuration.pickers {
        print_picker(picker, out)?;
    }
    for (n, entry) in policy.routing.matches.iter().enumerate() {
        if let Some(rule) = policy.routing.rules.get(entry.rule) {
            writeln!(out, "route {}: {} → {}", n + 1, describe_match(entry), describe_rule(rule))?;
        }
    }
    for mapping in &policy.model_mappings {
        let adapters = if mapping.adapters.is_empty() {
            "no adapter".into()
        } else {
            mapping.adapters.join(", ")
        };
        writeln!(out, "base model {}: {adapters}", mapping.base_model)?;
    }
    for rewrite in &policy.rewrites {
        print_rewrite(&policy, rewrite, out)?;
    }
    for objective in &policy.objectives {
        let pool = of_pool(&policy, objective.pool);
        writeln!(out, "objective {}{pool}: priority {}", objective.name, objective.priority)?;
    }
    for tenant in &configuration.objects.tenants {
        print_tenant(tenant, out)?;
    }
    Ok(())
}

fn print_pool(
    configuration: &Configuration,
    policy: &Policy,
    pool: &Pool,
    spec: &PoolSpec,
    out: &mut impl Write,
) -> io::Result<()> {
    let selector: Vec<String> = spec.selector.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let ports: Vec<String> = spec.target_ports.iter().map(u16::to_string).collect();
    let members = configuration.endpoints.iter().filter(|e| e.pools.contains(&pool.name)).count();
    let scheduler = policy.schedulers.get(pool.scheduler).map_or("", |scheduler| &scheduler.name);
    writeln!(
        out,
        "pool {}: cluster {}, selector {}, ports {}, {}, {}, plugins of {scheduler}, {}",
        pool.name,
        pool.cluster,
        if selector.is_empty() { "any".into() } else { selector.join(" ") },
        ports.join(" "),
        if spec.h2c { "HTTP/2" } else { "HTTP/1.1" },
        if pool.fail_open { "FailOpen" } else { "FailClose" },
        super::count(members, "endpoint"),
    )
}

fn print_picker(picker: &PickerSpec, out: &mut impl Write) -> io::Result<()> {
    let scheduler = &picker.scheduler;
    let parsers: Vec<String> =
        scheduler.parsers.iter().map(|parser| format!("{parser:?}")).collect();
    writeln!(
        out,
        "plugins of {}: {}, parsers {}",
        scheduler.name,
        describe_handler(&scheduler.handler, &scheduler.profiles),
        parsers.join(" ")
    )?;
    for profile in &scheduler.profiles {
        writeln!(out, "  profile {}", profile.name)?;
        for filter in &profile.filters {
            writeln!(out, "    filter {}{}", filter.name, parameters(&filter.plugin))?;
        }
        for scorer in &profile.scorers {
            let weight = scorer.weight;
            writeln!(
                out,
                "    scorer {} weight {weight}{}",
                scorer.name,
                parameters(&scorer.plugin)
            )?;
        }
        writeln!(out, "    picker {}{}", profile.picker.name, parameters(&profile.picker.plugin))?;
    }
    writeln!(out, "  prefix cache{}", parameters(&scheduler.prefix))?;
    writeln!(out, "  in-flight load{}", parameters(&scheduler.inflight))?;
    for session in &scheduler.session_ids {
        writeln!(out, "  session id {}{}", session.name, parameters(&session.plugin))?;
    }
    if let Some(identity) = &scheduler.agent_identity {
        writeln!(out, "  agent identity{}", parameters(identity))?;
    }
    print_flow_control(&picker.flow_control, out)
}

fn describe_handler(handler: &Handler, profiles: &[Profile]) -> String {
    match handler {
        Handler::Single => "one profile".into(),
        Handler::Header { header, default_profile } => {
            format!("profile by header {header}, else {default_profile}")
        }
        Handler::DataParallel { primary_port } => {
            format!("one profile, primary port {primary_port}")
        }
        Handler::Disagg(disagg) => {
            let name = |index: Option<usize>| {
                index.and_then(|i| profiles.get(i)).map_or("none", |profile| profile.name.as_str())
            };
            let decider = |what: &str, decider: Option<String>| {
                decider.map(|decider| format!(", {what} decider{decider}")).unwrap_or_default()
            };
            format!(
                "{}, decode {}, prefill {}, encode {}{}{}",
                if disagg.prefill_first { "prefill first" } else { "decode first" },
                name(disagg.decode),
                name(disagg.prefill),
                name(disagg.encode),
                decider("prefill", disagg.prefill_decider.as_ref().map(parameters)),
                decider("encode", disagg.encode_decider.as_ref().map(parameters)),
            )
        }
    }
}

fn print_flow_control(flow: &FlowControlSpec, out: &mut impl Write) -> io::Result<()> {
    let detector = format!("{}{}", flow.detector.name, parameters(&flow.detector.plugin));
    if !flow.enabled {
        return writeln!(out, "  flow control off, saturation by {detector}");
    }
    let limit = |n: u64| if n == 0 { "any number of".to_owned() } else { n.to_string() };
    writeln!(
        out,
        "  flow control on, saturation by {detector}, ceilings by {}{}, {} requests, {} bytes, TTL {} ms, without \
         endpoints {} ms, eviction {}",
        flow.usage_limit.name,
        parameters(&flow.usage_limit.plugin),
        limit(flow.max_requests),
        limit(flow.max_bytes),
        flow.request_ttl_ms,
        flow.no_endpoint_ttl_ms,
        if flow.enable_eviction { "on" } else { "off" },
    )?;
    for band in &flow.bands {
        writeln!(out, "    band {}{}", band.priority, describe_band(band))?;
    }
    writeln!(out, "    other bands{}", describe_band(&flow.default_band))?;
    match &flow.default_negative_band {
        Some(band) => writeln!(out, "    other bands below 0{}", describe_band(band)),
        None => Ok(()),
    }
}

fn describe_band(band: &Band) -> String {
    format!(
        ": {} requests, {} bytes, {}{}, {}",
        band.max_requests,
        band.max_bytes,
        band.fairness.name,
        parameters(&band.fairness.plugin),
        band.ordering.name
    )
}

fn describe_match(entry: &RouteMatch) -> String {
    let mut parts = entry.hosts.iter().map(|host| format!("host {host}")).collect::<Vec<_>>();
    parts.push(match &entry.path {
        PathMatch::Exact(path) => format!("path {path}"),
        PathMatch::Prefix(path) => format!("path {}/*", path.trim_end_matches('/')),
    });
    parts.extend(entry.method.iter().map(|method| format!("method {method}")));
    // Their values may be keys.
    parts.extend(entry.headers.iter().map(|(name, _)| format!("header {name}=…")));
    parts.extend(entry.query.iter().map(|(name, _)| format!("query {name}=…")));
    parts.join(", ")
}

fn describe_rule(rule: &RouteRule) -> String {
    let backends: Vec<String> = rule
        .backends
        .iter()
        .map(|backend| {
            let gone = if backend.pool.is_none() { " (500)" } else { "" };
            format!("{} {}{gone}", backend.weight, backend.name)
        })
        .collect();
    let mut text = if backends.is_empty() { "500".to_owned() } else { backends.join(" : ") };
    text.push_str(&format!(" ({}", rule.name));
    if rule.backends.len() > 1 {
        text.push_str(&format!(", split by {}", split(rule.split)));
    }
    match rule.timeout_ms {
        Some(0) => text.push_str(", no timeout"),
        Some(millis) => text.push_str(&format!(", timeout {millis} ms")),
        None => {}
    }
    let changes = rule.set_headers.len() + rule.add_headers.len() + rule.remove_headers.len();
    if changes > 0 {
        text.push_str(&format!(", {}", super::count(changes, "header change")));
    }
    text.push(')');
    text
}

fn print_rewrite(policy: &Policy, rewrite: &ModelRewrite, out: &mut impl Write) -> io::Result<()> {
    for rule in &rewrite.rules {
        let from = match (rule.generic, rule.models.is_empty()) {
            (true, _) => "any model".to_owned(),
            (false, true) => "never".to_owned(),
            (false, false) => rule.models.join(", "),
        };
        let targets: Vec<String> = rule
            .targets
            .iter()
            .map(|target| match target.weight {
                Some(weight) => format!("{weight} {}", target.model),
                None => target.model.clone(),
            })
            .collect();
        let pool = of_pool(policy, rewrite.pool);
        let split = if targets.len() > 1 {
            format!(", split by {}", split(rewrite.split))
        } else {
            String::new()
        };
        writeln!(out, "rewrite {}{pool}: {from} → {}{split}", rewrite.name, targets.join(" : "))?;
    }
    Ok(())
}

fn split(split: Split) -> &'static str {
    match split {
        Split::Conversation => "conversation",
        Split::Random => "chance",
    }
}

fn of_pool(policy: &Policy, pool: Option<usize>) -> String {
    pool.and_then(|index| policy.pools.get(index))
        .map(|pool| format!(" of {}", pool.name))
        .unwrap_or_default()
}

fn print_tenant(tenant: &TenantSpec, out: &mut impl Write) -> io::Result<()> {
    let objective = tenant.inject.objective.as_deref().unwrap_or("none");
    writeln!(
        out,
        "tenant {}: {}{}{}, fairness ID {}, objective {objective}{}, cut streams billed {}",
        tenant.head.name,
        super::count(tenant.api_key_hashes.len(), "API key"),
        if tenant.jwt.is_some() { " and JWT claims" } else { "" },
        if tenant.strip_key { ", taken off" } else { "" },
        tenant.inject.fairness_id,
        tenant.inject.tier.as_ref().map(|tier| format!(", tier {tier}")).unwrap_or_default(),
        if tenant.accounting.exact_disconnects { "exactly" } else { "by chunks" },
    )?;
    for limits in &tenant.limits {
        writeln!(out, "  model {}{}", limits.model, describe_limits(limits))?;
    }
    Ok(())
}

fn describe_limits(limits: &Limits) -> String {
    let all = [
        ("requests a minute", limits.rpm),
        ("tokens a minute", limits.tpm),
        ("requests at once", limits.concurrency),
        ("tokens in flight", limits.inflight_tokens),
        ("output tokens reserved by default", limits.max_completion_tokens_default),
        ("output tokens reserved at most", limits.max_completion_tokens_cap),
    ];
    let given: Vec<String> =
        all.iter().filter_map(|(what, n)| n.map(|n| format!("{n} {what}"))).collect();
    if given.is_empty() { ": no limits".into() } else { format!(": {}", given.join(", ")) }
}

/// A plugin's parameters as `name=value`, in parentheses; nothing if it has none.
fn parameters(plugin: &impl Serialize) -> String {
    let mut value = serde_json::to_value(plugin).unwrap_or_default();
    let mut tags = Vec::new();
    // A type's variant is a word with a capital around what it holds.
    while let Value::Object(map) = &value {
        match map.iter().next() {
            Some((tag, inner)) if map.len() == 1 && tag.starts_with(char::is_uppercase) => {
                tags.push(tag.clone());
                value = inner.clone();
            }
            _ => break,
        }
    }
    let mut parts = tags;
    match value {
        Value::Object(map) => {
            parts.extend(map.iter().map(|(name, value)| format!("{name}={value}")));
        }
        Value::Null => {}
        Value::String(text) => parts.push(text),
        other => parts.push(other.to_string()),
    }
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}
