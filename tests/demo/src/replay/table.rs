//! The tables on the terminal.

use std::fmt::Write as _;

use super::{Bar, CaseReport, Report};

/// One case's figures for people; `report` says what it was a replay of.
#[must_use]
pub fn table(report: &Report, case: &CaseReport) -> String {
    let mut out = String::new();
    let memory = case.kv_tokens_per_replica * report.replicas;
    line(
        &mut out,
        format_args!(
            "{}, {}: {} requests, {} engines; all KV memory {:.2} times the working set; engines and \
             arrivals {} times faster than real",
            report.trace,
            case.memory.name(),
            report.requests,
            report.replicas,
            memory as f64 / (report.working_set_tokens as f64).max(1.0),
            report.time_scale,
        ),
    );
    line(
        &mut out,
        format_args!(
            "{:<18} {:>6} {:>6} | {:>7} {:>8} | {:>11} | {:>9} {:>9} | {:>9}",
            "", "n", "errors", "cached", "of ideal", "max / mean", "TTFT p50", "p99", "late p99"
        ),
    );
    for row in &case.rows {
        let ms =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.1} ms"));
        let cached = row.cached_tokens as f64 / (row.prompt_tokens as f64).max(1.0);
        line(
            &mut out,
            format_args!(
                "{:<18} {:>6} {:>6} | {:>6.1}% {:>7.1}% | {:>11.2} | {:>9} {:>9} | {:>9}",
                row.target.name(),
                row.requests,
                row.errors,
                cached * 100.0,
                row.of_ideal * 100.0,
                row.max_over_mean,
                ms(row.ttft_ms.p50),
                ms(row.ttft_ms.p99),
                ms(row.late_ms.p99),
            ),
        );
    }
    out
}

/// What was to be reached, and was or was not.
#[must_use]
pub fn bar_table(bars: &[Bar]) -> String {
    let mut out = String::new();
    for bar in bars {
        let sign = if bar.at_most { "<=" } else { ">=" };
        let verdict = if bar.met { "met" } else { "MISSED" };
        line(
            &mut out,
            format_args!(
                "{:<18} {:<30} {sign} {:>5.2}  {:>6.3}  {verdict}",
                bar.target.name(),
                bar.what,
                bar.bar,
                bar.value
            ),
        );
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::report;
    use super::*;

    #[test]
    fn a_row_for_each_target_in_columns() {
        let report = report();
        let text = table(&report, &report.cases[0]);
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("warmroute").contains(" 95.0%"), "{text}");
        assert!(row("round-robin").contains("80.0 ms"), "{text}");
        let columns = |line: &str| line.match_indices('|').map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(columns(&row("warmroute")), columns(&row("round-robin")));
    }

    #[test]
    fn bars_say_whether_they_are_met() {
        let mut bars = report().bars;
        bars[1].met = false;
        let text = bar_table(&bars);
        let verdicts: Vec<&str> =
            text.lines().filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(verdicts, ["met", "MISSED"], "{text}");
    }
}
