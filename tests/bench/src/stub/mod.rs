//! Engines that answer at once, many in one process: what is measured is the way to them.
//!
//! Beside the answers they have vLLM's metrics and publish KV events on order:
//! `GET /bench/hold?LENGTH` has every engine store all prompts of a length, `GET /bench/fill?BLOCKS` spreads that many
//! blocks of the index, of other prompts, over the engines.

mod answers;
mod connection;
mod engines;
mod metrics;

use std::io::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

pub use engines::Engines;

/// How the stub is started.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Options {
    /// Engines, each on a free port of 127.0.0.1
    #[arg(long, default_value_t = 10)]
    pub endpoints: usize,
    /// Bytes of each engine's metrics, at least
    #[arg(long, default_value_t = 0)]
    pub metrics_bytes: usize,
    /// Whether they publish KV events
    #[arg(long)]
    pub events: bool,
}

/// The line that is printed once all ports are open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Each engine's address.
    pub endpoints: Vec<SocketAddr>,
}

/// Serves until the process ends; to be run on one thread.
///
/// # Errors
/// When a port cannot be opened.
pub async fn serve(options: Options) -> anyhow::Result<()> {
    let mut listeners = Vec::new();
    for _ in 0..options.endpoints {
        listeners.push(TcpListener::bind(("127.0.0.1", 0)).await?);
    }
    let addresses: Vec<SocketAddr> =
        listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
    let engines = Rc::new(Engines::open(options, &addresses).await?);
    let tasks = tokio::task::LocalSet::new();
    for (index, listener) in listeners.into_iter().enumerate() {
        let engines = Rc::clone(&engines);
        tasks.spawn_local(async move {
            loop {
                // Out of descriptors: some will be closed.
                let Ok((socket, _)) = listener.accept().await else {
                    tokio::task::yield_now().await;
                    continue;
                };
                let engines = Rc::clone(&engines);
                tokio::task::spawn_local(async move {
                    // A client that goes away early gets no answer.
                    let _ = connection::serve(socket, index, &engines).await;
                });
            }
        });
    }
    let ready = serde_json::to_string(&Ready { endpoints: addresses })?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{ready}").and_then(|()| stdout.flush())?;
    tasks.run_until(std::future::pending::<()>()).await;
    Ok(())
}
