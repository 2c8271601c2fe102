//! Short requests, one after the other on each of several connections, while a test does something else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Result;
use tokio::task::JoinSet;

use crate::client::{self, Request};
use crate::prompts::{chat, fresh_text};
use crate::workers::WorkerConnection;

/// Bytes of a prompt.
const PROMPT_BYTES: usize = 200;

/// What became of one request.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Incarnation that the connection's worker had at first; none if the request had a connection of its own.
    pub worker: Option<String>,
    /// When it was sent.
    pub sent: Instant,
    /// When it was over.
    pub over: Instant,
    /// Status; none if the connection broke.
    pub status: Option<u16>,
    /// The engine that answered.
    pub engine: Option<String>,
}

impl Outcome {
    /// Whether it was answered as it should be.
    #[must_use]
    pub fn fine(&self) -> bool {
        self.status == Some(200)
    }
}

/// Clients at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    clients: JoinSet<Vec<Outcome>>,
}

impl Load {
    /// Clients that keep their connections, so that it is known which worker serves each.
    ///
    /// # Errors
    /// When the connections cannot be opened.
    pub async fn on_kept_connections(listen: SocketAddr, clients: usize) -> Result<Self> {
        let mut load = Self::idle();
        for _ in 0..clients {
            let connection = WorkerConnection::open(listen).await?;
            let (stop, done) = (Arc::clone(&load.stop), Arc::clone(&load.done));
            load.clients.spawn(keep_asking(connection, listen, stop, done));
        }
        Ok(load)
    }

    /// Clients that open a connection for each request.
    #[must_use]
    pub fn on_new_connections(listen: SocketAddr, clients: usize) -> Self {
        let mut load = Self::idle();
        for _ in 0..clients {
            let (stop, done) = (Arc::clone(&load.stop), Arc::clone(&load.done));
            load.clients.spawn(async move {
                let mut outcomes = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let sent = Instant::now();
                    let answer = client::send(listen, &short_request()).await;
                    outcomes.push(outcome(None, sent, &answer));
                    done.fetch_add(1, Ordering::Relaxed);
                }
                outcomes
            });
        }
        load
    }

    fn idle() -> Self {
        Self { stop: Arc::default(), done: Arc::default(), clients: JoinSet::new() }
    }

    /// Requests that are over so far.
    #[must_use]
    pub fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Lets every client finish its last request; returns what became of all of them.
    pub async fn stop(self) -> Vec<Outcome> {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.join_all().await.into_iter().flatten().collect()
    }
}

fn short_request() -> Request {
    Request::chat(&chat(&fresh_text(PROMPT_BYTES), 1))
}

async fn keep_asking(
    mut connection: WorkerConnection,
    listen: SocketAddr,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let answer = connection.send(&short_request()).await;
        outcomes.push(outcome(Some(connection.incarnation.clone()), sent, &answer));
        done.fetch_add(1, Ordering::Relaxed);
        if answer.is_err() {
            // The next worker may be another one. None may answer for a moment.
            while !stop.load(Ordering::Relaxed) {
                if let Ok(another) = WorkerConnection::open(listen).await {
                    connection = another;
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }
    outcomes
}

fn outcome(worker: Option<String>, sent: Instant, answer: &Result<client::Response>) -> Outcome {
    let answer = answer.as_ref().ok();
    Outcome {
        worker,
        sent,
        over: Instant::now(),
        status: answer.map(|answer| answer.status),
        engine: answer.and_then(|answer| answer.engine()).map(str::to_owned),
    }
}
