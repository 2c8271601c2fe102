//! `warmroute-tenants`: see the library, and `--help`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use rustix::process::{Resource, getrlimit, setrlimit};
use warmroute_demo::processes::{until_signal, workspace_root};
use warmroute_tenants::report::Report;
use warmroute_tenants::{budget, faults, interactive, leaving, ledger, shares};

/// Measures on a real Envoy what tenants get: shares, budgets, waiting times, accounts.
///
/// Starts simulated engines, the agent and Envoy with four workers for each part. Writes the report
/// (tenants.json, tenants.html), prints the figures, and ends with 1 if a bar is missed.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Parts to measure; all by default
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// Folder for the report; target/report
    #[arg(long)]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Fairness,
    Budget,
    Ledger,
    Interactive,
    Leaving,
    Faults,
}

impl Args {
    fn asks_for(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let args = Args::parse();
    until_signal("warmroute-tenants", run(&args)).await
}

/// What a part measures, with a word on how long it took.
async fn part<T>(what: &str, measured: impl Future<Output = Result<T>>) -> Result<T> {
    let since = Instant::now();
    let figures = measured.await.with_context(|| what.to_owned())?;
    eprintln!("{what}: {:.0} s", since.elapsed().as_secs_f64());
    Ok(figures)
}

/// Thousands of clients connect at once; what is started here inherits the limit.
fn raise_open_files() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of open files")
}

async fn run(args: &Args) -> Result<bool> {
    raise_open_files()?;
    let mut report = Report::default();
    if args.asks_for(Part::Fairness) {
        report.fairness = Some(part("fairness", shares::measure()).await?);
    }
    if args.asks_for(Part::Budget) {
        report.budgets = Some(part("budget", budget::measure()).await?);
    }
    if args.asks_for(Part::Ledger) {
        report.ledger = Some(part("ledger", ledger::measure()).await?);
    }
    if args.asks_for(Part::Interactive) {
        report.interactive = Some(part("interactive", interactive::measure()).await?);
    }
    if args.asks_for(Part::Leaving) {
        report.leaving = Some(part("leaving", leaving::measure()).await?);
    }
    if args.asks_for(Part::Faults) {
        report.faults = Some(part("faults", faults::measure()).await?);
    }
    let usual = || Ok::<_, anyhow::Error>(workspace_root()?.join("target/report"));
    report.write(&args.report.clone().map_or_else(usual, Ok)?)?;
    print(&report.table()?);
    Ok(report.missed().is_empty())
}

#[allow(clippy::print_stdout, reason = "the table is what the program is for")]
fn print(table: &str) {
    print!("{table}");
}
