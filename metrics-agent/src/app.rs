//! Starts the parts and stops them in order.

use crate::config::error::Issue;
use crate::config::{Configuration, watch};
use crate::fleet::{Fleet, Settings, Shared};
use crate::ledger::{self, Ledger};
use crate::publish::discovery::Discovery;
use crate::serve::{Server, connections};
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tracing::{info, warn};

/// Time that answers under way have to end when the agent stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Why the agent cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// There is no good configuration to begin with.
    #[error("configuration refused:\n{}", issues.iter().map(|i| format!("  {i}")).collect::<Vec<_>>().join("\n"))]
    Configuration {
        /// All faults.
        issues: Vec<Issue>,
    },
    /// The folder for Envoy's hosts cannot be made or written.
    #[error("cannot write to {folder} ({source}); create it or choose another --eds-dir")]
    Hosts {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system gives no thread.
    #[error("no thread for KV events or the ledger ({0}); raise the limit of threads")]
    NoThread(std::io::Error),
    /// A part ended that only a fault of the agent's own can end.
    #[error("the {0} ended by a fault; start the agent again, and report what it logged before")]
    Ended(&'static str),
}

/// Everything that `run` can be told.
#[derive(Debug, Clone)]
pub struct Options {
    /// File or folder of the configuration.
    pub config: PathBuf,
    /// Time between two looks at it.
    pub look_every: Duration,
    /// How endpoints are kept.
    pub fleet: Settings,
    /// Where usage records go.
    pub ledger: ledger::Settings,
    /// Bounds of the HTTP server.
    pub connections: connections::Limits,
}

/// Runs the agent on a bound listener until `stop` is done; then drains.
///
/// # Errors
/// If it cannot start, or one of its parts fails.
pub async fn run(
    options: Options,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<(), AppError> {
    let root = options.config.clone();
    let (found, fingerprint) = watch::look(&root);
    let first = found
        .and_then(|sources| Configuration::from_sources(&root, &sources))
        .map_err(|issues| AppError::Configuration { issues })?;
    let shared = Arc::new(Shared::new(epoch()));
    // Now, and not with the first steps of the fleet: an Envoy that is started next needs them.
    let discovery = Discovery::of(&first, &options.fleet.pool);
    shared.publisher.set_discovery(discovery.clone());
    if let Some(folder) = &options.fleet.eds_dir {
        std::fs::create_dir_all(folder)
            .and_then(|()| discovery.write(folder, None))
            .map_err(|source| AppError::Hosts { folder: folder.clone(), source })?;
    }

    let (stop_all, stopping) = tokio::sync::watch::channel(false);
    let (verdict_to, verdicts) = mpsc::channel(1);
    let mut watcher = tokio::spawn(watch::run(root, fingerprint, options.look_every, verdict_to));
    let fleet = Fleet::new(options.fleet, Arc::clone(&shared)).map_err(AppError::NoThread)?;
    let mut fleet = tokio::spawn(fleet.run(first, verdicts));
    let ledger = Ledger::start(options.ledger, now_ms).map_err(AppError::NoThread)?;
    let ledger = Arc::new(ledger);

    if let Ok(address) = listener.local_addr() {
        info!(%address, "listening");
    }
    let router = Server::new(shared, Arc::clone(&ledger), stopping.clone()).router();
    let mut told = stopping;
    let told = async move {
        // An error means that the sender is gone, which is a stop as well.
        let _ = told.wait_for(|stop| *stop).await;
    };
    let mut serving = tokio::spawn(connections::run(listener, router, options.connections, told));

    let ended = tokio::select! {
        () = stop => None,
        // A table that nobody keeps current must not look ready: whoever started us starts us again.
        _ = &mut fleet => Some("fleet"),
        _ = &mut watcher => Some("watcher of the configuration"),
        _ = &mut serving => Some("HTTP server"),
    };
    stop_all.send_replace(true);
    watcher.abort();
    fleet.abort();
    if let Some(part) = ended {
        serving.abort();
        return Err(AppError::Ended(part));
    }
    info!("stopping");
    if tokio::time::timeout(DRAIN, &mut serving).await.is_err() {
        serving.abort();
        warn!("answers under way were cut after {} s", DRAIN.as_secs());
    }
    ledger.stop().await;
    // An aborted task may still be in the middle of a step; what it logs comes before the end.
    let _ = tokio::join!(fleet, watcher);
    info!("stopped");
    Ok(())
}

/// A number that no other run has: the time of the start, and some randomness.
fn epoch() -> u64 {
    let millis = now_ms();
    let random = RandomState::new().hash_one(millis);
    (millis << 16) | (random & 0xffff)
}

/// The system's clock, in ms since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}
