//! `compare`: a few ways in one case, over and over: for whoever changes the filter, or profiles it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use warmroute_bench::figures::{Figures, Turn};
use warmroute_bench::plan::{ENDPOINTS, ENTRIES};
use warmroute_bench::rounds::{Rounds, Way};
use warmroute_bench::stub::Options;
use warmroute_bench::targets::{
    Bench, Mode, Place, Pool, Running, StubEngines, Target, Warmroute, extproc, floor, plain,
};
use warmroute_bench::workload::{Case, Length};

use crate::run::{picker, say};

/// Envoy without the filter, and Envoy with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum With {
    Approximate,
    Precise,
    Full,
    /// A filter that does nothing
    FloorNothing,
    /// One that reads the headers
    FloorHeaders,
    /// One that waits for the body and reads it
    FloorBody,
    /// One that also reads the body's JSON and hashes the prompt
    FloorPrompt,
    /// An endpoint picker behind ext_proc: $PEER_EPP starts it, as for `run`
    Extproc,
}

/// What is compared with plain Envoy.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Ways through the filter
    #[arg(long = "with", value_enum, default_value = "approximate")]
    with: Vec<With>,
    /// The case, by its name in bench.json
    #[arg(long, default_value = "chat-0.5k", value_parser = case)]
    case: Case,
    /// Connections
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Rounds
    #[arg(long, default_value_t = 8)]
    rounds: usize,
    /// Milliseconds of each way's turn in a round
    #[arg(long, default_value_t = 700)]
    slice: u64,
}

fn case(name: &str) -> Result<Case, String> {
    let all = [Case::Small, Case::Large, Case::Stream, Case::LargeStream];
    let names = all.map(Case::name).join(", ");
    all.into_iter().find(|case| case.name() == name).ok_or(format!("one of {names}"))
}

/// Compares, and prints.
pub(crate) async fn run(arguments: &Arguments) -> Result<bool> {
    let place = Place::prepare("compare")?;
    let bench = place.bench();
    place.cores.start_others();
    let options = Options { endpoints: ENDPOINTS, metrics_bytes: 0, events: true };
    let engines = StubEngines::start(&bench, "engines", options).await?;
    let mut all = vec![plain(&bench, &engines).await?];
    for with in &arguments.with {
        all.push(filter(&bench, *with, &engines, &place.model).await?);
    }
    for running in &all {
        let (proxy, helper) = (running.proxy_pids(), running.helper_pids());
        eprintln!("{}: pid {proxy:?}, beside it {helper:?}", running.target.name());
    }
    let way = |running| Way { running, engines: &engines, index_entries: ENTRIES };
    let mut figures = Figures::default();
    let rounds = |rounds| Rounds {
        label: "turns",
        ways: all.iter().map(way).collect(),
        cases: vec![(arguments.case, arguments.connections)],
        rounds,
        slice: Duration::from_millis(arguments.slice),
        cold: false,
    };
    rounds(1).run(&mut Figures::default()).await;
    rounds(arguments.rounds).run(&mut figures).await;
    let mut table = vec![format!(
        "{:<18} {:>14} {:>14} {:>14} {:>14} {:>14} {:>7}  (and over envoy)",
        "", "p50 us", "TTFT p99 us", "rps", "CPU us", "with helper's", "failed"
    )];
    let envoy = all.first().map(|envoy| way(envoy).key(arguments.case, arguments.connections));
    for running in &all {
        let key = way(running).key(arguments.case, arguments.connections);
        let figures_of: [fn(&Turn) -> f64; 5] = [
            |turn| turn.p50_us,
            |turn| turn.ttft_p99_us,
            |turn| turn.rps,
            |turn| turn.cpu_us,
            |turn| turn.cpu_us + turn.helper_cpu_us,
        ];
        let cells = figures_of.map(|of| {
            let ratio = envoy.and_then(|envoy| figures.ratio(key, envoy, of)).unwrap_or_default();
            let median = figures.median(key, of).unwrap_or_default();
            format!("{median:>8.0} {:>5.2}", ratio.median)
        });
        let failed = figures.sum(key, |turn| turn.failures).unwrap_or_default();
        let name = running.target.name();
        table.push(format!("{name:<18} {} {failed:>7}", cells.join(" ")));
    }
    say(&table.join("\n"));
    Ok(true)
}

async fn filter(
    bench: &Bench<'_>,
    with: With,
    engines: &StubEngines,
    model: &Path,
) -> Result<Running> {
    let (target, mode) = match with {
        With::FloorNothing => return floor(bench, engines, Target::FloorNothing).await,
        With::FloorHeaders => return floor(bench, engines, Target::FloorHeaders).await,
        With::FloorBody => return floor(bench, engines, Target::FloorBody).await,
        With::FloorPrompt => return floor(bench, engines, Target::FloorPrompt).await,
        With::Extproc => {
            let command = picker().context("PEER_EPP is not set")?;
            return extproc(bench, engines, &command).await;
        }
        With::Approximate => (Target::Warmroute, Mode::Approximate),
        With::Precise => (Target::Precise, Mode::Precise),
        With::Full => (Target::Full, Mode::Full),
    };
    let pool = Pool { name: target.name(), engines, scrape_interval: None };
    let warmroute = Warmroute::start(bench, mode, pool, model).await?;
    engines.hold(Length::Small).await?;
    engines.hold(Length::Large).await?;
    if mode != Mode::Approximate {
        warmroute.wait_for_blocks(ENTRIES as u64 * 9 / 10).await?;
    }
    Ok(warmroute.running())
}
