//! What was measured: figures, table, JSON, page.

mod figures;
mod page;
pub mod plot;
mod table;

use std::path::Path;

use serde::Serialize;

pub use figures::{CaseReport, Quantiles, Side, at_rank, percentile};
pub use page::{STYLE, escape, page};
pub use table::{ratio, table};

/// All cases of a run: `demo.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// In the order in which they were run.
    pub cases: Vec<CaseReport>,
}

impl Report {
    /// Writes `demo.json` and `demo.html` into `dir`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, dir: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("demo.json"), serde_json::to_vec_pretty(self)?)?;
        std::fs::write(dir.join("demo.html"), page(self))
    }
}
