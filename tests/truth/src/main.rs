//! `warmroute-truth`: see the library, and `--help`.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use serde_json::json;
use warmroute_demo::processes::{Buckets, Programs, Simulator, get, until_signal, workspace_root};
use warmroute_truth::bed::{Bed, Engines, Served};
use warmroute_truth::probes::Probes;
use warmroute_truth::replay::{Pace, Rendering};
use warmroute_truth::verdict::{self, Delay, Observation, Source};
use warmroute_truth::visibility;
use warmroute_truth::workload::conversation::Conversation;
use warmroute_truth::workload::{self, Shape};
use warmroute_truth::{records, replay, report};

/// Compares what the filter believes that engines hold with what they hold.
///
/// Starts simulated engines (or takes a real one with --engine), the agent and a real Envoy, replays
/// conversations and joins Envoy's access log with the engines' own counts. Writes the report, prints
/// a table, and ends with 1 if a bar is missed.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Conversations; six turns each on the simulator, four on a real engine
    #[arg(long)]
    conversations: Option<usize>,
    /// Simulated engines
    #[arg(long, default_value_t = 4)]
    replicas: usize,
    /// Worker threads of Envoy
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// Seed of the conversations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Blocks per second of the flood, over all engines
    #[arg(long, default_value_t = 20_000)]
    flood: u64,
    /// Seconds of the flood
    #[arg(long, default_value_t = 8.0)]
    flood_seconds: f64,
    /// Where the report goes; target/report/truth.json, or truth-vllm.json
    #[arg(long)]
    report: Option<PathBuf>,
    /// Folder for configuration and logs; target/truth, or target/truth-vllm
    #[arg(long)]
    dir: Option<PathBuf>,
    /// A real engine that runs already, as http://127.0.0.1:8000
    #[arg(long, requires_all = ["model", "model_folder"])]
    engine: Option<String>,
    /// Served name of the real engine's model
    #[arg(long)]
    model: Option<String>,
    /// Folder of the real engine's model
    #[arg(long)]
    model_folder: Option<PathBuf>,
    /// Adapters of the real engine
    #[arg(long = "lora")]
    loras: Vec<String>,
    /// Tokens of the real engine's blocks
    #[arg(long, default_value_t = 32)]
    block_size: u64,
}

/// Tokens in a simulated engine's block.
const SIMULATED_BLOCK: u64 = 16;

/// How long an event that is out may be unknown to the filter: the bar for its visibility.
const DELAY_MS: f64 = 50.0;

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let args = Args::parse();
    until_signal("warmroute-truth", run(&args)).await
}

async fn run(args: &Args) -> Result<bool> {
    let root = workspace_root()?;
    let programs = Programs::find(&root)?;
    let name = if args.engine.is_some() { "truth-vllm" } else { "truth" };
    let dir = args.dir.clone().unwrap_or_else(|| root.join("target").join(name));
    // What an earlier run left would be taken for this one's.
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let dir = dir.canonicalize()?;

    let (source, engine_block, outcome) = match &args.engine {
        None => (Source::Sim, SIMULATED_BLOCK, simulated(args, &programs, &dir).await?),
        Some(engine) => (Source::Vllm, args.block_size, real(args, &programs, &dir, engine).await?),
    };
    let (report, aside) = verdict::judge(
        source,
        &outcome.observations,
        DELAY_MS,
        engine_block,
        outcome.visible,
        outcome.precise,
    );
    let missed = verdict::missed(&report, &aside);
    println_table(&report::table(&report, &aside, &missed));
    for one in verdict::false_hits(&outcome.observations, DELAY_MS).take(10) {
        eprintln!("false hit: {one:?}");
    }
    let lines: Vec<String> =
        outcome.observations.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    std::fs::write(dir.join("observations.jsonl"), lines.join("\n"))?;
    let usual = || root.join("target/report").join(format!("{name}.json"));
    report::write(&args.report.clone().unwrap_or_else(usual), &report)?;
    Ok(missed.is_empty())
}

#[allow(clippy::print_stdout, reason = "the table is what the program is for")]
fn println_table(table: &str) {
    print!("{table}");
}

struct Outcome {
    observations: Vec<Observation>,
    visible: Delay,
    precise: usize,
}

