//! The self-contained page with the plots.

use super::{Bar, CaseReport, Report, Row, Target};
use crate::report::plot::{Series, bars, distribution, duration};
use crate::report::{STYLE, escape};

/// The whole page: style and plots inside, nothing loaded from elsewhere.
#[must_use]
pub fn page(report: &Report) -> String {
    let cases: String = report.cases.iter().map(|case| section(report, case)).collect();
    let key: String = Target::ALL
        .iter()
        .map(|target| format!("<span><i class=\"{}\"></i>{}</span>", class(*target), target.name()))
        .collect();
    let bars: String = report.bars.iter().map(bar_row).collect();
    let ideal = report.ideal_cached_tokens as f64 / (report.prompt_tokens as f64).max(1.0);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Warmroute: a trace replayed</title><style>{STYLE}</style></head><body>\
         <h1>{} replayed</h1>\
         <p>{} requests of {} conversations, {} prompt tokens, on {} simulated engines through a real Envoy. An \
         infinite cache that all engines share would have held {:.1}% of the prompt tokens, each prompt finding all \
         before it. Arrivals and engines {} times faster than real; times are as measured. Each target started \
         with cold engines.</p>\
         <p class=\"key\">{key}</p><div class=\"wide\"><table><tr><th>to reach, memory ample</th><th></th><th>bar</th>\
         <th>measured</th><th></th></tr>{bars}</table></div>{cases}<footer>The engines are simulated: compare the \
         targets, not the milliseconds with those of a GPU.</footer></body></html>\n",
        escape(&report.trace),
        report.requests,
        report.sessions,
        report.prompt_tokens,
        report.replicas,
        ideal * 100.0,
        report.time_scale,
    )
}

fn class(target: Target) -> &'static str {
    match target {
        Target::RoundRobin => "a",
        Target::LeastRequest => "c",
        Target::SessionHash => "d",
        Target::Warmroute => "b",
        Target::WarmroutePrecise => "e",
    }
}

fn bar_row(bar: &Bar) -> String {
    let verdict = if bar.met { "met" } else { "missed" };
    let sign = if bar.at_most { "≤" } else { "≥" };
    format!(
        "<tr><td>{}</td><td>{}</td><td>{sign} {}</td><td>{}</td><td>{verdict}</td></tr>",
        bar.target.name(),
        bar.what,
        bar.bar,
        bar.value
    )
}

fn section(report: &Report, case: &CaseReport) -> String {
    let rows: String = case.rows.iter().map(row).collect();
    let times: Vec<Series<'_>> = case
        .rows
        .iter()
        .map(|row| {
            let (class, label) = (class(row.target), row.target.name());
            Series { class, label, values: &row.samples_ms }
        })
        .collect();
    let times = distribution("Time to first token", &times);
    let side_by_side = |label: &str, caption: &str, of: fn(&Row) -> f64| {
        let values: Vec<[f64; 1]> = case.rows.iter().map(|row| [of(row)]).collect();
        let series: Vec<Series<'_>> = case
            .rows
            .iter()
            .zip(&values)
            .map(|(row, values)| {
                let (class, label) = (class(row.target), row.target.name());
                Series { class, label, values }
            })
            .collect();
        bars(label, caption, &[String::new()], &series)
    };
    let percent = |row: &Row| (row.of_ideal * 1e3).round() / 10.0;
    let hits = side_by_side("Share of the ideal hits", "% of the ideal hits", percent);
    let hundredths = |row: &Row| (row.max_over_mean * 1e2).round() / 1e2;
    let balance =
        side_by_side("Balance", "prompt tokens: busiest engine over the mean", hundredths);
    let memory = (case.kv_tokens_per_replica * report.replicas) as f64;
    format!(
        "<section><h2>KV memory: {}</h2><p>{} tokens in each engine, {:.2} times the working set in all.</p>\
         <div class=\"wide\"><table><tr><th></th><th>requests</th><th>errors</th><th>cached tokens</th>\
         <th>of ideal</th><th>max / mean prompt tokens</th><th>TTFT p50</th><th>p90</th><th>p99</th><th>mean</th>\
         <th>sent late, p99</th></tr>{rows}</table></div>\
         <div class=\"plots\">{times}{hits}{balance}</div></section>",
        case.memory.name(),
        case.kv_tokens_per_replica,
        memory / (report.working_set_tokens as f64).max(1.0),
    )
}

fn row(row: &Row) -> String {
    let time = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), duration);
    let quantiles = row.ttft_ms;
    let times = [quantiles.p50, quantiles.p90, quantiles.p99, quantiles.mean, row.late_ms.p99]
        .map(|value| format!("<td>{}</td>", time(value)))
        .concat();
    format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1}%</td><td>{:.1}%</td><td>{:.2}</td>{times}</tr>",
        row.target.name(),
        row.requests,
        row.errors,
        row.cached_tokens as f64 / (row.prompt_tokens as f64).max(1.0) * 100.0,
        row.of_ideal * 100.0,
        row.max_over_mean,
    )
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::report;
    use super::*;

    #[test]
    fn the_page_holds_everything_itself() {
        let page = page(&report());
        for outside in ["http:", "https:", "src=", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<svg").count(), 3);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.contains("a &lt;trace&gt;") && !page.contains("<trace>"));
        assert!(page.contains("<td>0.95</td><td>met</td>"), "{page}");
    }

    #[test]
    fn every_target_has_a_colour_of_its_own() {
        let classes = std::collections::BTreeSet::from(Target::ALL.map(class));
        assert_eq!(classes.len(), Target::ALL.len());
        for class in classes {
            for rule in
                [format!("i.{class}{{"), format!(".curve.{class}{{"), format!("rect.{class},")]
            {
                assert!(STYLE.contains(&rule), "{rule}");
            }
        }
    }
}
