//! `warmroute-demo`: measure round robin against Warmroute, or leave everything running.
#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warmroute_demo::processes::until_signal;

#[derive(Debug, Parser)]
#[command(about, version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the same conversations twice, round robin and Warmroute; print and plot the difference.
    Run(commands::run::Arguments),
    /// Start engines, agent and Envoy, leave them running, and print what to try.
    Up(commands::up::Arguments),
    /// Stop what `up` started.
    Down,
    /// Replay a Mooncake trace with Envoy's own policies and with Warmroute; print and plot what
    /// share of the possible cache hits each had.
    Replay(commands::replay::Arguments),
    /// Measure what it takes to know what engines hold: the rate of KV events, and memory.
    BenchKv,
}

#[tokio::main]
async fn main() -> ExitCode {
    let work = async {
        let result = match Cli::parse().command {
            Command::Run(arguments) => commands::run::run(arguments).await,
            Command::Up(arguments) => commands::up::up(arguments).await,
            Command::Down => commands::down::down(),
            Command::Replay(arguments) => commands::replay::replay(arguments).await,
            Command::BenchKv => commands::bench_kv::bench_kv().await,
        };
        result.map(|()| true).map_err(|error| anyhow::anyhow!("{error}"))
    };
    until_signal("warmroute-demo", work).await
}
