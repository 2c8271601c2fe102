//! One request over a connection of its own, timed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::sse::{SseReader, StreamFacts};

/// The header in which the simulator says which replica answered.
pub const ENDPOINT_HEADER: &str = "x-sim-endpoint";

/// How an answer went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection.
    Connect,
    /// The connection broke, or what came was not HTTP.
    Broken,
    /// Not within the time given.
    Timeout,
    /// An answer of another status than 200.
    Status(u16),
    /// An `error` object in a stream of status 200.
    EngineError,
    /// The stream ended without `[DONE]` or without content.
    Truncated,
}

/// What became of one request.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From the first byte of the connection to the first chunk with content.
    pub first_token: Option<Duration>,
    /// From the start to the end of the answer.
    pub whole: Duration,
    /// The replica that answered, as `ip:port`.
    pub endpoint: Option<String>,
    /// HTTP status, when an answer came.
    pub status: Option<u16>,
    /// What the stream told.
    pub facts: StreamFacts,
    /// What went wrong, if anything.
    pub failure: Option<Failure>,
}

/// Where to send a body, and how long to wait for the end of the answer.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address to connect to.
    pub address: SocketAddr,
    /// Path, such as `/rr/v1/chat/completions`.
    pub path: String,
    /// Limit for the whole exchange.
    pub timeout: Duration,
    /// Headers to add.
    pub headers: HeaderMap,
}

impl Target {
    /// A target without extra headers.
    #[must_use]
    pub fn new(address: SocketAddr, path: &str, timeout: Duration) -> Self {
        Self { address, path: path.to_owned(), timeout, headers: HeaderMap::new() }
    }
}

/// Posts `body` over a new connection and reads the answer to its end.
pub async fn send(target: &Target, body: Bytes) -> Outcome {
    let start = Instant::now();
    let mut outcome = Outcome {
        first_token: None,
        whole: Duration::ZERO,
        endpoint: None,
        status: None,
        facts: StreamFacts::default(),
        failure: None,
    };
    let exchange = exchange(target, body, start, &mut outcome);
    let result = tokio::time::timeout(target.timeout, exchange).await;
    outcome.failure = result.unwrap_or(Err(Failure::Timeout)).err();
    outcome.whole = start.elapsed();
    outcome
}

async fn exchange(
    target: &Target,
    body: Bytes,
    start: Instant,
    out: &mut Outcome,
) -> Result<(), Failure> {
    let socket = TcpStream::connect(target.address).await.map_err(|_| Failure::Connect)?;
    socket.set_nodelay(true).map_err(|_| Failure::Connect)?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(socket)).await.map_err(|_| Failure::Broken)?;
    // Ends with the exchange: dropping `sender` and the body closes the connection.
    let connection = AbortOnDrop(tokio::spawn(connection));

    let mut request = hyper::Request::post(target.path.as_str())
        .header(HOST, target.address.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(|_| Failure::Broken)?;
    request.headers_mut().extend(target.headers.clone());
    let response = sender.send_request(request).await.map_err(|_| Failure::Broken)?;

    let status = response.status().as_u16();
    out.status = Some(status);
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    out.endpoint = header(ENDPOINT_HEADER).map(str::to_owned);
    let stream =
        header(CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with("text/event-stream"));
    if status != 200 {
        return Err(Failure::Status(status));
    }
    let mut body = response.into_body();
    if stream {
        let mut reader = SseReader::default();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return Err(Failure::Broken) };
            if let Some(data) = frame.data_ref() {
                reader.feed(data);
            }
            out.facts = reader.facts;
            if out.first_token.is_none() && out.facts.content {
                out.first_token = Some(start.elapsed());
            }
        }
    } else {
        let whole = body.collect().await.map_err(|_| Failure::Broken)?.to_bytes();
        out.facts = StreamFacts::of_unary(&whole);
        out.first_token = out.facts.content.then(|| start.elapsed());
    }
    drop(connection);
    match out.facts {
        StreamFacts { error: true, .. } => Err(Failure::EngineError),
        StreamFacts { done: true, content: true, .. } => Ok(()),
        _ => Err(Failure::Truncated),
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<hyper::Result<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
