//! `replay`: a Mooncake trace, with Envoy's own policies and with Warmroute.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use warmroute_demo::processes::{Programs, workspace_root};
use warmroute_demo::replay::{
    Memory, REPLICAS, Report, Setup, Slice, Target, Writer, bar_table, parse, table,
};
use warmroute_demo::workload::SimulatedTokens;

use super::{Failure, say};

const MODEL: &str = "llama-70b";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The trace, a file of JSON lines [default: $MOONCAKE]; nothing is replayed without one.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Requests, from the start of the trace.
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    requests: usize,
    /// How many times faster than real time passes, for arrivals and engines alike.
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    time_scale: u16,
    /// Only this target; may be given more than once.
    #[arg(long = "target", value_name = "NAME", value_enum)]
    targets: Vec<Target>,
    /// Only with this KV memory; may be given more than once.
    #[arg(long = "memory", value_name = "NAME", value_enum)]
    memories: Vec<Memory>,
    /// Worker threads of Envoy.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    concurrency_workers: u16,
    /// Folder for replay.json and replay.html [default: target/report].
    #[arg(long, value_name = "DIR")]
    report_dir: Option<PathBuf>,
}

fn or_all<T: Copy>(given: Vec<T>, all: &[T]) -> Vec<T> {
    if given.is_empty() { all.to_vec() } else { given }
}

pub(crate) async fn replay(arguments: Arguments) -> Result<(), Failure> {
    let set = || std::env::var_os("MOONCAKE").filter(|path| !path.is_empty()).map(PathBuf::from);
    let Some(path) = arguments.trace.or_else(set).filter(|path| path.is_file()) else {
        say(
            "skipped: no trace; MOONCAKE=path/of/conversation_trace.jsonl names one, of Mooncake's",
        );
        return Ok(());
    };
    let start = Instant::now();
    let root = workspace_root()?;
    let programs = Programs::find(&root)?;
    let rows = parse(&std::fs::read(&path)?, arguments.requests)?;
    let slice = Arc::new(Slice::of(&rows));
    let writer = Writer::new(&SimulatedTokens::new()?, MODEL)?;
    let workers = usize::from(arguments.concurrency_workers);
    let dir = root.join("target/run/replay");
    let setup = Setup {
        programs: &programs,
        writer: &writer,
        model: MODEL,
        time_scale: f64::from(arguments.time_scale),
        workers,
        dir: &dir,
    };
    let targets = or_all(arguments.targets, &Target::ALL);
    let memories = or_all(arguments.memories, &Memory::ALL);

    let trace = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut report = Report {
        trace,
        requests: slice.requests.len(),
        sessions: slice.sessions,
        replicas: REPLICAS,
        prompt_tokens: slice.prompt_tokens,
        ideal_cached_tokens: slice.ideal_cached_tokens,
        working_set_tokens: slice.working_set_tokens,
        time_scale: setup.time_scale,
        workers,
        cases: Vec::new(),
        bars: Vec::new(),
    };
    for memory in memories {
        let case = setup.measure(&slice, memory, &targets).await?;
        say(&format!("\n{}", table(&report, &case)));
        report.cases.push(case);
    }
    // They were set for this trace.
    if report.trace.contains("conversation") {
        report.bars = Report::bars(&report.cases);
        say(&bar_table(&report.bars));
    }
    let report_dir = arguments.report_dir.unwrap_or_else(|| root.join("target/report"));
    report.write(&report_dir)?;
    let (json, html) = (report_dir.join("replay.json"), report_dir.join("replay.html"));
    let seconds = start.elapsed().as_secs_f64();
    say(&format!("{}\n{}\n{seconds:.0} s in all", json.display(), html.display()));
    Ok(())
}
