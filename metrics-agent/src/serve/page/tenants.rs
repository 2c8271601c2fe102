//! The page's tables of tenants. Each is there only if it has a row.

use super::escape;
use crate::ledger::recent::{Band, Waits};
use crate::ledger::tally::{Pair, Sums};
use crate::metrics::tenants::{levels, priority};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use warmroute_shared_state::tenant_status::{BudgetStatus, FlowStatus, Level};

/// What tenants had.
pub(super) fn tokens(out: &mut String, sums: &[(Pair, Sums)]) {
    let columns =
        ["tenant", "model", "requests", "refused", "input", "cached", "output", "charged", "share"];
    let all: u64 = sums.iter().fold(0, |all, (_, sums)| all.saturating_add(sums.tokens()));
    let rows = sums.iter().map(|((tenant, model), sums)| {
        let share = sums.tokens() as f64 / all.max(1) as f64;
        let Sums { requests, rejected, input, cached, output, charged } = sums;
        let numbers = [requests, rejected, input, cached, output, charged].map(u64::to_string);
        let names = [escape(tenant), escape(model)];
        (names.to_vec(), numbers.into_iter().chain([percent(share)]).collect())
    });
    table(out, "Tokens since the agent's start", &columns, rows);
}

/// Each tenant's part of the last minute's tokens.
pub(super) fn shares<'a>(
    out: &mut String,
    tokens: &BTreeMap<String, u64>,
    shares: impl Iterator<Item = (&'a str, f64)>,
) {
    let rows = shares.map(|(tenant, share)| {
        let tokens = tokens.get(tenant).copied().unwrap_or_default();
        (vec![escape(tenant)], vec![tokens.to_string(), percent(share)])
    });
    table(out, "Tokens of the last minute", &["tenant", "tokens", "share"], rows);
}

/// What is left of budgets.
pub(super) fn budgets(out: &mut String, budgets: &[BudgetStatus]) {
    let columns = ["tenant", "model", "rpm", "tpm", "concurrency", "tokens in flight"];
    let rows = budgets.iter().map(|budget| {
        let level = |(_, level): (_, Option<_>)| {
            let text = |level: Level| format!("{} of {}", level.remaining, level.limit);
            level.map_or("–".to_owned(), text)
        };
        let names = vec![escape(&budget.tenant), escape(&budget.model)];
        (names, levels(budget).map(level).to_vec())
    });
    table(out, "Budgets: what is left", &columns, rows);
}

/// Who waits and runs where.
pub(super) fn queues(out: &mut String, flows: &[FlowStatus]) {
    let columns = ["pool", "priority", "fairness ID", "waiting", "bytes", "in flight", "tokens"];
    let rows = flows.iter().map(|flow| {
        let names = [escape(&flow.pool), priority(flow.priority), escape(&flow.fairness_id)];
        let numbers = [flow.waiting, flow.waiting_bytes, flow.in_flight, flow.in_flight_tokens];
        (names.to_vec(), numbers.map(|number| number.to_string()).to_vec())
    });
    table(out, "Queues", &columns, rows);
}

/// How long requests waited in each band.
pub(super) fn waits(out: &mut String, waits: &BTreeMap<Band, Waits>) {
    let columns = ["pool", "priority", "requests", "p50", "p95", "p99"];
    let rows = waits.iter().map(|((pool, band), waits)| {
        let percentiles = [50, 95, 99].map(|percent| format!("{} ms", waits.percentile(percent)));
        let names = vec![escape(pool), priority(*band)];
        (names, [waits.count().to_string()].into_iter().chain(percentiles).collect())
    });
    table(out, "Waits of the last minute", &columns, rows);
}

/// What was dropped, and why.
pub(super) fn drops(out: &mut String, drops: &BTreeMap<(String, String), u64>) {
    let rows = drops.iter().map(|((tenant, reason), count)| {
        (vec![escape(tenant), escape(reason)], vec![count.to_string()])
    });
    table(out, "Drops since the agent's start", &["tenant", "reason", "requests"], rows);
}

/// A table of names, which are escaped, and numbers.
fn table(
    out: &mut String,
    title: &str,
    columns: &[&str],
    rows: impl Iterator<Item = (Vec<String>, Vec<String>)>,
) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    // Writing to a string cannot fail.
    let _ = write!(out, "<h2>{title}</h2><table><tr><th>{}", columns.join("<th>"));
    for (names, numbers) in rows {
        let _ = write!(out, "<tr><td>{}", names.join("<td>"));
        for number in numbers {
            let _ = write!(out, "<td class=n>{number}");
        }
    }
    out.push_str("</table>");
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}
