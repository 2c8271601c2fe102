//! Asks every worker of Envoy for its state again and again: a worker looks for news only when it is
//! asked something, so that how soon it could see an event is known no finer than it is asked.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use warmroute_demo::processes::DEBUG_PATH;

/// Connections, each of which stays with the worker that took it.
const CONNECTIONS: usize = 32;

/// Probes under way; they end with it.
pub struct Probes {
    // Ends its tasks when it is dropped.
    _tasks: JoinSet<()>,
    answered: Arc<Mutex<BTreeSet<String>>>,
}

impl Probes {
    /// Opens 32 connections and begins to ask, on each of them once in a `period`.
    ///
    /// # Errors
    /// When Envoy cannot be reached.
    pub async fn start(listen: SocketAddr, period: Duration) -> Result<Self> {
        let answered = Arc::new(Mutex::new(BTreeSet::new()));
        let mut tasks = JoinSet::new();
        for number in 0..CONNECTIONS {
            let socket = TcpStream::connect(listen).await.context("a probe of Envoy")?;
            socket.set_nodelay(true)?;
            let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
            let answered = Arc::clone(&answered);
            tasks.spawn(async move {
                // Apart from each other, so that a worker's are spread over the period.
                let apart = period.mul_f64(number as f64 / CONNECTIONS as f64);
                tokio::select! {
                    // It ends when the connection does; `workers` then tells who was never asked.
                    _ = connection => {}
                    () = ask(sender, listen, (apart, period), &answered) => {}
                }
            });
        }
        Ok(Self { _tasks: tasks, answered })
    }

    /// Workers that answered so far.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

async fn ask(
    mut sender: SendRequest<Empty<Bytes>>,
    listen: SocketAddr,
    (apart, period): (Duration, Duration),
    answered: &Mutex<BTreeSet<String>>,
) {
    tokio::time::sleep(apart).await;
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = false;
    loop {
        ticks.tick().await;
        let request = hyper::Request::get(DEBUG_PATH).header("host", listen.to_string());
        let Ok(request) = request.body(Empty::new()) else { return };
        let Ok(response) = sender.send_request(request).await else { return };
        let Ok(body) = response.into_body().collect().await else { return };
        if !told {
            let state: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
            if let Some(incarnation) = state["incarnation"].as_str() {
                let mut all = answered.lock().unwrap_or_else(PoisonError::into_inner);
                all.insert(incarnation.to_owned());
                told = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn each_connection_asks_again_and_workers_are_counted_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let probes = Probes::start(listener.local_addr().unwrap(), Duration::from_millis(20));
        let (asked, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let serve = tokio::spawn(async move {
            for number in 0..CONNECTIONS {
                let (mut socket, _) = listener.accept().await.unwrap();
                let asked = asked.clone();
                tokio::spawn(async move {
                    let body = format!(r#"{{"incarnation":"vm-{}"}}"#, number % 3);
                    let answer =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    let mut request = [0; 512];
                    while socket.read(&mut request).await.is_ok_and(|n| n > 0) {
                        socket.write_all(answer.as_bytes()).await.unwrap();
                        let _ = asked.send(number);
                    }
                });
            }
        });
        let probes = probes.await.unwrap();
        serve.await.unwrap();
        let mut seen = [0; CONNECTIONS];
        while seen.iter().any(|&count| count < 2) {
            seen[heard.recv().await.unwrap()] += 1;
        }
        assert_eq!(probes.workers(), 3);
    }
}
