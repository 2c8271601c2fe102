//! What people look at: the endpoints as a small HTML page and as JSON.

use super::Server;
use crate::board::Entry;
use crate::ledger::tally::{Pair, Sums};
use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};
use serde_json::json;
use std::fmt::Write as _;
use std::time::Instant;

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
    let sums = server.ledger.counted().tally.sums();
    Html(render(&server.shared.board.sorted(), &sums, Instant::now()))
}

fn render(entries: &[Entry], sums: &[(Pair, Sums)], now: Instant) -> String {
    let mut out = HEAD.to_owned();
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
    usage(&mut out, sums);
    out.push_str(
        "<p><a href=/v1/endpoints>endpoints as JSON</a> · <a href=/v1/usage>usage as JSON</a> · \
         <a href=/metrics>metrics</a> · <a href=/readyz>ready?</a></html>",
    );
    out
}

/// What tenants had; nothing until there is something.
fn usage(out: &mut String, sums: &[(Pair, Sums)]) {
    if sums.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Tokens since the agent's start</h2><table><tr><th>tenant<th>model<th>requests\
         <th>refused<th>input<th>cached<th>output<th>charged<th>share",
    );
    let all: u64 = sums.iter().fold(0, |all, (_, sums)| all.saturating_add(sums.tokens()));
    for ((tenant, model), sums) in sums {
        let share = sums.tokens() as f64 / all.max(1) as f64 * 100.0;
        let _ = write!(
            out,
            "<tr><td>{}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}\
             <td class=n>{}<td class=n>{}<td class=n>{share:.1}%",
            escape(tenant),
            escape(model),
            sums.requests,
            sums.rejected,
            sums.input,
            sums.cached,
            sums.output,
            sums.charged,
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

    #[test]
    fn a_name_is_shown_and_not_run() {
        let spec = EndpointSpec {
            namespace: "default".into(),
            name: "<script>".into(),
            address: ([127, 0, 0, 1], 80).into(),
            labels: std::collections::BTreeMap::new(),
            pools: Vec::new(),
        };
        let page = render(&[Entry { spec, health: None, announced: false }], &[], Instant::now());
        assert!(page.contains("default/&lt;script&gt;") && !page.contains("<script>"));
        assert!(page.contains("class=pending"));
    }

    #[test]
    fn tenants_are_shown_with_their_share() {
        let of = |input, output| Sums { requests: 1, input, output, ..Sums::default() };
        let name = |tenant: &str| (tenant.to_owned(), "<m>".to_owned());
        let page = render(&[], &[(name("a"), of(60, 15)), (name("b"), of(20, 5))], Instant::now());
        assert!(page.contains("<tr><td>a<td>&lt;m&gt;") && page.contains("75.0%<tr><td>b"));
        assert!(!render(&[], &[], Instant::now()).contains("Tokens"));
    }
}
