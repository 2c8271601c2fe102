//! `run`: everything in its order.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use warmroute_bench::bars::bars;
use warmroute_bench::extras::{Extras, agent_cost, memory, steady};
use warmroute_bench::figures::Figures;
use warmroute_bench::load::Pace;
use warmroute_bench::plan::{CONNECTIONS, ENDPOINTS, ENTRIES, MANY_ENDPOINTS, MANY_ENTRIES, Plan};
use warmroute_bench::report::{Machine, Report, noise, rows};
use warmroute_bench::rounds::{Rounds, Way, missing};
use warmroute_bench::stub::Options;
use warmroute_bench::targets::{
    Bench, Mode, Place, Pool, Running, StubEngines, Target, Warmroute, extproc, plain, vllm_router,
};
use warmroute_bench::workload::{Case, Length};
use warmroute_demo::processes::workspace_root;

/// What may be left out while developing.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// One short round of everything: to see whether it works, not how fast it is
    #[arg(long)]
    short: bool,
    /// Only ten engines and ten thousand blocks
    #[arg(long, conflicts_with = "larger_only")]
    base_only: bool,
    /// Only the larger pools and indices
    #[arg(long)]
    larger_only: bool,
    /// Rounds of chats and streams
    #[arg(long)]
    rounds: Option<usize>,
}

impl Arguments {
    /// Base rows that are missing, if they were to be measured.
    fn missing(&self, figures: &Figures, extproc: bool) -> Vec<String> {
        if self.larger_only { Vec::new() } else { missing(figures, extproc) }
    }
}

/// Enough for each way's index and connections to the engines to be there.
const WARM_UP: Duration = Duration::from_millis(300);
/// With 256 engines the scrapes would be half a core of load beside the generator, and are not what is measured.
const SLOWER_SCRAPES: &str = "250ms";

/// Returns whether all base rows are there.
pub(crate) async fn run(arguments: &Arguments) -> Result<bool> {
    let begun = Instant::now();
    let place = Place::prepare("bench")?;
    let (bench, cores, model) = (place.bench(), &place.cores, &place.model);
    let mut plan = if arguments.short { Plan::short() } else { Plan::whole() };
    plan.rounds = arguments.rounds.unwrap_or(plan.rounds);
    let router = std::env::var_os("VLLM_ROUTER").map(PathBuf::from).filter(|path| path.exists());
    let picker = picker();
    let before = load_average();
    cores.start_others();

    let (mut figures, mut larger, mut extras) =
        (Figures::default(), Figures::default(), Extras::default());
    let peers = Peers { router: router.as_deref(), picker: picker.as_deref() };
    if !arguments.larger_only {
        measure_base(&bench, plan, model, peers, &mut figures, &mut extras).await?;
    }
    if !arguments.base_only {
        measure_larger(&bench, plan, model, &mut larger).await?;
    }
    extras.agent = Some(agent_cost(&bench, plan.once).await?);

    let report = Report {
        machine: Machine {
            processor: processor(),
            cores: std::thread::available_parallelism()
                .map_or(1, usize::from)
                .max(if cores.split() { 2 } else { 1 }),
            pinned: cores.split(),
            envoy: version(&bench.programs.envoy).unwrap_or_default(),
            picker: picker.clone(),
            vllm_router: router.as_deref().map(|path| version(path).unwrap_or_default()),
            rounds: plan.rounds,
            load_average: [before, load_average()],
        },
        rows: rows(&figures, &larger),
        noise: noise(&figures, &Plan::chats()),
        bars: bars(&figures, &larger, &extras),
        missing: arguments.missing(&figures, picker.is_some()),
        extras,
        seconds: begun.elapsed().as_secs_f64(),
    };
    let folder = workspace_root()?.join("target/report");
    report.write(&folder)?;
    say(&format!("{}{}", report.table(), folder.join("bench.json").display()));
    Ok(report.missing.is_empty())
}

#[derive(Clone, Copy)]
struct Peers<'a> {
    router: Option<&'a Path>,
    picker: Option<&'a str>,
}

