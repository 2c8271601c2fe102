//! A replica's two sockets, which live as long as one engine process.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::sleep_until;
use zeromq::{Endpoint, PubSocket, RouterSocket, Socket, SocketSend as _, ZmqError, ZmqMessage};

use super::KvEventsConfig;
use super::faults::Fate;
use super::line::{Emission, Kept, Line, QUEUE};
use super::{encoding, replay};
use crate::replica::lock;

/// Messages that a subscriber may lag behind; more are dropped, as in vLLM.
const HIGH_WATER_MARK: usize = 100_000;

/// Ports of a source; 0 asks for any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ports {
    /// Of the PUB socket.
    pub events: u16,
    /// Of the ROUTER socket.
    pub replay: u16,
}

/// The publisher of one engine process.
pub struct Source {
    line: Line,
    ports: Ports,
    topic: Bytes,
    config: KvEventsConfig,
    stop_events: Option<oneshot::Sender<()>>,
    stop_replay: Option<oneshot::Sender<()>>,
    events: JoinHandle<()>,
    replay: JoinHandle<()>,
}

impl Source {
    /// Binds both sockets on the loopback interface and starts to publish under `topic`.
    pub async fn open(
        config: &KvEventsConfig,
        ports: Ports,
        topic: String,
    ) -> std::io::Result<Self> {
        let (line, from) = Line::new(config.delay);
        let kept = Arc::new(Mutex::new(Kept::new(config.buffer_steps)));
        let topic = Bytes::from(topic);
        let (mut publisher, mut router) = (PubSocket::new(), RouterSocket::new());
        let ports = Ports {
            events: bind(&mut publisher, ports.events).await?,
            replay: bind(&mut router, ports.replay).await?,
        };
        let (stop_events, stopped) = oneshot::channel();
        let events = tokio::spawn(publish(
            publisher,
            from,
            topic.clone(),
            config.clone(),
            Arc::clone(&kept),
            stopped,
        ));
        let (stop_replay, stopped) = oneshot::channel();
        let replay = tokio::spawn(replay::serve(
            router,
            replay::Answers {
                topic: topic.clone(),
                encoding: config.encoding,
                line: line.clone(),
                kept,
            },
            stopped,
        ));
        Ok(Self {
            line,
            ports,
            topic,
            config: config.clone(),
            stop_events: Some(stop_events),
            stop_replay: Some(stop_replay),
            events,
            replay,
        })
    }

    /// The engine's way to this publisher.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// Where it listens.
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Closes the replay socket; events go on.
    pub async fn close_replay(&mut self) {
        if let Some(stop) = self.stop_replay.take() {
            // Both ends are gone once the task has returned.
            let _ = stop.send(());
            let _ = (&mut self.replay).await;
        }
    }

    /// Closes both sockets and every connection to them.
    pub async fn close(&mut self) {
        self.close_replay().await;
        if let Some(stop) = self.stop_events.take() {
            let _ = stop.send(());
            let _ = (&mut self.events).await;
        }
    }

    /// One entry of `GET /kv_event_sources`.
    pub fn describe(&self) -> Value {
        json!({
            "enable_kv_cache_events": true,
            "publisher": "zmq",
            "endpoint": format!("tcp://*:{}", self.ports.events),
            "replay_endpoint": format!("tcp://*:{}", self.ports.replay),
            "buffer_steps": self.config.buffer_steps,
            "hwm": HIGH_WATER_MARK,
            "max_queue_size": QUEUE,
            "topic": String::from_utf8_lossy(&self.topic),
        })
    }
}

async fn bind(socket: &mut impl Socket, port: u16) -> std::io::Result<u16> {
    match socket.bind(&format!("tcp://127.0.0.1:{port}")).await {
        Ok(Endpoint::Tcp(_, port)) => Ok(port),
        Ok(other) => Err(std::io::Error::other(format!("bound to {other} instead of a TCP port"))),
        Err(ZmqError::Network(error)) => Err(error),
        Err(error) => Err(std::io::Error::other(error)),
    }
}

/// Sends what the engine hands over, in order and each batch when it is due, until told to stop.
async fn publish(
    mut socket: PubSocket,
    mut from: mpsc::Receiver<Emission>,
    topic: Bytes,
    config: KvEventsConfig,
    kept: Arc<Mutex<Kept>>,
    mut stopped: oneshot::Receiver<()>,
) {
    loop {
        let emission = tokio::select! {
            emission = from.recv() => emission,
            _ = &mut stopped => break,
        };
        // A line without an engine stays open until the source is closed.
        let Some(Emission { seq, at, due, fate, events }) = emission else { break };
        if !config.delay.is_zero() {
            tokio::select! {
                () = sleep_until(due) => {}
                _ = &mut stopped => break,
            }
        }
        let payload = Bytes::from(encoding::encode(at, &events, config.encoding, config.hashes));
        if fate != Fate::Lost {
            lock(&kept).push(seq, payload.clone());
        }
        if fate == Fate::Sent {
            let mut message = ZmqMessage::from(topic.clone());
            message.push_back(Bytes::copy_from_slice(&seq.to_be_bytes()));
            message.push_back(payload);
            // It never waits: a slow subscriber loses batches, as it does with vLLM.
            let _ = socket.send(message).await;
        }
    }
    close(socket).await;
}

/// Returns once the port is refused; connections end with the socket.
pub(super) async fn close(socket: impl Socket) {
    // Nothing can be done about a listener that ended with an error.
    let _ = socket.close().await;
}
