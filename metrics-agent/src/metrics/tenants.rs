//! How tenants stand, as gauges: llm-d's of queues, and our own. Series come and go with what Envoys tell.

use crate::ledger::recent::Window;
use prometheus_client::encoding::{EncodeLabelSet, text::encode_registry};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use warmroute_shared_state::tenant_status::{BudgetStatus, FlowStatus, Level};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BudgetLabels {
    tenant: String,
    model: String,
    kind: &'static str,
}

/// llm-d's, without the model: a queue is not told by that.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FlowLabels {
    fairness_id: String,
    priority: String,
    inference_pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabel {
    tenant: String,
}

/// The levels of a budget that it has, each with its kind.
pub fn levels(budget: &BudgetStatus) -> [(&'static str, Option<Level>); 4] {
    [
        ("rpm", budget.rpm),
        ("tpm", budget.tpm),
        ("concurrency", budget.concurrency),
        ("inflight_tokens", budget.inflight_tokens),
    ]
}

/// A band's priority as a label and on the page.
#[must_use]
pub fn priority(priority: Option<i32>) -> String {
    priority.map_or("other".to_owned(), |priority| priority.to_string())
}

/// The exposition, without an end mark.
///
/// # Errors
/// If the text could not be written, which a string does not do.
pub fn encode(
    budgets: &[BudgetStatus],
    flows: &[FlowStatus],
    window: &Window,
) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    let (limits, remaining) = (Family::<BudgetLabels, Gauge>::default(), Family::default());
    for budget in budgets {
        for (kind, level) in levels(budget) {
            let Some(level) = level else { continue };
            let (tenant, model) = (budget.tenant.clone(), budget.model.clone());
            let labels = BudgetLabels { tenant, model, kind };
            limits.get_or_create(&labels).set(count(level.limit));
            let left: &Family<BudgetLabels, Gauge> = &remaining;
            left.get_or_create(&labels).set(level.remaining);
        }
    }
    let name = "warmroute_agent_tenant_budget_limit";
    registry.register(name, "Tenants' limits, of all Envoys together", limits);
    let name = "warmroute_agent_tenant_budget_remaining";
    registry.register(name, "What is left of them; below 0: overdrawn", remaining);

    let of_flows = |value: fn(&FlowStatus) -> u64| {
        let gauges = Family::<FlowLabels, Gauge>::default();
        for flow in flows {
            let labels = FlowLabels {
                fairness_id: flow.fairness_id.clone(),
                priority: priority(flow.priority),
                inference_pool: flow.pool.clone(),
            };
            gauges.get_or_create(&labels).set(count(value(flow)));
        }
        gauges
    };
    for prefix in ["llm_d_epp", "inference_extension"] {
        let name = |rest: &str| format!("{prefix}_flow_control_{rest}");
        let (size, bytes) = (of_flows(|flow| flow.waiting), of_flows(|flow| flow.waiting_bytes));
        registry.register(name("queue_size"), "Requests that wait", size);
        registry.register(name("queue_bytes"), "Bytes of their bodies", bytes);
    }
    let name = "warmroute_agent_flow_in_flight_requests";
    registry.register(name, "Requests in flight", of_flows(|flow| flow.in_flight));
    let name = "warmroute_agent_flow_in_flight_tokens";
    registry.register(name, "Their tokens, estimated", of_flows(|flow| flow.in_flight_tokens));

    let shares = Family::<TenantLabel, Gauge<f64, AtomicU64>>::default();
    for (tenant, share) in window.shares() {
        shares.get_or_create(&TenantLabel { tenant: tenant.to_owned() }).set(share);
    }
    let name = "warmroute_agent_tenant_token_share";
    registry.register(name, "Part of all tokens of the last minute", shares);
    let mut text = String::new();
    encode_registry(&mut text, &registry)?;
    Ok(text)
}

fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn names_and_labels_are_these() {
        let budget = BudgetStatus {
            tenant: "a".into(),
            model: "*".into(),
            tpm: Some(Level { limit: 1000, remaining: -7 }),
            concurrency: Some(Level { limit: 2, remaining: 1 }),
            ..BudgetStatus::default()
        };
        let flow = FlowStatus {
            pool: "ns/p".into(),
            priority: Some(-3),
            fairness_id: "a".into(),
            waiting: 5,
            waiting_bytes: 600,
            in_flight: 7,
            in_flight_tokens: 80,
        };
        let tokens = BTreeMap::from([("a".to_owned(), 75), ("b".to_owned(), 25)]);
        let window = Window { tokens, ..Window::default() };
        let text = encode(&[budget], &[flow], &window).unwrap();
        let mut samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        samples.sort_unstable();
        let flow = "{fairness_id=\"a\",priority=\"-3\",inference_pool=\"ns/p\"}";
        let kind = |kind: &str| format!("{{tenant=\"a\",model=\"*\",kind=\"{kind}\"}}");
        let (tpm, concurrency) = (kind("tpm"), kind("concurrency"));
        let expected = [
            format!("inference_extension_flow_control_queue_bytes{flow} 600"),
            format!("inference_extension_flow_control_queue_size{flow} 5"),
            format!("llm_d_epp_flow_control_queue_bytes{flow} 600"),
            format!("llm_d_epp_flow_control_queue_size{flow} 5"),
            format!("warmroute_agent_flow_in_flight_requests{flow} 7"),
            format!("warmroute_agent_flow_in_flight_tokens{flow} 80"),
            format!("warmroute_agent_tenant_budget_limit{concurrency} 2"),
            format!("warmroute_agent_tenant_budget_limit{tpm} 1000"),
            format!("warmroute_agent_tenant_budget_remaining{concurrency} 1"),
            format!("warmroute_agent_tenant_budget_remaining{tpm} -7"),
            "warmroute_agent_tenant_token_share{tenant=\"a\"} 0.75".to_owned(),
            "warmroute_agent_tenant_token_share{tenant=\"b\"} 0.25".to_owned(),
        ];
        assert_eq!(samples, expected);
    }
}