/// Ten engines, ten thousand blocks.
async fn measure_base(
    bench: &Bench<'_>,
    plan: Plan,
    model: &Path,
    peers: Peers<'_>,
    figures: &mut Figures,
    extras: &mut Extras,
) -> Result<()> {
    let options = Options { endpoints: ENDPOINTS, metrics_bytes: 0, events: true };
    let engines = StubEngines::start(bench, "engines", options).await?;
    let first = engines.first()?;
    let mut all = vec![
        Running::direct(Target::Direct, first),
        Running::direct(Target::DirectAgain, first),
        plain(bench, &engines).await?,
    ];
    let modes = [
        (Target::Warmroute, Mode::Approximate),
        (Target::Precise, Mode::Precise),
        (Target::Full, Mode::Full),
    ];
    let mut filters = Vec::new();
    for (target, mode) in modes {
        let pool = Pool { name: target.name(), engines: &engines, scrape_interval: None };
        filters.push((mode, Warmroute::start(bench, mode, pool, model).await?));
    }
    engines.hold(Length::Small).await?;
    engines.hold(Length::Large).await?;
    for (mode, warmroute) in filters {
        if mode != Mode::Approximate {
            warmroute.wait_for_blocks(ENTRIES as u64 * 9 / 10).await?;
        }
        all.push(warmroute.running());
    }
    // A peer that cannot be had is a missing row, not the end.
    match peers.router {
        Some(router) => all.extend(complain(vllm_router(bench, &engines, router).await)),
        None => eprintln!("no vllm-router: set VLLM_ROUTER, or run `make peers`"),
    }
    if let Some(command) = peers.picker {
        all.extend(complain(extproc(bench, &engines, command).await));
    }

    let ways = |wanted: &dyn Fn(Target) -> bool| -> Vec<Way<'_>> {
        let wanted = all.iter().filter(|running| wanted(running.target));
        wanted.map(|running| Way { running, engines: &engines, index_entries: ENTRIES }).collect()
    };
    for way in ways(&|_| true) {
        for case in [Case::Small, Case::Large] {
            let pace = Pace::Closed { time: WARM_UP };
            way.turn(case, 1, &case.bodies(), pace, false).await;
        }
    }
    let chats = Rounds {
        label: "chats and streams",
        ways: ways(&|_| true),
        cases: Plan::chats(),
        rounds: plan.rounds,
        slice: plan.slice,
        cold: false,
    };
    chats.run(figures).await;
    let alone = [Target::Direct, Target::DirectAgain, Target::Full];
    for way in ways(&|target| !alone.contains(&target)) {
        extras.steady.push(steady(&way, plan.once).await);
    }
    for (mode, case, spliced) in
        [(Mode::Approximate, Case::Million, false), (Mode::Full, Case::MillionStream, true)]
    {
        // A VM keeps what it ever took: only a fresh one shows what a body takes.
        let pool = Pool { name: "memory", engines: &engines, scrape_interval: None };
        let fresh = Warmroute::start(bench, mode, pool, model).await?.running();
        extras.memory.extend(complain(memory(&fresh, case, spliced).await));
    }
    engines.hold(Length::Million).await?;
    let million = Rounds {
        label: "prompts of 4 MB",
        ways: ways(&|target| target != Target::DirectAgain),
        cases: CONNECTIONS.map(|connections| (Case::Million, connections)).into(),
        rounds: plan.million_rounds,
        slice: plan.slice,
        cold: true,
    };
    million.run(figures).await;
    Ok(())
}

/// More engines, more blocks: `warmroute-precise` on large chats.
async fn measure_larger(
    bench: &Bench<'_>,
    plan: Plan,
    model: &Path,
    figures: &mut Figures,
) -> Result<()> {
    let sizes = [
        (ENDPOINTS, ENTRIES),
        (ENDPOINTS, MANY_ENTRIES),
        (MANY_ENDPOINTS, ENTRIES),
        (MANY_ENDPOINTS, MANY_ENTRIES),
    ];
    let mut all = Vec::new();
    for (endpoints, entries) in sizes {
        let name = format!("{endpoints}-endpoints-{entries}-blocks");
        let options = Options { endpoints, metrics_bytes: 0, events: true };
        let engines = StubEngines::start(bench, &format!("{name}-engines"), options).await?;
        let scrape_interval = (endpoints > ENDPOINTS).then_some(SLOWER_SCRAPES);
        let pool = Pool { name: &name, engines: &engines, scrape_interval };
        let warmroute = Warmroute::start(bench, Mode::Precise, pool, model).await?;
        engines.hold(Length::Large).await?;
        if entries > ENTRIES {
            engines.fill(entries - ENTRIES).await?;
        }
        warmroute.wait_for_blocks(entries as u64 * 9 / 10).await?;
        all.push((warmroute.running(), engines, entries));
    }
    let ways = all.iter().map(|(running, engines, index_entries)| Way {
        running,
        engines,
        index_entries: *index_entries,
    });
    // The first is a base row already. Here it is measured again, to be compared with within each round.
    let rounds = Rounds {
        label: "larger pools and indices",
        ways: ways.collect(),
        cases: CONNECTIONS.map(|connections| (Case::Large, connections)).into(),
        rounds: plan.larger_rounds,
        slice: plan.slice,
        cold: false,
    };
    rounds.run(figures).await;
    Ok(())
}

/// The command that starts an endpoint picker, if there is one.
pub(crate) fn picker() -> Option<String> {
    std::env::var("PEER_EPP").ok().filter(|command| !command.trim().is_empty())
}

fn complain<T>(result: Result<T>) -> Option<T> {
    result.inspect_err(|error| eprintln!("not measured: {error:#}")).ok()
}

fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.unwrap_or_default().trim_start_matches([' ', '\t', ':']).to_owned()
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|value| value.parse().ok()).unwrap_or_default()
}

pub(crate) fn say(text: &str) {
    let mut stdout = std::io::stdout();
    // A closed standard output is no reason to lose the files.
    let _ = writeln!(stdout, "{text}").context("print").map(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_base_none_of_its_rows_is_missing() {
        let missing = |larger_only| {
            let arguments = Arguments { short: true, base_only: false, larger_only, rounds: None };
            arguments.missing(&Figures::default(), false).is_empty()
        };
        assert_eq!([true, false].map(missing), [true, false]);
    }
}
