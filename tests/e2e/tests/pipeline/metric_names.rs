//! Every name that `docs/metrics.md` lists is there, once there was traffic of all kinds; those of tenants are tested
//! with them.

use crate::bed::{long, roles_config, short};
use crate::names::{REWRITE, pool};
use anyhow::{Context as _, Result, ensure};
use e2e::client::{self, Request};
use e2e::echo_engine::EchoEngine;
use e2e::prompts::fresh_text;
use e2e::{Endpoint, Setup, Stack};
use serde_json::json;
use warmroute_demo::processes::get;

const DOC: &str = include_str!("../../../../docs/metrics.md");

/// The names in the first column of the tables between two headings (`…`: the beginning of the name before; `.`: its
/// group), as patterns: `*` is anything.
fn documented(from: &str, to: &str) -> Result<Vec<String>> {
    let section = DOC.split_once(from).and_then(|(_, section)| section.split_once(to));
    let (section, _) = section.with_context(|| format!("no section {from} before {to}"))?;
    let mut names: Vec<String> = Vec::new();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    for row in rows {
        let cell = row.split('|').nth(1).context("a cell")?;
        for name in cell.split('`').skip(1).step_by(2) {
            let group = names.last().and_then(|last| last.split_once('.')).map(|(group, _)| group);
            names.push(match (name.strip_prefix('…'), name.starts_with('.')) {
                (Some(end), _) => format!("llm_d_epp*{end}"),
                (None, true) => format!("{}{name}", group.context("a group")?),
                (None, false) => name.to_owned(),
            });
        }
    }
    ensure!(names.len() > 5, "{names:?}");
    Ok(names)
}

/// Whether a name fits a pattern.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((begin, end)) = pattern.split_once('*') else { return pattern == name };
    let Some(tail) = name.strip_prefix(begin) else { return false };
    tail.char_indices().any(|(at, _)| fits(end, &tail[at..])) || end.is_empty()
}

/// Names of a page of metrics that have a value; a histogram's without the end.
fn exposed(page: &str) -> Vec<&str> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples
        .filter_map(|line| line.split(['{', ' ']).next())
        .map(|name| name.strip_suffix("_count").unwrap_or(name))
        .collect()
}

fn missing(names: &[String], exposed: &[&str]) -> Vec<String> {
    names.iter().filter(|name| !exposed.iter().any(|e| fits(name, e))).cloned().collect()
}

/// A prompt computed elsewhere, a stream, a rewritten model, an engine that is not there and one that shows
/// nothing, and a body that is no JSON.
async fn traffic() -> Result<Stack> {
    let disaggregated = "
- type: always-disagg-pd-decider
- type: disagg-profile-handler
  parameters: {deciders: {prefill: always-disagg-pd-decider}}";
    let config = roles_config(disaggregated, ["decode", "prefill"]);
    let flow = "featureGates: [flowControl]\n---";
    let labels = ["decode", "prefill"].map(|role| [("llm-d.ai/role", role), ("variant", "bf16")]);
    let documents = config + flow + &pool("bf16", "bf16") + REWRITE;
    let setup = Setup::new(2, 1).simulator(&["--sidecars", "--kv-events"]).document(&documents);
    let stack = Stack::start(setup.label(&labels[0]).label(&labels[1])).await?;
    let mut streamed: serde_json::Value = serde_json::from_slice(&short().body)?;
    streamed["stream"] = true.into();
    let mut renamed = json!({"messages": [{"role": "user", "content": "Hi"}]});
    renamed["model"] = "support".into();
    for request in [long(&fresh_text(2000)), Request::chat(&streamed), Request::chat(&renamed)] {
        let answer = client::send(stack.listen(), &request).await?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    }
    let bad = Request::post(client::CHAT, "{".into()).header("content-type", "application/json");
    assert_eq!(client::send(stack.listen(), &bad).await?.status, 400);
    Ok(stack)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_name_in_the_docs_is_there() -> Result<()> {
    let stack = traffic().await?;
    let silent = EchoEngine::start().await?;
    silent.show("no metrics\n");
    let mut endpoints = stack.simulated();
    endpoints.push(Endpoint::new("silent", silent.address));
    endpoints.push(Endpoint::new("gone", ([127, 0, 0, 1], 1).into()));
    stack.write_endpoints(&endpoints)?;

    let of_envoy = documented("## Envoy", "## The agent")?;
    let (requests, own): (Vec<_>, Vec<_>) =
        of_envoy.into_iter().partition(|name| name.starts_with("llm_d"));
    let page = stack.envoy.prometheus().await?;
    assert_eq!(missing(&requests, &exposed(&page)), Vec::<String>::new());
    let stats = get(stack.envoy.admin, "/stats").await?;
    let stats = String::from_utf8_lossy(&stats.body).into_owned();
    let stats: Vec<_> = stats
        .lines()
        .filter_map(|line| line.split_once(": ")?.0.strip_prefix("wasmcustom.warmroute."))
        .collect();
    assert_eq!(missing(&own, &stats), Vec::<String>::new(), "{stats:?}");
    // And the other way round: what the filter has of its own is documented.
    let unknown: Vec<_> = stats.iter().filter(|stat| !own.iter().any(|n| n == *stat)).collect();
    assert_eq!(unknown, Vec::<&&str>::new());

    let of_agent = documented("## The agent", "### Tenants")?;
    let agent = stack.agent.as_ref().context("no agent")?.address;
    let complete = async || {
        let page = get(agent, "/metrics").await.ok()?;
        let page = String::from_utf8_lossy(&page.body).into_owned();
        missing(&of_agent, &exposed(&page)).is_empty().then_some(())
    };
    if stack.until("all names of the agent", complete).await.is_err() {
        let page = get(agent, "/metrics").await?;
        let page = String::from_utf8_lossy(&page.body).into_owned();
        panic!("missing in the agent's metrics: {:?}", missing(&of_agent, &exposed(&page)));
    }
    Ok(())
}

#[test]
fn a_pattern_fits_whole_names() {
    for (pattern, name, expected) in [
        ("a_b", "a_b", true),
        ("a_b", "a_b_c", false),
        ("a*_c", "a_b_c", true),
        ("a*_c", "a_c_d", false),
        ("a_*", "a_b", true),
        ("a_*", "b_b", false),
        ("a*_s_*", "a_x_s_y", true),
        ("a*_s_*", "a_x_y", false),
    ] {
        assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
    }
}
