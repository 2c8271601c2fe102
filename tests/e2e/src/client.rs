//! A plain HTTP/1.1 client: one request, one answer.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Longest exchange before it counts as hung.
const LIMIT: Duration = Duration::from_secs(60);

/// Path of the chat API.
pub const CHAT: &str = "/v1/chat/completions";

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method.
    pub method: &'static str,
    /// Path, with query.
    pub path: String,
    /// Headers besides `host` and the length of the body.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Request {
    /// A POST of JSON to the chat API.
    #[must_use]
    pub fn chat(body: &Value) -> Self {
        Self::post(CHAT, crate::prompts::body(body)).header("content-type", "application/json")
    }

    /// A POST.
    #[must_use]
    pub fn post(path: &str, body: Bytes) -> Self {
        Self { method: "POST", path: path.to_owned(), headers: HeaderMap::new(), body }
    }

    /// A GET.
    #[must_use]
    pub fn get(path: &str) -> Self {
        Self { method: "GET", ..Self::post(path, Bytes::new()) }
    }

    /// The same with one header more.
    ///
    /// # Panics
    /// When the name or value is none of HTTP's.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("a header's name");
        self.headers.append(name, HeaderValue::try_from(value).expect("a header's value"));
        self
    }

    /// The same with this `x-request-id`.
    #[must_use]
    pub fn id(self, id: &str) -> Self {
        self.header("x-request-id", id)
    }
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Response {
    /// A header's value; the first, if there are several.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The engine that answered, `ip:port`.
    #[must_use]
    pub fn engine(&self) -> Option<&str> {
        self.header("x-sim-endpoint")
    }

    /// The body as JSON; null if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection, for requests one after the other.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    task: tokio::task::JoinHandle<()>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(address).await.context("connect")?;
        socket.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
        // How it ends is seen by whoever waits for an answer.
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, host: address.to_string(), task })
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When the connection breaks or no answer comes in time.
    pub async fn send(&mut self, request: &Request) -> Result<Response> {
        let exchange = async {
            let mut out = hyper::Request::builder()
                .method(request.method)
                .uri(&request.path)
                .header("host", &self.host)
                .body(Full::new(request.body.clone()))?;
            out.headers_mut().extend(request.headers.clone());
            self.sender.ready().await?;
            let (head, body) = self.sender.send_request(out).await?.into_parts();
            let body = body.collect().await.context("reading the answer's body")?.to_bytes();
            Ok(Response { status: head.status.as_u16(), headers: head.headers, body })
        };
        tokio::time::timeout(LIMIT, exchange)
            .await
            .with_context(|| format!("{} {}: no whole answer", request.method, request.path))?
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends one request over a connection of its own.
///
/// # Errors
/// When no whole answer comes.
pub async fn send(address: SocketAddr, request: &Request) -> Result<Response> {
    Connection::open(address).await?.send(request).await
}
