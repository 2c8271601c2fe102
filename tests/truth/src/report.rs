//! The JSON file and the table.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::verdict::{Aside, Report};

/// Writes the report as JSON, its folder included.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, report: &Report) -> Result<()> {
    let place = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(place)?;
    }
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    std::fs::write(path, text).with_context(place)
}

/// What is printed.
#[must_use]
pub fn table(report: &Report, aside: &Aside, missed: &[String]) -> String {
    let mut out = String::new();
    let mut row = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {name:<44} {value}");
    };
    let error = report.error_in_blocks;
    row("requests answered", aside.observed.to_string());
    row("prompt tokens that engines held", format!("{:.1} %", aside.held_share * 100.0));
    row("compared: precise, and something to match", report.requests.to_string());
    row("  error in byte blocks, mean / p95", format!("{:.3} / {:.3}", error.mean, error.p95));
    row("  p95 less one engine block", format!("{:.3}", aside.p95_less_engine_block));
    row("  too low by more than two byte blocks", aside.low.to_string());
    row("  false hits", report.false_hits.to_string());
    row("  too high, but the eviction was not out yet", aside.late.to_string());
    row("precise, nothing to match", aside.nothing.to_string());
    let (count, spread) = aside.speculative;
    row(
        "speculative; their error, mean / p95",
        format!("{count}; {:.3} / {:.3}", spread.mean, spread.p95),
    );
    row("approximate", aside.approximate.to_string());
    let delay = report.event_to_visible_ms;
    row("event to visible in ms, p50 / p99", format!("{:.1} / {:.1}", delay.p50, delay.p99));
    row("endpoints that are precise", report.endpoints_precise.to_string());
    for line in missed {
        let _ = writeln!(out, "MISSED: {line}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Delay, Source, Spread};

    #[test]
    fn the_file_holds_the_report_and_the_table_what_was_missed() {
        let report = Report {
            source: Source::Sim,
            requests: 1_234,
            error_in_blocks: Spread { mean: 0.5, p95: 1.25 },
            false_hits: 0,
            event_to_visible_ms: Delay { p50: 2.0, p99: 9.5 },
            endpoints_precise: 4,
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report/truth.json");
        write(&path, &report).unwrap();
        let read: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(read, serde_json::to_value(&report).unwrap());
        let text = table(&report, &Aside::default(), &["the sky is too low".to_owned()]);
        assert!(text.contains("0.500 / 1.250") && text.contains("MISSED: the sky"), "{text}");
    }
}
