//! The self-contained page with the plots.

use super::plot::{Series, bars, distribution, duration};
use super::{CaseReport, Report, Side, ratio};

/// The style of a page with plots.
pub const STYLE: &str = "
:root{color-scheme:light dark;--back:#fcfcfb;--text:#1d2327;--soft:#667078;--line:#dfe3e6;--a:#c2571a;--b:#1f6fd6;--c:#2f8f4e;--d:#8a4fb5;--e:#9a7b00}
@media(prefers-color-scheme:dark){:root{--back:#14181b;--text:#e6e9eb;--soft:#98a2aa;--line:#2c343a;--a:#f08a4b;--b:#6aa9ff;--c:#6cc98a;--d:#c79bea;--e:#d9b93b}}
body{background:var(--back);color:var(--text);font:16px/1.5 system-ui,sans-serif;max-width:1180px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2.5rem 0 .2rem}p{margin:.2rem 0 .8rem;max-width:75ch}
.plots{display:flex;flex-wrap:wrap;gap:1rem}.plots svg{flex:1 1 420px;max-width:570px;width:100%}
.key span{margin-right:1.2rem}.key i{display:inline-block;width:.9em;height:.9em;border-radius:2px;margin-right:.4em;vertical-align:-.1em}
i.a{background:var(--a)}i.b{background:var(--b)}i.c{background:var(--c)}i.d{background:var(--d)}i.e{background:var(--e)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.5rem 0 1rem}
th,td{padding:.15rem .8rem;text-align:right;border-bottom:1px solid var(--line)}th{font-weight:500;color:var(--soft)}
th:first-child,td:first-child{text-align:left;padding-left:0}.wide{overflow-x:auto}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}svg .mid{text-anchor:middle}svg .end{text-anchor:end}
.grid,.tick,.axis{stroke:var(--line)}.tick,.axis{stroke:var(--soft)}
.curve{fill:none;stroke-width:2.2}.curve.a{stroke:var(--a)}.curve.b{stroke:var(--b)}.curve.c{stroke:var(--c)}
.curve.d{stroke:var(--d)}.curve.e{stroke:var(--e)}
rect.a,circle.a{fill:var(--a)}rect.b,circle.b{fill:var(--b)}rect.c,circle.c{fill:var(--c)}
rect.d,circle.d{fill:var(--d)}rect.e,circle.e{fill:var(--e)}
footer{color:var(--soft);margin:3rem 0 1rem}
";

/// The whole page: style and plots inside, nothing loaded from elsewhere.
#[must_use]
pub fn page(report: &Report) -> String {
    let cases: String = report.cases.iter().map(section).collect();
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Warmroute: round robin and Warmroute side by side</title><style>{STYLE}</style></head><body>\
         <h1>The same conversations, served twice</h1>\
         <p>Both sides ran on one Envoy, against the same simulated engines, with the same requests in the same \
         order. The engines were cold before each side.</p>\
         <p class=\"key\"><span><i class=\"a\"></i>round robin</span><span><i class=\"b\"></i>Warmroute</span></p>\
         {cases}<footer>Distributions leave out the first turn, which finds every cache cold. “Of ideal” compares \
         with an infinite cache shared by all replicas. The engines are simulated: compare the two sides, not \
         the milliseconds with those of a GPU.</footer></body></html>\n"
    )
}

fn section(case: &CaseReport) -> String {
    let (rr, wr) = (&case.round_robin, &case.warmroute);
    let names: Vec<String> = rr.per_endpoint.keys().map(|endpoint| escape(endpoint)).collect();
    let loads = |side: &Side| -> Vec<f64> {
        rr.per_endpoint
            .keys()
            .map(|name| side.per_endpoint.get(name).copied().unwrap_or(0) as f64)
            .collect()
    };
    let (rr_loads, wr_loads) = (loads(rr), loads(wr));
    let pair = |a, b| {
        [
            Series { class: "a", label: "round robin", values: a },
            Series { class: "b", label: "Warmroute", values: b },
        ]
    };
    let times =
        distribution("Time to first token, both sides", &pair(&rr.samples_ms, &wr.samples_ms));
    let caption = "requests that each endpoint answered";
    let load =
        bars("Requests per endpoint, both sides", caption, &names, &pair(&rr_loads, &wr_loads));
    let scale = if case.time_scale > 1.0 {
        format!(" The engines ran {} times faster than real.", case.time_scale)
    } else {
        String::new()
    };
    format!(
        "<section><h2>{}</h2><p>{} {} requests in flight; working set {:.1} times all KV memory.{scale}</p>\
         <div class=\"wide\"><table><tr><th></th><th>requests</th><th>errors</th><th>p50</th><th>p90</th><th>p99</th>\
         <th>mean</th><th>first turn p50</th><th>cached tokens</th><th>of ideal</th><th>busiest / mean</th></tr>\
         {}{}<tr><td>lower by</td><td></td><td></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td></td><td></td>\
         <td></td><td></td></tr></table></div><div class=\"plots\">{times}{load}</div></section>",
        escape(&case.name),
        escape(&case.what),
        case.in_flight,
        case.working_set_over_kv,
        row("round robin", rr, case.of_ideal(rr)),
        row("Warmroute", wr, case.of_ideal(wr)),
        ratio(rr.ttft_ms.p50, wr.ttft_ms.p50),
        ratio(rr.ttft_ms.p90, wr.ttft_ms.p90),
        ratio(rr.ttft_ms.p99, wr.ttft_ms.p99),
        ratio(rr.ttft_ms.mean, wr.ttft_ms.mean),
    )
}

fn row(name: &str, side: &Side, of_ideal: f64) -> String {
    let time = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), duration);
    let times = [
        side.ttft_ms.p50,
        side.ttft_ms.p90,
        side.ttft_ms.p99,
        side.ttft_ms.mean,
        side.turn0_ttft_ms.p50,
    ]
    .map(|value| format!("<td>{}</td>", time(value)))
    .concat();
    format!(
        "<tr><td>{name}</td><td>{}</td><td>{}</td>{times}<td>{:.1}%</td><td>{:.1}%</td><td>{:.2}</td></tr>",
        side.requests,
        side.errors,
        side.cached_ratio() * 100.0,
        of_ideal * 100.0,
        side.imbalance()
    )
}

