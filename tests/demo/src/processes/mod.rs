//! Starts and stops the programs: engine simulator, agent, Envoy.
//!
//! Each is a [`Process`] that is waited for by a condition (a line, a page), writes its logs into a
//! folder of the run, and ends with the value that holds it. [`Stack`] is all three together.

mod agent;
mod bootstrap;
mod control;
mod ending;
mod envoy;
mod histogram;
mod ports;
mod process;
mod programs;
mod serving;
mod simulator;
mod stack;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use agent::{Agent, Known, precise_documents, write_configuration, write_endpoints};
pub use bootstrap::{Bootstrap, render};
pub use control::{Answer, delete, get, get_for, post, post_for};
pub use ending::until_signal;
pub use envoy::Envoy;
pub use histogram::Buckets;
pub use ports::{Ports, free_ports};
pub use process::{Process, Record, Session, resident_mb, wait_until};
pub use programs::{Programs, kv_index_bench, workspace_root};
pub use serving::{
    DEBUG_PATH, ROUND_ROBIN, WARMROUTE, agreed, first_answer, first_answer_of, precise,
};
pub use simulator::{Simulator, SimulatorOptions};
pub use stack::{Stack, StackOptions};

/// Why a program could not be started, reached or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// A file of the project is not where it should be.
    #[error("{what} not found at {path}: {advice}")]
    Missing {
        /// What is missing.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// What to do.
        advice: &'static str,
    },
    /// Reading or writing a file, or starting a program, failed.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The program ended before it was ready.
    #[error("{name} ended early ({status}); the end of its log {log}:\n{tail}")]
    Ended {
        /// Which program.
        name: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A condition did not come true in time.
    #[error("{what} did not happen within {limit:?}; logs are in {logs}")]
    Late {
        /// What was waited for.
        what: String,
        /// For how long.
        limit: Duration,
        /// Where to look.
        logs: PathBuf,
    },
    /// A page of one of the programs could not be had.
    #[error("{method} http://{address}{path}: {reason}")]
    Control {
        /// HTTP method.
        method: &'static str,
        /// Whom was asked.
        address: SocketAddr,
        /// For what.
        path: String,
        /// What came instead.
        reason: String,
    },
    /// The bootstrap template has a placeholder that nothing here fills in.
    #[error("the bootstrap template has an unknown placeholder ${{{0}}}")]
    Placeholder(String),
    /// No free port was left.
    #[error("no free port on 127.0.0.1")]
    NoPort,
}

impl ProcessError {
    fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
