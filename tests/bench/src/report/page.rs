//! The page: everything inside, nothing loaded from elsewhere.

use warmroute_demo::report::escape;

use super::Report;
use crate::figures::Row;

const STYLE: &str = "
:root{color-scheme:light dark;--back:#fcfcfb;--text:#1d2327;--soft:#667078;--line:#dfe3e6;--other:#9aa5ad;--ours:#1f6fd6;--bad:#c2571a}
@media(prefers-color-scheme:dark){:root{--back:#14181b;--text:#e6e9eb;--soft:#98a2aa;--line:#2c343a;--other:#5d6870;--ours:#6aa9ff;--bad:#f08a4b}}
body{background:var(--back);color:var(--text);font:16px/1.5 system-ui,sans-serif;max-width:1180px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2.5rem 0 .5rem}p{max-width:75ch}
.plots{display:flex;flex-wrap:wrap;gap:1.5rem}figure{flex:1 1 330px;max-width:380px;margin:0}figcaption{color:var(--soft);font-size:.9rem}
svg{width:100%}svg text{font:12px system-ui,sans-serif;fill:var(--text)}svg .value{fill:var(--soft)}
rect{fill:var(--other)}rect.ours{fill:var(--ours)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}th,td{padding:.15rem .7rem;text-align:right;border-bottom:1px solid var(--line)}
th{font-weight:500;color:var(--soft)}td.name,th.name{text-align:left;padding-left:0}.wide{overflow-x:auto}.missed{color:var(--bad)}
";

const WIDTH: f64 = 380.0;
const NAMES: f64 = 128.0;
const VALUES: f64 = 66.0;
const LINE: f64 = 22.0;

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let machine = &report.machine;
    let mut plots = String::new();
    let mut seen: Vec<(&str, usize, usize, usize)> = Vec::new();
    for row in &report.rows {
        let group = (row.case, row.concurrency, row.endpoints, row.index_entries);
        if !seen.contains(&group) {
            seen.push(group);
        }
    }
    for (case, concurrency, endpoints, index_entries) in seen {
        let rows: Vec<&Row> = report
            .rows
            .iter()
            .filter(|row| {
                (row.case, row.concurrency, row.endpoints, row.index_entries)
                    == (case, concurrency, endpoints, index_entries)
            })
            .collect();
        // What is alone can be compared with nothing.
        if rows.len() < 2 {
            continue;
        }
        plots.push_str(&format!(
            "<h2>{case}, {concurrency} connections</h2><div class=\"plots\">{}{}{}</div>",
            bars("median latency, ms", &rows, |row| row.p50_us / 1e3),
            bars("requests a second", &rows, |row| row.rps),
            bars("CPU a request, ms: the proxy and what is beside it", &rows, |row| {
                (row.cpu_us_per_request + row.helper_cpu_us_per_request) / 1e3
            }),
        ));
    }
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Warmroute: what it costs</title><style>{STYLE}</style></head><body><h1>What it costs</h1>\
         <p>{}, {} cores{}; Envoy {}; vllm-router {}. Medians of {} rounds, in each of which every way had its turn. \
         Compare the ways with each other, not the milliseconds with another machine's.</p>\
         <h2>What was to be reached</h2><div class=\"wide\"><table><tr><th class=\"name\"></th><th>measured</th>\
         <th>over the rounds</th><th>bar</th><th></th></tr>{}</table></div>{plots}</body></html>\n",
        escape(&machine.processor),
        machine.cores,
        if machine.pinned { ", one of them for the proxies" } else { "" },
        escape(&machine.envoy),
        escape(machine.vllm_router.as_deref().unwrap_or("missing")),
        machine.rounds,
        verdicts(report),
    )
}

fn verdicts(report: &Report) -> String {
    let line = |bar: &crate::bars::Bar| {
        format!(
            "<tr><td class=\"name\">{}</td><td>{}</td><td>{}</td><td>{} {:.2}</td><td{}>{}</td></tr>",
            escape(&bar.what),
            bar.measured.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")),
            bar.spread.map_or_else(String::new, |all| format!("{:.2} to {:.2}", all.low, all.high)),
            if bar.at_most { "at most" } else { "at least" },
            bar.bar,
            if bar.met() == Some(true) { "" } else { " class=\"missed\"" },
            bar.verdict(),
        )
    };
    report.bars.iter().map(line).collect()
}

/// A bar for each row.
fn bars(caption: &str, rows: &[&Row], of: fn(&Row) -> f64) -> String {
    let most = rows.iter().map(|row| of(row)).fold(0.0, f64::max).max(1e-9);
    let height = LINE * rows.len() as f64;
    let lines: String = rows
        .iter()
        .enumerate()
        .map(|(index, row)| {
            let (y, value) = (LINE * index as f64, of(row));
            let width = (value / most * (WIDTH - NAMES - VALUES)).max(0.0);
            let class = if row.target.starts_with("warmroute") { " class=\"ours\"" } else { "" };
            format!(
                "<text x=\"0\" y=\"{:.0}\">{}</text><rect{class} x=\"{NAMES}\" y=\"{:.0}\" width=\"{width:.1}\" height=\"14\"/>\
                 <text class=\"value\" x=\"{:.1}\" y=\"{:.0}\">{}</text>",
                y + 15.0,
                row.target,
                y + 4.0,
                NAMES + width + 5.0,
                y + 15.0,
                number(value),
            )
        })
        .collect();
    format!(
        "<figure><figcaption>{caption}</figcaption><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{caption}\">{lines}</svg></figure>"
    )
}

/// Three digits, as far as there are any.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, rows};
    use super::*;
    use crate::extras::Extras;
    use crate::figures::tests::key;
    use crate::figures::{Figures, Key, Turn};
    use crate::targets::Target;

    fn report() -> Report {
        let mut figures = Figures::default();
        for (target, p50_us) in [(Target::Envoy, 500.0), (Target::Warmroute, 1_000.0)] {
            figures.add(key(target), Turn { requests: 1.0, p50_us, ..Turn::default() });
        }
        let mut larger = Figures::default();
        for index_entries in [10_000, 1_000_000] {
            let key = Key { index_entries, ..key(Target::Precise) };
            larger.add(key, Turn { requests: 1.0, ..Turn::default() });
        }
        Report {
            machine: Machine {
                processor: "a <processor>".to_owned(),
                cores: 2,
                pinned: true,
                envoy: "1.40".to_owned(),
                vllm_router: None,
                picker: None,
                rounds: 1,
                load_average: [0.0; 2],
            },
            rows: rows(&figures, &larger),
            noise: Vec::new(),
            bars: crate::bars::bars(&figures, &larger, &Extras::default()),
            extras: Extras::default(),
            missing: Vec::new(),
            seconds: 1.0,
        }
    }

    #[test]
    fn the_page_holds_everything_itself_and_bars_have_their_lengths() {
        let page = page(&report());
        for outside in ["http:", "https:", "src=", "<link", "@import", "url(", "<processor>"] {
            assert!(!page.contains(outside), "{outside}");
        }
        // Three plots of the two base rows.
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(page.contains("x=\"128\" y=\"4\" width=\"93.0\""), "{page}");
        assert!(page.contains("class=\"ours\" x=\"128\" y=\"26\" width=\"186.0\""), "{page}");
    }

    #[test]
    fn the_json_has_the_agreed_fields_with_base_rows_first() {
        let dir = tempfile::tempdir().unwrap();
        report().write(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("bench.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let rows = json["rows"].as_array().unwrap();
        let entries: Vec<_> = rows.iter().map(|row| row["index_entries"].as_u64()).collect();
        assert_eq!(entries, [Some(10_000), Some(10_000), Some(1_000_000)]);
        for field in
            ["concurrency", "endpoints", "p50_us", "p99_us", "rps", "cpu_us_per_request", "rss_mb"]
        {
            assert!(rows[0][field].is_number(), "{field}");
        }
        assert_eq!((&rows[0]["case"], &rows[0]["target"]), (&"chat-0.5k".into(), &"envoy".into()));
    }
}
