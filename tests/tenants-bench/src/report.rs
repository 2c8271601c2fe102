//! The figures of a run: JSON, table, and what misses its bar.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use crate::budget::Budgets;
use crate::faults::Faults;
use crate::interactive::Interactive;
use crate::leaving::Leaving;
use crate::ledger::verdict::Ledger;
use crate::page::page;
use crate::shares::Fairness;

/// What was measured; a part that was not asked for is absent.
#[derive(Debug, Default)]
pub struct Report {
    /// Shares of two tenants under saturation.
    pub fairness: Option<Fairness>,
    /// Many calls on a budget for few.
    pub budgets: Option<Budgets>,
    /// The ledger against the engines' counts.
    pub ledger: Option<Ledger>,
    /// An urgent tenant behind a busy one.
    pub interactive: Option<Interactive>,
    /// Requests that wait and leave.
    pub leaving: Option<Leaving>,
    /// Traps and pushes.
    pub faults: Option<Faults>,
}

impl Report {
    /// The file's contents.
    ///
    /// # Errors
    /// When a figure is none of JSON's.
    pub fn json(&self) -> Result<Value> {
        let mut all = Map::new();
        let mut put = |name: &str, figures: Value| all.insert(name.to_owned(), figures);
        if let Some(fairness) = &self.fairness {
            put("fairness", serde_json::to_value(fairness)?);
        }
        if let Some(ledger) = &self.ledger {
            put("ledger", serde_json::to_value(ledger)?);
        }
        if let Some(budgets) = &self.budgets {
            put("budget_overshoot", json!(budgets.overshoot));
            put("budget_admitted", json!(budgets.admitted));
        }
        if let Some(interactive) = &self.interactive {
            put("interactive_ttft_p99_vs_fifo", serde_json::to_value(interactive.ratios())?);
            put("interactive", serde_json::to_value(interactive)?);
        }
        if let Some(leaving) = &self.leaving {
            put("leaving", serde_json::to_value(leaving)?);
        }
        if let Some(faults) = &self.faults {
            put("faults", serde_json::to_value(faults)?);
        }
        Ok(Value::Object(all))
    }

    /// What is not as it should be.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        [
            self.fairness.as_ref().map(Fairness::missed),
            self.budgets.as_ref().map(Budgets::missed),
            self.ledger.as_ref().map(Ledger::missed),
            self.interactive.as_ref().map(Interactive::missed),
            self.leaving.as_ref().map(Leaving::missed),
            self.faults.as_ref().map(Faults::missed),
        ]
        .into_iter()
        .flatten()
        .flatten()
        .collect()
    }

    /// Writes `tenants.json` and `tenants.html` into `dir`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("no folder {}", dir.display()))?;
        let write = |name: &str, text: String| {
            let path = dir.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write("tenants.json", serde_json::to_string_pretty(&self.json()?)? + "\n")?;
        write("tenants.html", page(self))
    }

    /// What is printed.
    ///
    /// # Errors
    /// When a figure is none of JSON's.
    pub fn table(&self) -> Result<String> {
        let mut out = String::new();
        if let Value::Object(parts) = self.json()? {
            for (part, figures) in parts {
                // Writing to a string cannot fail.
                let _ = match figures {
                    Value::Object(figures) => figures
                        .iter()
                        .try_for_each(|(n, v)| writeln!(out, "  {part:<28} {n:<30} {v}")),
                    figure => writeln!(out, "  {part:<28} {:<30} {figure}", ""),
                };
            }
        }
        for line in self.missed() {
            let _ = writeln!(out, "MISSED: {line}");
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_have_the_agreed_fields_and_load_nothing() {
        let report = Report {
            fairness: Some(Fairness { course: vec![0.7, 0.75], ..Fairness::default() }),
            budgets: Some(Budgets { overshoot: 1, admitted: vec![6] }),
            ledger: Some(Ledger { requests: 7, ..Ledger::default() }),
            interactive: Some(Interactive {
                samples_ms: [vec![1_000.0], vec![10.0], vec![20.0]],
                ..Interactive::default()
            }),
            leaving: Some(Leaving { requests: 9, left_over: 0 }),
            faults: Some(Faults { recovery_ms: vec![("push", Some(9))], ..Faults::default() }),
        };
        let dir = tempfile::tempdir().unwrap();
        report.write(dir.path()).unwrap();
        let read = |name| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let json: Value = serde_json::from_str(&read("tenants.json")).unwrap();
        assert!(json["fairness"]["weights"].is_object());
        assert!(json["fairness"]["token_share"].is_object());
        let counts = [
            "token_difference",
            "lost",
            "duplicated",
            "disconnects",
            "max_disconnect_error_tokens",
        ];
        for field in counts {
            assert_eq!(json["ledger"][field], 0, "{field}");
        }
        assert_eq!(
            (&json["ledger"]["requests"], &json["budget_overshoot"]),
            (&json!(7), &json!(1))
        );
        let ratios = json!({"priority": 0.01, "weighted": 0.02});
        assert_eq!(json["interactive_ttft_p99_vs_fifo"], ratios);
        let page = read("tenants.html");
        for outside in ["http:", "https:", "src=", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<svg").count(), 5);
        assert_eq!(page.matches("</svg>").count(), 5);
        assert!(report.table().unwrap().contains("MISSED"), "the budget's");
    }
}