/// Six turns of every conversation, two at a time, an engine restarted in between; then the flood.
async fn simulated(args: &Args, programs: &Programs, dir: &Path) -> Result<Outcome> {
    let served = Served {
        model: "tiny".to_owned(),
        adapters: vec!["lora-a".to_owned(), "lora-b".to_owned()],
        folder: dir.join("model"),
    };
    engine_sim::model_folder::write(&served.folder)?;
    // Too few blocks for all conversations, so that about a third of what was said is evicted before
    // it is said again; and prefill fast enough that hardly anything waits.
    let arguments = [
        "--num-blocks",
        "2500",
        "--max-model-len",
        "16384",
        "--time-scale",
        "20",
        "--max-loras",
        "2",
        "--record-requests",
        "100000",
    ];
    let simulator = Bed::simulate(programs, dir, args.replicas, &served, &arguments).await?;
    let engines = Engines::Simulated(simulator);
    let bed = Bed::start(programs, dir, engines, &served, args.workers).await?;
    let Engines::Simulated(simulator) = &bed.engines else { unreachable!("as made above") };
    let shape = Shape {
        conversations: args.conversations.unwrap_or(280),
        turns: 6,
        model: served.model.clone(),
        adapters: served.adapters.clone(),
        tools: true,
        system_words: (80, 500),
        user_words: (10, 120),
        answer_tokens: (8, 80),
    };
    let pace = Pace { parallel: 12, pause: Duration::from_millis(120), turns: 2 };
    let mut conversations: Vec<_> =
        workload::plan(&shape, args.seed).into_iter().map(Conversation::new).collect();
    let mut observations = Vec::new();
    for round in 0..3 {
        if round > 0 {
            // Its records go with it; they were read.
            bed.restart(round % args.replicas).await?;
        }
        let label = format!("truth-{round}");
        let (then, answered) =
            replay::run(bed.listen(), conversations, pace, Rendering::ChatMl, &label).await?;
        conversations = then;
        let beliefs = records::all_beliefs(&bed.access_log(), &answered).await?;
        let state = get(simulator.admin, "/state?requests=1000000").await?.json();
        observations.extend(records::join(&answered, &beliefs, &records::arrivals(&state)?)?);
    }
    let precise = bed.endpoints_precise().await?;
    let visible = flood(args, &bed, simulator, dir).await?;
    Ok(Outcome { observations, visible, precise })
}

/// Events at the given rate from all engines together, and nothing else but probes of the workers.
async fn flood(args: &Args, bed: &Bed, simulator: &Simulator, dir: &Path) -> Result<Delay> {
    let before = visibility::quiet(bed.envoy.admin, dir).await?;
    // With eight connections on a worker, that is every few milliseconds.
    let probes = Probes::start(bed.listen(), Duration::from_millis(40)).await?;
    let each = args.flood / args.replicas.max(1) as u64;
    let mut floods = tokio::task::JoinSet::new();
    for replica in 0..args.replicas {
        let admin = simulator.admin;
        let command =
            json!({ "replica": replica, "blocks_per_s": each, "seconds": args.flood_seconds });
        floods.spawn(async move {
            warmroute_truth::client::post(admin, "/flood", "flood", &command).await
        });
    }
    let mut stored = 0;
    while let Some(flood) = floods.join_next().await {
        stored += flood??["blocks"].as_u64().unwrap_or(0);
    }
    let asked = args.flood as f64 * args.flood_seconds;
    ensure!(stored as f64 >= 0.9 * asked, "the flood had {stored} blocks of {asked}");
    seen_since(&before, &probes, args, bed, dir).await
}

/// How soon the workers, all of them asked, saw events since `before`.
async fn seen_since(
    before: &Buckets,
    probes: &Probes,
    args: &Args,
    bed: &Bed,
    dir: &Path,
) -> Result<Delay> {
    let workers = probes.workers();
    ensure!(workers == args.workers, "probes reached {workers} of {} workers", args.workers);
    visibility::delay(&visibility::quiet(bed.envoy.admin, dir).await?.since(before))
}

/// Four turns of every conversation on one engine that somebody else started.
async fn real(args: &Args, programs: &Programs, dir: &Path, engine: &str) -> Result<Outcome> {
    let address = address(engine)?;
    let folder = args.model_folder.clone().context("--model-folder is missing")?;
    let served = Served {
        model: args.model.clone().context("--model is missing")?,
        adapters: args.loras.clone(),
        folder: folder.canonicalize().with_context(|| format!("no folder {}", folder.display()))?,
    };
    let bed = Bed::start(programs, dir, Engines::Real(address), &served, args.workers).await?;
    let before = visibility::quiet(bed.envoy.admin, dir).await?;
    // Seldom: it goes on for minutes, and each takes a line in the access log.
    let probes = Probes::start(bed.listen(), Duration::from_millis(400)).await?;
    let shape = Shape {
        conversations: args.conversations.unwrap_or(100),
        turns: 4,
        model: served.model.clone(),
        adapters: served.adapters.clone(),
        // The engine would refuse them without a parser of tool calls.
        tools: false,
        system_words: (60, 250),
        user_words: (10, 60),
        answer_tokens: (8, 48),
    };
    // One at a time: this engine does not tell what it held on arrival, and what waits in its queue
    // may find less than the filter could know.
    let pace = Pace { parallel: 1, pause: Duration::from_millis(150), turns: 2 };
    let mut conversations: Vec<_> =
        workload::plan(&shape, args.seed).into_iter().map(Conversation::new).collect();
    let mut answered = Vec::new();
    for round in 0..2 {
        let (then, more) = replay::run(
            bed.listen(),
            conversations,
            pace,
            Rendering::Engine(address),
            &format!("truth-{round}"),
        )
        .await?;
        conversations = then;
        answered.extend(more);
    }
    let beliefs = records::all_beliefs(&bed.access_log(), &answered).await?;
    let observations = records::join(&answered, &beliefs, &std::collections::HashMap::new())?;
    let visible = seen_since(&before, &probes, args, &bed, dir).await?;
    Ok(Outcome { observations, visible, precise: bed.endpoints_precise().await? })
}

fn address(engine: &str) -> Result<SocketAddr> {
    let host = engine.strip_prefix("http://").unwrap_or(engine).trim_end_matches('/');
    let found = host.to_socket_addrs().with_context(|| format!("--engine {engine}"))?.next();
    found.with_context(|| format!("--engine {engine} has no address"))
}
