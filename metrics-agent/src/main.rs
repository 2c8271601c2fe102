//! Binary `warmroute-agent`.

use anyhow::Context as _;
use clap::Parser as _;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::Write as _;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, warn};
use tracing_subscriber::filter::LevelFilter;
use warmroute_agent::cli::{Cli, Command, RunArgs};
use warmroute_agent::ledger::command as usage;
use warmroute_agent::{app, check};

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::CheckConfig { path } => {
            match check::run(&path, &mut std::io::stdout(), &mut std::io::stderr()) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) | Err(_) => ExitCode::FAILURE,
            }
        }
        Command::Usage(args) => {
            let variable = |name: &str| std::env::var(name).ok();
            match usage::run(args, variable, app::now_ms(), &mut std::io::stdout()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    // Nowhere else to say it.
                    let _ = writeln!(std::io::stderr(), "{error}");
                    ExitCode::FAILURE
                }
            }
        }
        Command::Run(args) => {
            tracing_subscriber::fmt()
                .json()
                .flatten_event(true)
                // It would be told on standard error, too, and end the agent if nobody reads that any more.
                .log_internal_errors(false)
                .with_max_level(LevelFilter::from_level(args.log_level))
                .with_writer(std::io::stderr)
                .init();
            raise_descriptor_limit();
            match run(args) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    error!("{error:#}");
                    ExitCode::FAILURE
                }
            }
        }
    }
}

/// Each endpoint and each Envoy takes a descriptor, and many systems begin with 1024.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "the limit of file descriptors stays as it is");
    }
}

/// Two threads: the agent sits beside Envoy and must leave it the other cores.
#[tokio::main(worker_threads = 2)]
async fn run(args: RunArgs) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}; choose another --listen", args.listen))?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(app::run(args.options(|name| std::env::var(name).ok()), listener, stop).await?)
}
