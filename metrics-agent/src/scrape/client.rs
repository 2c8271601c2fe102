//! One endpoint's kept-alive HTTP/1.1 connection for scrapes.
//!
//! hyper's connection and no pooled client: exactly one connection an endpoint, and the
//! difference between "refused", "reset before an answer" and "answered badly" must not be lost.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Body as _;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header;
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// Bytes of an exposition that are read at most.
pub const MAX_BODY_BYTES: usize = 2 << 20;

/// Bytes that a connection reads at once: by default its buffer grows to six times that, and there is one for each
/// endpoint.
const READ_BYTES: usize = 64 << 10;

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetch {
    /// This machine had no means to ask: no file descriptor or memory was left.
    Untried,
    /// Nobody listens, or a fresh connection was reset before any answer.
    Refused,
    /// No answer in time, or none that is HTTP, or there is no way to the host.
    NoAnswer,
    /// An answer without a whole body, or of another status than 200.
    Unreadable,
    /// The body of an answer of status 200.
    Body(Vec<u8>),
}

enum Sent {
    Answer(hyper::Response<hyper::body::Incoming>),
    Reset,
    NoAnswer,
}

/// The connection, opened when first needed and again after a fault.
pub struct Client {
    address: SocketAddr,
    host: String,
    sender: Option<SendRequest<Empty<Bytes>>>,
}

impl Client {
    /// A client for one endpoint; connects to nothing yet.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self { address, host: address.to_string(), sender: None }
    }

    /// Gets `path` within `timeout`, connecting included.
    pub async fn get(&mut self, path: &str, timeout: Duration) -> Fetch {
        let deadline = Instant::now() + timeout;
        let kept = self.sender.take().filter(|sender| !sender.is_closed());
        if let Some(sender) = kept {
            match self.send(sender, path, deadline).await {
                Sent::Answer(response) => return self.read(response, deadline).await,
                Sent::NoAnswer => return Fetch::NoAnswer,
                // A server may close a connection that was idle: only a fresh one tells.
                Sent::Reset => {}
            }
        }
        let sender = match timeout_at(deadline, connect(self.address)).await {
            Err(_) => return Fetch::NoAnswer,
            Ok(Err(fetch)) => return fetch,
            Ok(Ok(sender)) => sender,
        };
        match self.send(sender, path, deadline).await {
            Sent::Answer(response) => self.read(response, deadline).await,
            Sent::NoAnswer => Fetch::NoAnswer,
            Sent::Reset => Fetch::Refused,
        }
    }

    async fn send(
        &mut self,
        mut sender: SendRequest<Empty<Bytes>>,
        path: &str,
        deadline: Instant,
    ) -> Sent {
        let request = hyper::Request::get(path)
            .header(header::HOST, &self.host)
            .header(header::ACCEPT, "text/plain;version=0.0.4")
            .header(header::USER_AGENT, "warmroute-agent")
            .body(Empty::new());
        let Ok(request) = request else { return Sent::NoAnswer };
        let sent = timeout_at(deadline, async {
            sender.ready().await?;
            sender.send_request(request).await
        });
        match sent.await {
            Err(_) => Sent::NoAnswer,
            Ok(Err(error)) if error.is_parse() => Sent::NoAnswer,
            Ok(Err(_)) => Sent::Reset,
            Ok(Ok(response)) => {
                self.sender = Some(sender);
                Sent::Answer(response)
            }
        }
    }

    /// Reads the body; whatever ends early costs the connection, whose rest would be in the way.
    async fn read(
        &mut self,
        response: hyper::Response<hyper::body::Incoming>,
        deadline: Instant,
    ) -> Fetch {
        let ok = response.status() == hyper::StatusCode::OK;
        let mut body = response.into_body();
        // Not kept for the next scrape: bodies of thousands of endpoints would all stay in memory.
        let expected = usize::try_from(body.size_hint().lower()).unwrap_or(MAX_BODY_BYTES);
        let mut bytes = Vec::with_capacity(expected.min(MAX_BODY_BYTES));
        let whole = timeout_at(deadline, async {
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                let Some(data) = frame.data_ref() else { continue };
                if bytes.len().saturating_add(data.len()) > MAX_BODY_BYTES {
                    return false;
                }
                bytes.extend_from_slice(data);
            }
            true
        });
        if !whole.await.unwrap_or(false) {
            self.sender = None;
            return Fetch::Unreadable;
        }
        if ok { Fetch::Body(bytes) } else { Fetch::Unreadable }
    }
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Empty<Bytes>>, Fetch> {
    let stream = TcpStream::connect(address).await.map_err(|error| not_connected(&error))?;
    let handshake = http1::Builder::new().max_buf_size(READ_BYTES).handshake(TokioIo::new(stream));
    let (sender, connection) = handshake.await.map_err(|_| Fetch::Refused)?;
    // Ends by itself when the sender is dropped or the peer closes.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// What a failed connect says of the endpoint, if anything.
fn not_connected(error: &io::Error) -> Fetch {
    if let Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) =
        Errno::from_io_error(error)
    {
        return Fetch::Untried;
    }
    match error.kind() {
        ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::HostUnreachable => Fetch::Refused,
        _ => Fetch::NoAnswer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_this_machine_is_not_the_endpoints() {
        let cases = [
            (Errno::MFILE, Fetch::Untried),
            (Errno::NFILE, Fetch::Untried),
            (Errno::NOBUFS, Fetch::Untried),
            (Errno::NOMEM, Fetch::Untried),
            (Errno::CONNREFUSED, Fetch::Refused),
            (Errno::HOSTUNREACH, Fetch::Refused),
            (Errno::NETUNREACH, Fetch::NoAnswer),
            (Errno::TIMEDOUT, Fetch::NoAnswer),
        ];
        for (errno, expected) in cases {
            assert_eq!(not_connected(&errno.into()), expected, "{errno:?}");
        }
    }
}
