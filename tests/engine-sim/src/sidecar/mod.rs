//! llm-d's routing sidecar in front of an engine that decodes: it has a port of its own, and where a request names
//! an engine for prefill it asks that one first.
//!
//! [`legs`] says what is sent to whom; this file listens, sends and counts.

pub mod legs;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, http};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::replica::listener;
use crate::replica::stream::Cut;
use legs::Legs;

/// Names the engine that computes the prompt, `ip:port`.
pub const PREFILLER: &str = "x-prefiller-host-port";

/// Longest body of a request or of an answer to a prefill, bytes.
const MAX_BODY: usize = 64 << 20;

/// Headers that are not passed on.
const DROPPED: [&str; 6] =
    [PREFILLER, "host", "connection", "content-length", "transfer-encoding", "keep-alive"];

type Body = BoxBody<Bytes, hyper::Error>;

/// What a sidecar did so far.
#[derive(Debug, Default)]
pub struct Counts {
    prefills: AtomicU64,
    fallbacks: AtomicU64,
    local: AtomicU64,
}

/// A sidecar that listens until it is dropped.
pub struct Sidecar {
    /// Where.
    pub addr: SocketAddr,
    counts: Arc<Counts>,
    task: JoinHandle<()>,
}

impl Sidecar {
    /// A sidecar of the engine at `engine`, on `port` (0 for any) of the loopback interface.
    ///
    /// # Errors
    /// If the port cannot be bound.
    pub async fn start(port: u16, engine: SocketAddr) -> std::io::Result<Self> {
        let socket = listener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await?;
        let addr = socket.local_addr()?;
        let counts = Arc::new(Counts::default());
        let proxy = Proxy {
            addr,
            engine,
            counts: Arc::clone(&counts),
            client: Client::builder(TokioExecutor::new()).build_http(),
        };
        let task = tokio::spawn(accept(socket, Arc::new(proxy)));
        Ok(Self { addr, counts, task })
    }

    /// For `GET /state`.
    pub fn state(&self) -> serde_json::Value {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
            "endpoint": self.addr.to_string(),
            "port": self.addr.port(),
            "prefills": count(&self.counts.prefills),
            "fallbacks": count(&self.counts.fallbacks),
            "local": count(&self.counts.local),
        })
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(socket: TcpListener, proxy: Arc<Proxy>) {
    // Ends the conversations with the sidecar.
    let mut conversations = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => {
                    conversations.spawn(converse(stream, Arc::clone(&proxy)));
                }
                // Out of descriptors: let some close before trying again.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            },
            Some(_) = conversations.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, proxy: Arc<Proxy>) {
    // Events must leave as they appear. Failing to set it costs delay only.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let proxy = Arc::clone(&proxy);
        async move { proxy.serve(request).await }
    });
    // An error here is a client that went away, or an engine that did: nothing to report.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

struct Proxy {
    addr: SocketAddr,
    engine: SocketAddr,
    counts: Arc<Counts>,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// Why a prefill gave nothing to go on with.
enum NoPrefill {
    /// The engine cannot do it: the prompt is computed here.
    Unable,
    /// The request is at fault: the client gets this.
    Refused(Response<Body>),
}

impl Proxy {
    /// Answers one request. An engine that does not answer takes the connection with it, as a pod does.
    async fn serve(&self, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(|_| Cut)?.to_bytes();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let prefiller = parts.headers.get(PREFILLER).and_then(|value| value.to_str().ok());
        let legs = prefiller.and_then(|_| Legs::of(parts.uri.path(), &body));
        let (mut decode, mut asked) = (body.clone(), None);
        match (prefiller, legs) {
            (Some(prefiller), Some(legs)) => {
                let Some(target) = loopback(prefiller) else {
                    return Ok(refusal("x-prefiller-host-port is no port of this machine"));
                };
                match self.prefill(target, path, &parts.headers, &legs).await {
                    Ok(offer) => {
                        self.counts.prefills.fetch_add(1, Ordering::Relaxed);
                        decode = legs.decode(&offer).into();
                        asked = HeaderValue::try_from(prefiller).ok();
                    }
                    Err(NoPrefill::Unable) => {
                        self.counts.fallbacks.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(NoPrefill::Refused(response)) => return Ok(response),
                }
            }
            _ if parts.method == Method::POST => {
                self.counts.local.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        let sent = self.send(self.engine, &parts.method, path, &parts.headers, decode).await;
        let mut response = sent.map_err(|_| Cut)?.map(BodyExt::boxed);
        let headers = response.headers_mut();
        for name in ["connection", "transfer-encoding", "keep-alive"] {
            headers.remove(name);
        }
        if let Ok(addr) = HeaderValue::try_from(self.addr.to_string()) {
            headers.insert(HeaderName::from_static("x-sim-sidecar"), addr);
        }
        asked.map(|asked| headers.insert(HeaderName::from_static("x-sim-prefiller"), asked));
        Ok(response)
    }

    /// Has the prompt computed elsewhere; returns where its KV then is, as raw JSON.
    async fn prefill(
        &self,
        target: SocketAddr,
        path: &str,
        headers: &HeaderMap,
        legs: &Legs<'_>,
    ) -> Result<String, NoPrefill> {
        let sent = self.send(target, &Method::POST, path, headers, legs.prefill().into()).await;
        let response = sent.map_err(|_| NoPrefill::Unable)?;
        let status = response.status();
        if status.is_server_error() {
            return Err(NoPrefill::Unable);
        }
        if !status.is_success() {
            return Err(NoPrefill::Refused(response.map(BodyExt::boxed)));
        }
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|_| NoPrefill::Unable)?.to_bytes();
        legs::offer(&body).ok_or(NoPrefill::Unable)
    }

    async fn send(
        &self,
        target: SocketAddr,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, NotSent> {
        let uri = Uri::builder().scheme("http").authority(target.to_string()).path_and_query(path);
        let mut request = Request::builder().method(method).uri(uri.build()?);
        for (name, value) in headers {
            if !DROPPED.contains(&name.as_str()) {
                request = request.header(name, value);
            }
        }
        let request = request.body(Full::new(body))?;
        Ok(self.client.request(request).await?)
    }
}

/// Why a request did not reach its engine.
#[derive(Debug, thiserror::Error)]
enum NotSent {
    #[error("the request cannot be written: {0}")]
    Request(#[from] http::Error),
    #[error("the engine cannot be asked: {0}")]
    Client(#[from] hyper_util::client::legacy::Error),
}

/// An address that is this machine's: nothing else is talked to.
fn loopback(text: &str) -> Option<SocketAddr> {
    text.parse::<SocketAddr>().ok().filter(|addr| addr.ip().is_loopback())
}

fn refusal(message: &str) -> Response<Body> {
    let body = json!({ "error": { "message": message, "type": "BadRequestError", "code": 400 } });
    let body = Full::from(body.to_string()).map_err(|never: Infallible| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_talked_to() {
        for (text, fine) in [
            ("127.0.0.1:9101", true),
            ("[::1]:9101", true),
            ("10.0.0.1:9101", false),
            ("localhost:9101", false),
            ("127.0.0.1", false),
            ("", false),
        ] {
            assert_eq!(loopback(text).is_some(), fine, "{text}");
        }
    }
}