/// Text as HTML has it, also within quotes.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::figures::tests::sample;
    use std::net::SocketAddr;
    use std::time::Duration;

    pub(crate) fn report() -> Report {
        let endpoints = [9_101, 9_102].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let side = |milliseconds| {
            let samples = [sample(0, 1_500, 9_101), sample(1, milliseconds, 9_102)];
            Side::of(&samples, &endpoints, Duration::from_secs(3))
        };
        let case = CaseReport {
            name: "a <case>".to_owned(),
            what: "Shows something.".to_owned(),
            round_robin: side(1_200),
            warmroute: side(60),
            ideal_cached_tokens: 100,
            time_scale: 1.0,
            in_flight: 16,
            working_set_over_kv: 0.8,
        };
        Report { cases: vec![case] }
    }

    #[test]
    fn the_page_holds_everything_itself() {
        let page = page(&report());
        for outside in ["http:", "https:", "src=", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.contains("a &lt;case&gt;") && !page.contains("<case>"));
        assert!(page.contains("20.0x"));
    }

    #[test]
    fn the_json_has_the_agreed_fields() {
        let dir = tempfile::tempdir().unwrap();
        report().write(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("demo.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let case = &json["cases"][0];
        assert_eq!(case["ideal_cached_tokens"], 100);
        for side in ["round_robin", "warmroute"] {
            for field in ["requests", "errors", "cached_tokens", "prompt_tokens"] {
                assert!(case[side][field].is_u64(), "{side}.{field}");
            }
            for times in ["ttft_ms", "turn0_ttft_ms"] {
                for field in ["p50", "p90", "p99", "mean"] {
                    assert!(case[side][times][field].is_number(), "{side}.{times}.{field}");
                }
            }
            assert_eq!(case[side]["per_endpoint"]["127.0.0.1:9101"], 1);
        }
    }
}
