//! An engine that answers any request with what it got, and counts a body's bytes while they come.
//!
//! It answers `/metrics`, so that the agent takes it in, with whatever a test wants it to show.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use xxhash_rust::xxh3::Xxh3;

/// Bodies up to this are echoed.
const SHORT_BODY: usize = 1 << 16;

/// What an engine at rest shows.
const METRICS: &str = "process_start_time_seconds 1000\n\
    vllm:num_requests_waiting 0.0\nvllm:num_requests_running 0.0\nvllm:kv_cache_usage_perc 0.0\n\
    vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10000\"} 1.0\n";

/// The engine. It ends with this value.
pub struct EchoEngine {
    /// Where it listens.
    pub address: SocketAddr,
    received: Arc<AtomicU64>,
    metrics: Arc<Mutex<String>>,
    _tasks: JoinSet<()>,
}

impl EchoEngine {
    /// Starts to listen.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let received = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&received);
        let metrics = Arc::new(Mutex::new(METRICS.to_owned()));
        let shown = Arc::clone(&metrics);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (counted, shown) = (Arc::clone(&counted), Arc::clone(&shown));
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        answer(request, Arc::clone(&counted), Arc::clone(&shown), address)
                    });
                    // An error is a peer that left.
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Ok(Self { address, received, metrics, _tasks: tasks })
    }

    /// What `/metrics` shows from now on.
    pub fn show(&self, metrics: impl Into<String>) {
        *self.metrics.lock().unwrap_or_else(PoisonError::into_inner) = metrics.into();
    }

    /// Bytes of request bodies so far, also of those that still come.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// `{"model", "method", "path", "headers": [[name, value], …], "body", "body_bytes", "body_xxh3"}`: `model` is the
/// body's, `body` its text if it is short.
async fn answer(
    request: Request<Incoming>,
    received: Arc<AtomicU64>,
    metrics: Arc<Mutex<String>>,
    address: SocketAddr,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/metrics" {
        let metrics = metrics.lock().unwrap_or_else(PoisonError::into_inner).clone();
        return Ok(Response::new(Full::from(metrics)));
    }
    let (head, mut body) = request.into_parts();
    let (mut bytes, mut hash) = (0, Xxh3::new());
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            bytes += data.len();
            hash.update(data);
            if bytes <= SHORT_BODY {
                text.extend_from_slice(data);
            }
            received.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
    }
    let headers: Vec<(&str, String)> = head
        .headers
        .iter()
        .map(|(name, value)| {
            (name.as_str(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect();
    let text = if bytes <= SHORT_BODY { String::from_utf8_lossy(&text) } else { "".into() };
    let parsed: Value = serde_json::from_str(&text).unwrap_or_default();
    let seen = json!({
        "model": parsed["model"],
        "engine": address.to_string(),
        "body": text,
        "method": head.method.as_str(),
        "path": head.uri.to_string(),
        "headers": headers,
        "body_bytes": bytes,
        "body_xxh3": format!("{:016x}", hash.digest()),
    });
    let json = HeaderValue::from_static("application/json");
    let mut response = Response::new(Full::from(seen.to_string()));
    response.headers_mut().insert("content-type", json);
    Ok(response)
}
