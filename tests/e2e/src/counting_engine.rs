//! An engine that takes a while for each request and knows how many it ever had at once.
//!
//! It answers `/metrics`, so that the agent takes it in. A request whose connection ends counts no longer.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What an engine at rest shows.
const METRICS: &str = "process_start_time_seconds 1000\n\
    vllm:num_requests_waiting 0.0\nvllm:num_requests_running 0.0\nvllm:kv_cache_usage_perc 0.0\n\
    vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10000\"} 1.0\n";

/// The answer.
const ANSWER: &str = r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}"#;

/// The engine. It ends with this value.
#[derive(Debug)]
pub struct CountingEngine {
    /// Where it listens.
    pub address: SocketAddr,
    counts: Arc<Counts>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Counts {
    now: AtomicU64,
    most: AtomicU64,
}

/// A request that counts.
struct Counted(Arc<Counts>);

impl Counted {
    fn new(counts: Arc<Counts>) -> Self {
        let now = counts.now.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most.fetch_max(now, Ordering::SeqCst);
        Self(counts)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl CountingEngine {
    /// Starts to listen; each request takes `work`.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn start(work: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let counts = Arc::clone(&counted);
                connections.spawn(async move {
                    let service =
                        service_fn(move |request| answer(request, Arc::clone(&counts), work));
                    // An error is a peer that left.
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, counts, _tasks: tasks })
    }

    /// Requests that it ever had at once.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.counts.most.load(Ordering::SeqCst)
    }
}

async fn answer(
    request: Request<Incoming>,
    counts: Arc<Counts>,
    work: Duration,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/metrics" {
        return Ok(Response::new(Full::from(METRICS)));
    }
    let _counted = Counted::new(counts);
    // An error is a peer that left, of which this never hears the end.
    let _ = request.into_body().collect().await;
    tokio::time::sleep(work).await;
    let mut response = Response::new(Full::from(ANSWER));
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", json);
    Ok(response)
}
