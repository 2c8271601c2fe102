//! `bench.json`, the table on the terminal, and the page.

mod page;

use std::path::Path;

use serde::Serialize;

use crate::bars::Bar;
use crate::extras::Extras;
use crate::figures::{Figures, Key, Row, Spread};
use crate::plan::{ENDPOINTS, ENTRIES};
use crate::targets::Target;

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine, and what was compared.
    pub machine: Machine,
    /// Base rows first.
    pub rows: Vec<Row>,
    /// The direct way against itself.
    pub noise: Vec<Noise>,
    /// What was measured once.
    pub extras: Extras,
    /// What was to be reached.
    pub bars: Vec<Bar>,
    /// Base rows that are not there.
    pub missing: Vec<String>,
    /// How long the run took.
    pub seconds: f64,
}

/// Where the figures come from.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processor, as Linux names it.
    pub processor: String,
    /// Cores that the run could use.
    pub cores: usize,
    /// Whether proxies had a core of their own.
    pub pinned: bool,
    /// What `envoy --version` says.
    pub envoy: String,
    /// What `vllm-router --version` says, if it is there.
    pub vllm_router: Option<String>,
    /// What started the endpoint picker, if there was one.
    pub picker: Option<String>,
    /// Rounds of chats and streams.
    pub rounds: usize,
    /// Load average of the last minute, before and after.
    pub load_average: [f64; 2],
}

/// How much the direct way's median differed from itself.
#[derive(Clone, Debug, Serialize)]
pub struct Noise {
    /// The case.
    pub case: &'static str,
    /// Connections.
    pub concurrency: usize,
    /// `direct-again` over `direct`, round by round.
    pub p50_ratio: Spread,
}

/// Base rows, then larger ones; without what was measured for a comparison alone.
#[must_use]
pub fn rows(base: &Figures, larger: &Figures) -> Vec<Row> {
    let again = |row: &Row| (row.endpoints, row.index_entries) == (ENDPOINTS, ENTRIES);
    let base = base.rows().filter(|row| row.target != Target::DirectAgain.name());
    base.chain(larger.rows().filter(|row| !again(row))).collect()
}

/// The noise of each case.
#[must_use]
pub fn noise(figures: &Figures, cases: &[(crate::workload::Case, usize)]) -> Vec<Noise> {
    let of = |(case, connections): &(crate::workload::Case, usize)| {
        let key = |target| Key {
            case: *case,
            connections: *connections,
            target,
            endpoints: ENDPOINTS,
            index_entries: ENTRIES,
        };
        let ratio =
            figures.ratio(key(Target::DirectAgain), key(Target::Direct), |turn| turn.p50_us)?;
        Some(Noise { case: case.name(), concurrency: *connections, p50_ratio: ratio })
    };
    cases.iter().filter_map(of).collect()
}

impl Report {
    /// Writes `bench.json` and `bench.html` into `dir`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, dir: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("bench.json"), serde_json::to_vec_pretty(self)?)?;
        std::fs::write(dir.join("bench.html"), page::page(self))
    }

    /// Everything for the terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = table(&self.rows);
        out.push_str("\nnoise: p50 of direct over direct in the same round\n");
        for noise in &self.noise {
            let Spread { median, low, high } = noise.p50_ratio;
            out.push_str(&format!(
                "  {:<18} {:>4}  {median:.2} ({low:.2} to {high:.2})\n",
                noise.case, noise.concurrency
            ));
        }
        out.push_str(&format!("\n{}\n{}", self.extras.table(), crate::bars::table(&self.bars)));
        for missing in &self.missing {
            out.push_str(&format!("missing row: {missing}\n"));
        }
        out.push_str(&format!("{:.0} s\n", self.seconds));
        out
    }
}

/// Rows for people.
fn table(rows: &[Row]) -> String {
    let mut out = format!(
        "{:<18} {:>5} {:<18} {:>4} {:>8} | {:>9} {:>9} {:>9} {:>9} | {:>7} {:>6} | {:>7} | {:>7} {:>7} {:>7} {:>7}\n",
        "case",
        "conn.",
        "target",
        "ep.",
        "entries",
        "p50 us",
        "p99 us",
        "TTFT p50",
        "TTFT p99",
        "req/s",
        "failed",
        "MB",
        "proxy",
        "beside",
        "engines",
        "load"
    );
    for row in rows {
        out.push_str(&format!(
            "{:<18} {:>5} {:<18} {:>4} {:>8} | {:>9.0} {:>9.0} {:>9.0} {:>9.0} | {:>7.0} {:>6} | {:>7.0} | {:>7.0} {:>7.0} {:>7.0} {:>7.0}\n",
            row.case,
            row.concurrency,
            row.target,
            row.endpoints,
            row.index_entries,
            row.p50_us,
            row.p99_us,
            row.ttft_p50_us,
            row.ttft_p99_us,
            row.rps,
            row.failures,
            row.rss_mb,
            row.cpu_us_per_request,
            row.helper_cpu_us_per_request,
            row.engines_cpu_us_per_request,
            row.generator_cpu_us_per_request,
        ));
    }
    out.push_str("(the last four: CPU us a request; beside the proxy is an agent or a picker)\n");
    out
}
