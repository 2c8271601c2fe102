//! A fake engine: `/metrics` on a port of its own, with every way to go wrong.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// What it does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Mode {
    /// Answers with this status and text, and keeps the connection.
    Answer(u16, String),
    /// Answers well and closes.
    AnswerAndClose(String),
    /// Promises more than it sends, and closes.
    Truncate(String),
    /// Sends an endless body.
    Flood,
    /// Never answers.
    Hang,
    /// Closes before it answers.
    Reset,
}

/// Its metrics, for an engine started at `start` (seconds) with `waiting` requests.
pub(crate) fn metrics(start: u64, waiting: u32) -> String {
    format!(
        "process_start_time_seconds {start}\nvllm:num_requests_waiting {waiting}.0\n\
         vllm:num_requests_running 2.0\nvllm:kv_cache_usage_perc 0.5\n\
         vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"1000\"}} 1.0\n"
    )
}

pub(crate) fn good(start: u64, waiting: u32) -> Mode {
    Mode::Answer(200, metrics(start, waiting))
}

pub(crate) struct Engine {
    pub(crate) address: SocketAddr,
    mode: Arc<Mutex<Mode>>,
    /// What it answers to `/kv_event_sources`; 404 if it is empty.
    kv_event_sources: Arc<Mutex<String>>,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    server: Option<JoinHandle<()>>,
    /// Holds the port while nobody listens on it: connecting is refused, and no other test gets it.
    _reserved: TcpSocket,
}

impl Engine {
    /// An engine that listens.
    pub(crate) async fn up(mode: Mode) -> Self {
        let mut engine = Self::down(mode);
        engine.start().await;
        engine
    }

    /// An engine whose port refuses connections until [`Self::start`].
    pub(crate) fn down(mode: Mode) -> Self {
        let reserved = bound(SocketAddr::from(([127, 0, 0, 1], 0)));
        Self {
            address: reserved.local_addr().unwrap(),
            mode: Arc::new(Mutex::new(mode)),
            kv_event_sources: Arc::default(),
            connections: Arc::default(),
            requests: Arc::default(),
            server: None,
            _reserved: reserved,
        }
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    /// Answers to `/kv_event_sources` with this from now on.
    pub(crate) fn publishes(&self, sources: &serde_json::Value) {
        *self.kv_event_sources.lock().unwrap() = sources.to_string();
    }

    pub(crate) async fn start(&mut self) {
        let listener = bound(self.address).listen(64).unwrap();
        let (mode, connections) = (Arc::clone(&self.mode), Arc::clone(&self.connections));
        let requests = Arc::clone(&self.requests);
        let sources = Arc::clone(&self.kv_event_sources);
        self.server = Some(tokio::spawn(async move {
            let mut streams = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                let (mode, requests) = (Arc::clone(&mode), Arc::clone(&requests));
                streams.spawn(serve(stream, mode, Arc::clone(&sources), requests));
            }
        }));
    }

    /// Stops listening and cuts every connection.
    pub(crate) async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            let _ = server.await;
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

async fn serve(
    mut stream: TcpStream,
    mode: Arc<Mutex<Mode>>,
    sources: Arc<Mutex<String>>,
    requests: Arc<AtomicUsize>,
) {
    let mut seen = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        while !seen.ends_with(b"\r\n\r\n") {
            match stream.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(n) => seen.extend_from_slice(&chunk[..n]),
            }
        }
        let now = if seen.starts_with(b"GET /kv_event_sources HTTP/1.1\r\n") {
            let sources = sources.lock().unwrap().clone();
            Mode::Answer(if sources.is_empty() { 404 } else { 200 }, sources)
        } else {
            assert!(seen.starts_with(b"GET /metrics HTTP/1.1\r\n"));
            requests.fetch_add(1, Ordering::Relaxed);
            mode.lock().unwrap().clone()
        };
        seen.clear();
        let head = |status, len| format!("HTTP/1.1 {status} X\r\ncontent-length: {len}\r\n\r\n");
        let (answer, close) = match now {
            Mode::Answer(status, text) => (head(status, text.len()) + &text, false),
            Mode::AnswerAndClose(text) => (head(200, text.len()) + &text, true),
            Mode::Truncate(text) => (head(200, text.len() + 1000) + &text, true),
            Mode::Flood => (head(200, 64 << 20), false),
            Mode::Hang => std::future::pending().await,
            Mode::Reset => return,
        };
        if stream.write_all(answer.as_bytes()).await.is_err() || close {
            return;
        }
        if matches!(*mode.lock().unwrap(), Mode::Flood) {
            let line = b"vllm:num_requests_waiting 99\n".repeat(4096);
            while stream.write_all(&line).await.is_ok() {}
            return;
        }
    }
}
