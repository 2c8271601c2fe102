//! An HTTP/2 client (without TLS) that chooses its frames: which bytes are in which DATA frame, trailers, an open end.

use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong, RecvStream, SendStream};
use hyper::HeaderMap;
use tokio::net::TcpStream;

use crate::client::Response;

/// Longest exchange before it counts as hung.
const LIMIT: Duration = Duration::from_secs(60);

/// A connection.
pub struct H2Connection {
    sender: SendRequest<Bytes>,
    pings: PingPong,
    host: String,
    task: tokio::task::JoinHandle<()>,
}

/// How a request's body ends.
#[derive(Clone, Debug, Default)]
pub enum End {
    /// The last DATA frame ends the stream.
    #[default]
    LastFrame,
    /// An empty DATA frame does.
    EmptyFrame,
    /// Trailers do.
    Trailers(HeaderMap),
    /// It does not end before the answer has come.
    Open,
}

impl H2Connection {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let (sender, mut connection) = h2::client::handshake(socket).await?;
        let pings = connection.ping_pong().context("pings are taken")?;
        // How it ends is seen by whoever waits for an answer.
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, pings, host: address.to_string(), task })
    }

    /// Sends a POST of JSON with `frames` as its DATA frames, and reads the whole answer.
    ///
    /// A server may answer early and then reset the stream without an error. But curl and Node's client, which
    /// are still sending, lose the answer then: so that is a failure here, unless the body was to stay open.
    ///
    /// # Errors
    /// When the stream or the connection breaks, or no answer comes in time.
    pub async fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        frames: Vec<Bytes>,
        end: End,
    ) -> Result<Response> {
        let exchange = async {
            let mut head = hyper::Request::post(format!("http://{}{path}", self.host))
                .header("content-type", "application/json");
            for (name, value) in headers {
                head = head.header(*name, *value);
            }
            self.sender = self.sender.clone().ready().await?;
            let (answer, mut body) = self.sender.send_request(head.body(())?, false)?;
            // Whether the other side takes it all shows in its answer: it may have heard enough.
            let open = matches!(end, End::Open);
            let _ = send_body(&mut body, frames, end);
            let answer = read(answer).await?;
            // Whatever follows the answer comes before this ping's answer.
            self.pings.ping(Ping::opaque()).await?;
            match std::future::poll_fn(|cx| Poll::Ready(body.poll_reset(cx))).await {
                Poll::Ready(Ok(reason)) if !open => {
                    bail!("answered with {}, but then reset ({reason})", answer.status)
                }
                _ => Ok(answer),
            }
        };
        tokio::time::timeout(LIMIT, exchange).await.context("no whole answer")?
    }
}

impl Drop for H2Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn send_body(body: &mut SendStream<Bytes>, frames: Vec<Bytes>, end: End) -> Result<(), h2::Error> {
    let last = frames.len().saturating_sub(1);
    for (index, frame) in frames.into_iter().enumerate() {
        body.send_data(frame, index == last && matches!(end, End::LastFrame))?;
    }
    match end {
        End::LastFrame | End::Open => Ok(()),
        End::EmptyFrame => body.send_data(Bytes::new(), true),
        End::Trailers(trailers) => body.send_trailers(trailers),
    }
}

async fn read(answer: ResponseFuture) -> Result<Response> {
    let (head, body) = answer.await.context("no answer")?.into_parts();
    let body = read_body(body).await.context("reading the answer's body")?;
    Ok(Response { status: head.status.as_u16(), headers: head.headers, body })
}

async fn read_body(mut stream: RecvStream) -> Result<Bytes> {
    let mut body = Vec::new();
    while let Some(piece) = stream.data().await {
        let piece = piece?;
        stream.flow_control().release_capacity(piece.len())?;
        body.extend_from_slice(&piece);
    }
    Ok(body.into())
}
