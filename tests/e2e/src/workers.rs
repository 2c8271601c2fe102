//! Connections of which the test knows the worker that serves them.
//!
//! Envoy never moves a connection to another worker, and the filter's debug page tells who answered it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::client::{Connection, Request, Response};
use crate::stack::DEBUG_PATH;
use crate::state::FilterState;

/// Connections tried until every worker has got one: with 8 workers 22 suffice on average.
const TRIES: usize = 1000;

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

/// A connection to one worker.
pub struct WorkerConnection {
    connection: Connection,
    /// Incarnation of the worker's VM when the connection was opened.
    pub incarnation: String,
}

impl WorkerConnection {
    /// Opens a connection to whichever worker takes it.
    ///
    /// # Errors
    /// When that worker does not tell its state.
    pub async fn open(listen: SocketAddr) -> Result<Self> {
        let mut connection = Connection::open(listen).await?;
        let incarnation = ask(&mut connection).await?.incarnation;
        Ok(Self { connection, incarnation })
    }

    /// The state of this worker's VM, whichever incarnation it has by now.
    ///
    /// # Errors
    /// When it does not tell.
    pub async fn state(&mut self) -> Result<FilterState> {
        ask(&mut self.connection).await
    }

    /// Waits until the worker answers again after its VM trapped: Envoy loads none within a moment of the
    /// last load. Returns the new VM's state.
    ///
    /// # Errors
    /// When it does not within `limit`.
    pub async fn reloaded(&mut self, limit: Duration) -> Result<FilterState> {
        let since = Instant::now();
        loop {
            match self.state().await {
                Err(why) if since.elapsed() > limit => return Err(why),
                Err(_) => tokio::time::sleep(POLL).await,
                Ok(state) => return Ok(state),
            }
        }
    }

    /// Waits until this worker's state is as wanted.
    ///
    /// # Errors
    /// When it is not within `limit`: `what` did not happen.
    pub async fn until(
        &mut self,
        limit: Duration,
        what: &str,
        wanted: impl Fn(&FilterState) -> bool,
    ) -> Result<FilterState> {
        let since = Instant::now();
        loop {
            let state = self.state().await?;
            if wanted(&state) {
                return Ok(state);
            }
            ensure!(since.elapsed() < limit, "{what} did not happen within {limit:?}: {state:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When no whole answer comes.
    pub async fn send(&mut self, request: &Request) -> Result<Response> {
        self.connection.send(request).await
    }

    /// Sends a request, which must be answered with 200; returns the engine that did.
    ///
    /// # Errors
    /// On any other answer.
    pub async fn served(&mut self, request: &Request) -> Result<String> {
        let answer = self.send(request).await?;
        ensure!(answer.status == 200, "status {}: {}", answer.status, answer.text());
        Ok(answer.engine().context("x-sim-endpoint")?.to_owned())
    }
}

async fn ask(connection: &mut Connection) -> Result<FilterState> {
    let answer = connection.send(&Request::get(DEBUG_PATH)).await?;
    ensure!(answer.status == 200, "{DEBUG_PATH}: status {}", answer.status);
    serde_json::from_slice(&answer.body).context(DEBUG_PATH)
}

/// One connection to each of the `workers` workers, in no particular order.
///
/// # Errors
/// When so many different ones do not answer.
pub async fn one_each(listen: SocketAddr, workers: usize) -> Result<Vec<WorkerConnection>> {
    Ok(some_each(listen, workers, 1).await?.into_iter().flatten().collect())
}

/// `count` connections to each of the `workers` workers: Envoy closes one when its worker traps.
///
/// # Errors
/// When so many different ones do not answer.
pub async fn some_each(
    listen: SocketAddr,
    workers: usize,
    count: usize,
) -> Result<Vec<Vec<WorkerConnection>>> {
    let mut found: BTreeMap<String, Vec<WorkerConnection>> = BTreeMap::new();
    for _ in 0..TRIES {
        let one = WorkerConnection::open(listen).await?;
        let same = found.entry(one.incarnation.clone()).or_default();
        if same.len() < count {
            same.push(one);
        }
        if found.len() == workers && found.values().all(|same| same.len() == count) {
            return Ok(found.into_values().collect());
        }
    }
    bail!("{} of {workers} workers answered on {TRIES} connections", found.len())
}
