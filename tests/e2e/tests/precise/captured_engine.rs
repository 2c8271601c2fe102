//! An engine that is there in name only: it answers every request shortly, and tells over ZeroMQ what it is given to tell.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use e2e::stack::PATIENCE;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use zeromq::{Socket as _, SocketRecv as _, SocketSend as _, XPubSocket, ZmqMessage};

const ANSWER: &str = r#"{"choices":[{"text":"Hi","finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}"#;

/// What it answers to requests that are not for text.
struct Pages {
    metrics: String,
    sources: String,
}

/// The engine. It ends with this value.
pub(crate) struct CapturedEngine {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    events: XPubSocket,
    topic: Bytes,
    published: u64,
    subscribed: bool,
    _tasks: JoinSet<()>,
}

impl CapturedEngine {
    /// With blocks of so many tokens. Its events go by `topic`.
    pub(crate) async fn start(topic: &str, block_size: usize) -> Result<Self> {
        let mut events = XPubSocket::new();
        let published_at = events.bind("tcp://127.0.0.1:0").await?.to_string();
        let pages = Arc::new(Pages {
            metrics: format!(
                "process_start_time_seconds 1000\n\
                 vllm:num_requests_waiting 0.0\nvllm:num_requests_running 0.0\n\
                 vllm:kv_cache_usage_perc 0.0\n\
                 vllm:cache_config_info{{block_size=\"{block_size}\",num_gpu_blocks=\"10000\"}} 1.0\n"
            ),
            sources: json!({"0": {
                "enable_kv_cache_events": true, "publisher": "zmq", "endpoint": published_at,
                "replay_endpoint": null, "topic": topic,
            }})
            .to_string(),
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let pages = Arc::clone(&pages);
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(request, Arc::clone(&pages)));
                    // An error is a peer that left.
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        let topic = Bytes::copy_from_slice(topic.as_bytes());
        Ok(Self { address, events, topic, published: 0, subscribed: false, _tasks: tasks })
    }

    /// The next batch, as it once was. The first one waits for the subscriber, for a publisher keeps nothing.
    pub(crate) async fn publish(&mut self, payload: Vec<u8>) -> Result<()> {
        if !self.subscribed {
            let subscription = tokio::time::timeout(PATIENCE, self.events.recv()).await;
            subscription.context("nobody subscribed")??;
            self.subscribed = true;
        }
        let number = Bytes::copy_from_slice(&self.published.to_be_bytes());
        let frames = vec![self.topic.clone(), number, payload.into()];
        let message = ZmqMessage::try_from(frames).ok().context("three frames")?;
        self.events.send(message).await?;
        self.published += 1;
        Ok(())
    }
}

async fn answer(
    request: Request<Incoming>,
    pages: Arc<Pages>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = match request.uri().path() {
        "/metrics" => pages.metrics.clone(),
        "/kv_event_sources" => pages.sources.clone(),
        _ => ANSWER.to_owned(),
    };
    // Else the connection cannot be used again. An error is a peer that left.
    let _ = request.into_body().collect().await;
    Ok(Response::new(Full::new(body.into())))
}
