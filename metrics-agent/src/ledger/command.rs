//! `warmroute-agent usage`: totals and cost, also while an agent writes to the file.

use super::place;
use super::report::{By, Filter, Format, Period, Prices, ReportError, report};
use super::store::open_to_read;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;

/// Options of `usage`.
#[derive(Debug, Args)]
pub struct UsageArgs {
    /// The ledger's file [default: where `run` has it]
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
    /// Requests of this tenant only.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Requests for this model only, by the name that clients use.
    #[arg(long)]
    pub model: Option<String>,
    /// Requests from then on: an age like 90s, 30m, 24h, 7d or 4w, or a time like
    /// 2026-11-30T09:00:00Z or 2026-11-30 (UTC).
    #[arg(long, value_name = "AGE-or-TIME")]
    pub since: Option<String>,
    /// Requests before then.
    #[arg(long, value_name = "AGE-or-TIME")]
    pub until: Option<String>,
    /// A row for each of these; days are UTC.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tenant,model")]
    pub by: Vec<By>,
    /// How to print it.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// YAML with prices of a million tokens: `models: {llama-70b: {input: 0.60, cachedInput: 0.15,
    /// output: 2.40}, "*": {...}}`, and a `currency`.
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
}

/// Why nothing was printed.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// No file is named, and there is no usual place.
    #[error("no ledger is named and HOME is not set; give --ledger FILE")]
    NoFile,
    /// The prices cannot be read.
    #[error("cannot read {file} ({source}); check the path")]
    Prices {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is no report.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// It cannot be written.
    #[error("cannot write the report ({0})")]
    Output(#[from] std::io::Error),
}

/// Prints the report to `out`. `variable` reads the environment.
///
/// # Errors
/// If it cannot be made.
pub fn run(
    args: UsageArgs,
    variable: impl Fn(&str) -> Option<String>,
    now_ms: u64,
    out: &mut impl Write,
) -> Result<(), UsageError> {
    let file = args.ledger.or_else(|| place::usual_file(variable)).ok_or(UsageError::NoFile)?;
    let prices = args.prices.map(|file| {
        let yaml =
            std::fs::read_to_string(&file).map_err(|source| UsageError::Prices { file, source })?;
        Ok::<_, UsageError>(Prices::read(&yaml)?)
    });
    let prices = prices.transpose()?;
    let period = Period::new(args.since.as_deref(), args.until.as_deref(), now_ms)?;
    let filter = Filter { tenant: args.tenant, model: args.model, period, max_rows: usize::MAX };
    let mut by = args.by;
    let mut seen = Vec::new();
    by.retain(|by| {
        !seen.contains(by) && {
            seen.push(*by);
            true
        }
    });
    let connection = open_to_read(&file).map_err(ReportError::from)?;
    let report = report(&connection, &filter, &by, prices.as_ref())?;
    out.write_all(report.render(args.format).as_bytes())?;
    Ok(())
}
