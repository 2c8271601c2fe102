//! The table on the terminal.

use std::fmt::Write;

use super::{CaseReport, Quantiles, Side};

/// `before / after` as `12.3x`, or a dash when one is missing.
#[must_use]
pub fn ratio(before: Option<f64>, after: Option<f64>) -> String {
    match (before, after) {
        (Some(before), Some(after)) if after > 0.0 => format!("{:.1}x", before / after),
        _ => "-".to_owned(),
    }
}

/// The figures of a case for people.
#[must_use]
pub fn table(case: &CaseReport) -> String {
    let (rr, wr) = (&case.round_robin, &case.warmroute);
    let mut out = String::new();
    let mut line =
        |text: &str| writeln!(out, "{}", text.trim_end()).expect("writing to a string cannot fail");
    let scale = if case.time_scale > 1.0 {
        format!("; engines {} times faster than real", case.time_scale)
    } else {
        String::new()
    };
    line(&format!("{}: {}", case.name, case.what));
    line(&format!(
        "{} in flight; working set {:.1} times all KV memory{scale}",
        case.in_flight, case.working_set_over_kv
    ));
    line(&format!(
        "{:<12} {:>5} {:>6} | {:^31} | {:^15} | {:>7} {:>7} | requests per endpoint",
        "", "", "", "TTFT in ms from the 2nd turn on", "first turn", "cached", "of"
    ));
    line(&format!(
        "{:<12} {:>5} {:>6} | {:>7} {:>7} {:>7} {:>7} | {:>7} {:>7} | {:>7} {:>7} | (busiest / mean)",
        "", "n", "errors", "p50", "p90", "p99", "mean", "p50", "p99", "tokens", "ideal"
    ));
    for (name, side) in [("round robin", rr), ("warmroute", wr)] {
        line(&row(name, side, case.of_ideal(side)));
    }
    let gain = |of: fn(&Quantiles) -> Option<f64>| ratio(of(&rr.ttft_ms), of(&wr.ttft_ms));
    line(&format!(
        "{:<12} {:>5} {:>6} | {:>7} {:>7} {:>7} {:>7} |",
        "lower by",
        "",
        "",
        gain(|q| q.p50),
        gain(|q| q.p90),
        gain(|q| q.p99),
        gain(|q| q.mean)
    ));
    out
}

fn row(name: &str, side: &Side, of_ideal: f64) -> String {
    let ms =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    let (later, first) = (&side.ttft_ms, &side.turn0_ttft_ms);
    let loads: Vec<String> = side.per_endpoint.values().map(usize::to_string).collect();
    format!(
        "{:<12} {:>5} {:>6} | {:>7} {:>7} {:>7} {:>7} | {:>7} {:>7} | {:>6.1}% {:>6.1}% | {} ({:.2})",
        name,
        side.requests,
        side.errors,
        ms(later.p50),
        ms(later.p90),
        ms(later.p99),
        ms(later.mean),
        ms(first.p50),
        ms(first.p99),
        side.cached_ratio() * 100.0,
        of_ideal * 100.0,
        loads.join(" "),
        side.imbalance(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::tests::report;

    #[test]
    fn the_table_shows_both_sides_and_the_gain() {
        let text = table(&report().cases[0]);
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("round robin").contains("1200.0"), "{text}");
        assert!(row("warmroute").contains("60.0"), "{text}");
        assert!(row("lower by").contains("20.0x"), "{text}");
        let columns: Vec<usize> = ["round robin", "warmroute", "lower by"]
            .map(|name| row(name).find('|').unwrap())
            .into();
        assert!(columns.iter().all(|column| *column == columns[0]), "{text}");
    }

    #[test]
    fn a_ratio_needs_both_figures() {
        assert_eq!(ratio(Some(10.0), Some(4.0)), "2.5x");
        assert_eq!(ratio(None, Some(4.0)), "-");
        assert_eq!(ratio(Some(1.0), Some(0.0)), "-");
    }
}
