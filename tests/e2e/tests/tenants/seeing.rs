//! What the agent's page and metrics tell of tenants, while they wait and afterwards.

use crate::bed::{KEY_A, KEY_B, tenants};
use crate::queues::{Bed, flow_control};
use anyhow::{Context as _, Result};
use e2e::Stack;
use std::collections::BTreeSet;

/// The agent's answer for this path, once it has all of `parts` and none of `not`.
async fn told(stack: &Stack, path: &str, parts: &[&str], not: &[&str]) -> Result<String> {
    let agent = stack.agent.as_ref().context("no agent")?.address;
    let get = async || {
        let answer = warmroute_demo::processes::get(agent, path).await.ok()?;
        Some(String::from_utf8_lossy(&answer.body).into_owned())
    };
    let complete = async || {
        let text = get().await?;
        let all = parts.iter().all(|part| text.contains(part));
        (all && !not.iter().any(|part| text.contains(part))).then_some(text)
    };
    let found = stack.until(&format!("{path} with {parts:?}"), complete).await;
    match found {
        Ok(text) => Ok(text),
        Err(error) => Err(error.context(get().await.unwrap_or_default())),
    }
}

/// Names of metrics that a page has.
fn names(page: &str) -> BTreeSet<&str> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).collect()
}

/// The number at the end of the only line that begins so.
fn sample(page: &str, begin: &str) -> Result<f64> {
    let line = page.lines().find(|line| line.starts_with(begin)).context(begin.to_owned())?;
    Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn page_and_metrics_tell_tokens_shares_budgets_queues_drops_and_waits() -> Result<()> {
    let bands = "  priorityBands: [{priority: 0, maxRequests: 1}]\n";
    let of_b = "  limits: [{model: '*', concurrency: 10}]";
    let mut bed = Bed::start(&(tenants("", of_b) + &flow_control(1, bands))).await?;
    let mut first = bed.call(KEY_A, "first");
    first.arrived().await?;
    let mut waiting = bed.call(KEY_B, "waiting");
    bed.settled(1, 1).await?;
    let refused = bed.call(KEY_B, "refused").refused().await?;
    assert_eq!(refused.status, 429, "{}", refused.text());

    let budget = "{tenant=\"b\",model=\"*\",kind=\"concurrency\"}";
    let flow = |id: &str| format!("{{fairness_id=\"{id}\",priority=\"0\",inference_pool=\"\"}}");
    let (of_a, of_b) = (flow("a"), flow("b"));
    let lines = [
        format!("\nllm_d_epp_flow_control_queue_size{of_b} 1\n"),
        format!("\nllm_d_epp_flow_control_queue_size{of_a} 0\n"),
        format!("\nwarmroute_agent_flow_in_flight_requests{of_a} 1\n"),
        format!("\nwarmroute_agent_tenant_budget_limit{budget} 10\n"),
        format!("\nwarmroute_agent_tenant_budget_remaining{budget} 9\n"),
        "\nwarmroute_agent_tenant_drops_total{tenant=\"b\",reason=\"rejected-saturated\"} 1\n"
            .to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let metrics = told(&bed.stack, "/metrics", &lines, &[]).await?;
    // Of one name in two places, a sum would count twice.
    let counted = bed.stack.envoy.prometheus().await?;
    let both: Vec<_> = names(&metrics).intersection(&names(&counted)).copied().collect();
    assert_eq!(both, [""; 0]);
    assert!(names(&counted).contains("llm_d_epp_request_total"), "{counted}");
    let rows = [
        "<tr><td>b<td>*<td class=n>–<td class=n>–<td class=n>9 of 10<td class=n>–",
        "<tr><td><td>0<td>a<td class=n>0<td class=n>0<td class=n>1<td class=n>",
        "<tr><td><td>0<td>b<td class=n>1<td class=n>",
        "<tr><td>b<td>rejected-saturated<td class=n>1",
    ];
    told(&bed.stack, "/", &rows, &[]).await?;

    first.finish().await?;
    waiting.arrived().await?;
    waiting.finish().await?;
    bed.settled(0, 0).await?;
    let left = format!("\nwarmroute_agent_tenant_budget_remaining{budget} 10\n");
    let parts = [
        left.as_str(),
        "warmroute_agent_tenant_token_share{tenant=\"b\"}",
        "llm_d_epp_flow_control_request_queue_duration_seconds_count{fairness_id=\"b\",priority=\"0\",outcome=\"Dispatched\"",
    ];
    let metrics = told(&bed.stack, "/metrics", &parts, &["flow_control_queue_size{"]).await?;
    let share = |tenant: &str| {
        sample(&metrics, &format!("warmroute_agent_tenant_token_share{{tenant=\"{tenant}\"}}"))
    };
    let (a, b) = (share("a")?, share("b")?);
    assert!(a > 0.0 && b > 0.0 && (a + b - 1.0).abs() < 1e-6, "{a} and {b}");
    let tokens =
        "warmroute_agent_tenant_tokens_total{tenant=\"b\",model=\"llama-70b\",kind=\"input\"}";
    assert!(sample(&metrics, tokens)? > 0.0);
    let waits = "<th>p50<th>p95<th>p99<tr><td><td>0<td class=n>";
    let rows = ["<h2>Tokens of the last minute</h2>", waits, "10 of 10"];
    told(&bed.stack, "/", &rows, &["<h2>Queues</h2>"]).await?;
    Ok(())
}
