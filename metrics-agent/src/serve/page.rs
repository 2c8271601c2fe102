//! What people look at: endpoints and tenants as a small HTML page, the endpoints as JSON, too.

mod tenants;

use super::Server;
use crate::app::now_ms;
use crate::board::Entry;
use crate::ledger::recent::Window;
use crate::ledger::tally::{Pair, Sums};
use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;
use warmroute_shared_state::tenant_status::{BudgetStatus, FlowStatus};

const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8>\
<meta http-equiv=refresh content=2><title>Warmroute agent</title><style>\
body{font:15px system-ui,sans-serif;margin:2em;color:#222}table{border-collapse:collapse}\
td,th{padding:.3em .9em;text-align:left;border-bottom:1px solid #ddd}td.n{text-align:right}\
.out{color:#b00}.pending{color:#a60}.ready{color:#070}</style><h1>Warmroute agent</h1>";

/// `GET /v1/endpoints`.
pub async fn endpoints(State(server): State<Server>) -> Response {
    let now = Instant::now();
    let entries: Vec<_> =
        server.shared.board.sorted().iter().map(|entry| entry.to_json(now)).collect();
    let position = server.shared.publisher.position();
    let body = json!({
        "ready": server.shared.publisher.is_ready(),
        "epoch": position.epoch.to_string(),
        "seq": position.seq,
        "config_age_s": server.shared.config_age(now).as_secs(),
        "endpoints": entries,
    });
    ([(header::CONTENT_TYPE, "application/json")], format!("{body:#}\n")).into_response()
}

/// `GET /`.
pub async fn html(State(server): State<Server>) -> Html<String> {
    let now = Instant::now();
    let counted = server.ledger.counted();
    let (budgets, flows) = server.tenants.sum(now);
    let page = Page {
        entries: server.shared.board.sorted(),
        sums: counted.tally.sums(),
        drops: counted.drops.counts(),
        window: counted.recent.window(now_ms()),
        budgets,
        flows,
    };
    Html(page.render(now))
}

/// What the page shows.
#[derive(Default)]
struct Page {
    entries: Vec<Entry>,
    sums: Vec<(Pair, Sums)>,
    drops: BTreeMap<(String, String), u64>,
    window: Window,
    budgets: Vec<BudgetStatus>,
    flows: Vec<FlowStatus>,
}

impl Page {
    fn render(&self, now: Instant) -> String {
        let mut out = HEAD.to_owned();
        endpoint_table(&mut out, &self.entries, now);
        tenants::tokens(&mut out, &self.sums);
        tenants::shares(&mut out, &self.window.tokens, self.window.shares());
        tenants::budgets(&mut out, &self.budgets);
        tenants::queues(&mut out, &self.flows);
        tenants::waits(&mut out, &self.window.waits);
        tenants::drops(&mut out, &self.drops);
        out.push_str(
            "<p><a href=/v1/endpoints>endpoints as JSON</a> · <a href=/v1/usage>usage as JSON</a> · \
             <a href=/metrics>metrics</a> · <a href=/readyz>ready?</a></html>",
        );
        out
    }
}

fn endpoint_table(out: &mut String, entries: &[Entry], now: Instant) {
    out.push_str(
        "<table><tr><th>endpoint<th>address<th>state<th>waiting<th>running<th>KV used<th>KV tokens\
         <th>age",
    );
    for entry in entries {
        let measured = entry.health.as_ref().and_then(|health| health.measured());
        let load = measured.map(|m| m.load).unwrap_or_default();
        let number = |value: Option<f32>| value.map_or("–".to_owned(), |v| v.to_string());
        let share = load.kv_usage.map_or("–".to_owned(), |v| format!("{:.1}%", v * 100.0));
        let tokens = entry.record().and_then(|record| record.kv_tokens());
        let age = measured.map(|m| now.saturating_duration_since(m.at).as_millis());
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "<tr><td>{}<td>{}<td class={state}>{state}<td class=n>{}<td class=n>{}<td class=n>{}\
             <td class=n>{}<td class=n>{}",
            escape(&entry.spec.full_name()),
            entry.spec.address,
            number(load.waiting),
            number(load.running),
            share,
            tokens.map_or("–".to_owned(), |tokens| tokens.to_string()),
            age.map_or("–".to_owned(), |age| format!("{age} ms")),
            state = entry.state(),
        );
    }
    out.push_str("</table>");
}

fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file_discovery::EndpointSpec;
    use crate::ledger::recent::Recent;
    use crate::ledger::tests::record;
    use warmroute_shared_state::tenant_status::Level;
    use warmroute_shared_state::usage_record::UsageRecord;

    #[test]
    fn a_name_is_shown_and_not_run() {
        let spec = EndpointSpec {
            namespace: "default".into(),
            name: "<script>".into(),
            address: ([127, 0, 0, 1], 80).into(),
            labels: std::collections::BTreeMap::new(),
            pools: Vec::new(),
        };
        let entries = vec![Entry { spec, health: None, announced: false }];
        let page = Page { entries, ..Page::default() }.render(Instant::now());
        assert!(page.contains("default/&lt;script&gt;") && !page.contains("<script>"));
        assert!(page.contains("class=pending"));
    }

    #[test]
    fn tenants_are_shown_and_what_there_is_not_is_left_out() {
        let of = |input, output| Sums { requests: 1, input, output, ..Sums::default() };
        let name = |tenant: &str| (tenant.to_owned(), "<m>".to_owned());
        let mut page = Page {
            sums: vec![(name("a"), of(60, 15)), (name("b"), of(20, 5))],
            drops: BTreeMap::from([(("<t>".to_owned(), "budget".to_owned()), 3)]),
            budgets: vec![BudgetStatus {
                tenant: "<t>".into(),
                model: "*".into(),
                tpm: Some(Level { limit: 100, remaining: -5 }),
                ..BudgetStatus::default()
            }],
            flows: vec![FlowStatus {
                priority: Some(7),
                fairness_id: "<f>".into(),
                waiting: 2,
                waiting_bytes: 300,
                in_flight: 4,
                in_flight_tokens: 50,
                ..FlowStatus::default()
            }],
            ..Page::default()
        };
        let recent = Recent::default();
        recent.add(&UsageRecord { tenant: "<t>".into(), ..record(1) }, 0);
        page.window = recent.window(0);
        let html = page.render(Instant::now());
        let rows = [
            "<tr><td>a<td>&lt;m&gt;<td class=n>1<td class=n>0<td class=n>60<td class=n>0<td class=n>15\
             <td class=n>0<td class=n>75.0%<tr><td>b",
            "<tr><td>&lt;t&gt;<td class=n>3301<td class=n>100.0%</table>",
            "<tr><td>&lt;t&gt;<td>*<td class=n>–<td class=n>-5 of 100<td class=n>–<td class=n>–</table>",
            "<tr><td><td>7<td>&lt;f&gt;<td class=n>2<td class=n>300<td class=n>4<td class=n>50</table>",
            "<tr><td>llama<td>100<td class=n>1<td class=n>12 ms<td class=n>12 ms<td class=n>12 ms</table>",
            "<tr><td>&lt;t&gt;<td>budget<td class=n>3</table>",
        ];
        for row in rows {
            assert!(html.contains(row), "{row}\n{html}");
        }
        assert_eq!(Page::default().render(Instant::now()).matches("<h2>").count(), 0);
    }
}
