//! A report for people, for spreadsheets, for programs.

use super::query::{Group, Report};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use warmroute_shared_state::usage_record::EndCause;

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Columns for people, with a last row for all.
    Table,
    /// RFC 4180, without a row for all.
    Csv,
    /// One object with `rows` and `total`. Cost is a text, so that no reader rounds it.
    Json,
}

impl Report {
    /// The report as text that ends with a line's end.
    #[must_use]
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Table => self.table(),
            Format::Csv => self.csv(),
            Format::Json => format!("{:#}\n", self.json()),
        }
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let object = |names: &[String], group: &Group| {
            let mut object = Map::new();
            for (by, name) in self.by.iter().zip(names) {
                object.insert(by.name().to_owned(), name.as_str().into());
            }
            for (name, value) in numbers(group) {
                object.insert(name.to_owned(), value.into());
            }
            if let Some(cost) = group.cost {
                object.insert("cost".to_owned(), cost.to_string().into());
            }
            Value::Object(object)
        };
        let rows: Vec<_> = self.rows.iter().map(|(names, group)| object(names, group)).collect();
        let mut whole = json!({ "rows": rows, "total": object(&[], &self.total) });
        if let (Some(currency), Some(whole)) = (&self.currency, whole.as_object_mut()) {
            whole.insert("currency".to_owned(), currency.as_str().into());
        }
        whole
    }

    fn heading(&self) -> Vec<String> {
        let names = self.by.iter().map(|by| by.name().to_owned());
        let sums = numbers(&self.total).map(|(name, _)| name.to_owned());
        names.chain(sums).chain(self.currency.iter().map(|_| "cost".to_owned())).collect()
    }

    fn cells(&self, names: &[String], group: &Group) -> Vec<String> {
        let padding = self.by.len().saturating_sub(names.len());
        let names = names.iter().cloned().chain((0..padding).map(|_| String::new()));
        let sums = numbers(group).map(|(_, value)| value.to_string());
        names.chain(sums).chain(group.cost.map(|cost| cost.to_string())).collect()
    }

    fn csv(&self) -> String {
        let rows = self.rows.iter().map(|(names, group)| self.cells(names, group));
        let lines = std::iter::once(self.heading()).chain(rows);
        lines
            .map(|cells| {
                cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",") + "\r\n"
            })
            .collect()
    }

    fn table(&self) -> String {
        let mut lines = vec![self.heading()];
        lines.extend(self.rows.iter().map(|(names, group)| {
            // Clients choose some names; they must not move a terminal's cursor.
            let names: Vec<_> = names.iter().map(|name| name.escape_debug().to_string()).collect();
            self.cells(&names, group)
        }));
        if !self.by.is_empty() {
            lines.push(self.cells(&["total".to_owned()], &self.total));
        } else if self.rows.is_empty() {
            lines.push(self.cells(&[], &self.total));
        }
        let width = |column: usize| {
            lines
                .iter()
                .filter_map(|cells| cells.get(column))
                .map(|cell| cell.chars().count())
                .max()
        };
        let widths: Vec<_> = (0..self.heading().len()).map(|at| width(at).unwrap_or(0)).collect();
        let mut text = String::new();
        for cells in &lines {
            let mut line = String::new();
            for (at, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let gap = if at == 0 { "" } else { "  " };
                // Writing to a string cannot fail.
                let _ = if at < self.by.len() {
                    write!(line, "{gap}{cell:<width$}")
                } else {
                    write!(line, "{gap}{cell:>width$}")
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        if let Some(currency) = self.currency.as_deref().filter(|currency| !currency.is_empty()) {
            let _ = writeln!(text, "cost in {currency}");
        }
        text
    }
}

/// Names and values of a group's sums.
fn numbers(group: &Group) -> impl Iterator<Item = (&'static str, u64)> {
    let sums = [
        ("requests", group.requests),
        ("input", group.input),
        ("cached", group.cached),
        ("output", group.output),
        ("reasoning", group.reasoning),
        ("charged", group.charged),
        ("estimated", group.estimated),
    ];
    let causes = EndCause::ALL.map(EndCause::as_str).into_iter().zip(group.causes);
    sums.into_iter().chain(causes)
}

/// A cell of a CSV file. What a spreadsheet would take for a formula is made a text.
fn quoted(cell: &str) -> String {
    let formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let cell = if formula { format!("'{cell}") } else { cell.to_owned() };
    if cell.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}
