//! `warmroute-bench`: measure, or be the engines that are measured with.
#![forbid(unsafe_code)]

mod compare;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warmroute_bench::stub;
use warmroute_demo::processes::until_signal;

#[derive(Debug, Parser)]
#[command(about, version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure every way to the engines in turn; write target/report/bench.json and bench.html.
    ///
    /// $VLLM_ROUTER is vLLM's router. $PEER_EPP, if set, is a shell command that starts an endpoint picker; it finds
    /// EPP_GRPC_PORT, EPP_HEALTH_PORT, EPP_METRICS_PORT and EPP_ENDPOINTS (llm-d's file-discovery form) in its environment.
    Run(run::Arguments),
    /// Compare Envoy with and without the filter in one case, for a while; tells the pids, for a profiler.
    Compare(compare::Arguments),
    /// Serve as engines that answer at once, until ended.
    Stub(stub::Options),
}

// One thread: it shares its core with the engines, and leaves the other one to the proxies.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let work = async {
        match Cli::parse().command {
            Command::Run(arguments) => run::run(&arguments).await,
            Command::Compare(arguments) => compare::run(&arguments).await,
            Command::Stub(options) => stub::serve(options).await.map(|()| true),
        }
    };
    until_signal("warmroute-bench", work).await
}
