//! Closed and open loops over kept-alive connections.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};

use crate::http::read_head;
use crate::workload::{Case, KEY};

/// A request that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(60);
/// Failures in a row after which a connection gives up.
const PATIENCE: usize = 20;
const BUFFER: usize = 64 << 10;

/// What a loop measured, in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// From the first byte sent to the last one read.
    pub whole_us: Vec<f64>,
    /// From the first byte sent to the first of the answer's body.
    pub first_us: Vec<f64>,
    /// Requests that failed.
    pub failures: usize,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each connection sends its next request as soon as the last one is answered.
    Closed {
        /// No request begins after this time.
        time: Duration,
    },
    /// So many a second, whether answers come or not.
    Open {
        /// Requests a second.
        rate: f64,
        /// No request begins after this time.
        time: Duration,
    },
}

/// Requests of one kind to one address.
pub struct Load {
    address: SocketAddr,
    requests: Vec<Bytes>,
    /// Lines of the answer's stream, if it is one.
    lines: Option<usize>,
    next: Cell<usize>,
}

impl Load {
    /// The bodies are sent in turn.
    #[must_use]
    pub fn new(case: Case, address: SocketAddr, bodies: &[Bytes]) -> Self {
        let request = |body: &Bytes| {
            let head = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
                 authorization: Bearer {KEY}\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            Bytes::from([head.as_bytes(), body].concat())
        };
        Self {
            address,
            requests: bodies.iter().map(request).collect(),
            // And the line that says that it is done.
            lines: case.chunks().map(|chunks| chunks + 1),
            next: Cell::new(0),
        }
    }

    /// Runs the loop. Before it, unless `cold`, each connection sends one request that does not count; `begin` is called
    /// between the two.
    pub async fn run(
        self: Rc<Self>,
        connections: usize,
        pace: Pace,
        cold: bool,
        begin: impl FnOnce(),
    ) -> Measured {
        LocalSet::new().run_until(self.run_here(connections, pace, cold, begin)).await
    }

    async fn run_here(
        self: Rc<Self>,
        connections: usize,
        pace: Pace,
        cold: bool,
        begin: impl FnOnce(),
    ) -> Measured {
        let mut opening = JoinSet::new();
        for _ in 0..connections {
            let load = Rc::clone(&self);
            opening.spawn_local(async move {
                let mut connection = Connection::default();
                if !cold {
                    // What is wrong will show when it counts.
                    let _ = connection.exchange(&load).await;
                }
                connection
            });
        }
        let links = opening.join_all().await;
        begin();
        let start = Instant::now();
        let arrivals = Rc::new(Arrivals { pace, start, count: Cell::new(0) });
        let measured = Rc::new(RefCell::new(Measured::default()));
        let mut running = JoinSet::new();
        for mut connection in links {
            let (load, arrivals) = (Rc::clone(&self), Rc::clone(&arrivals));
            let measured = Rc::clone(&measured);
            running.spawn_local(async move {
                let mut failed = 0;
                while let Some(begun) = arrivals.next().await {
                    let outcome = connection.exchange(&load).await;
                    let mut measured = measured.borrow_mut();
                    if let Ok(first) = outcome {
                        failed = 0;
                        measured.first_us.push(micros(first.duration_since(begun)));
                        measured.whole_us.push(micros(begun.elapsed()));
                    } else {
                        failed += 1;
                        measured.failures += 1;
                        if failed > PATIENCE {
                            break;
                        }
                    }
                }
            });
        }
        running.join_all().await;
        let mut measured = measured.take();
        measured.seconds = start.elapsed().as_secs_f64();
        measured
    }

    fn request(&self) -> Bytes {
        let next = self.next.get();
        self.next.set(next.wrapping_add(1));
        self.requests.get(next % self.requests.len().max(1)).cloned().unwrap_or_default()
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// When the next request begins.
struct Arrivals {
    pace: Pace,
    start: Instant,
    count: Cell<u32>,
}

impl Arrivals {
    /// Waits for the next request's time and returns it; `None` at the end.
    async fn next(&self) -> Option<Instant> {
        let (rate, time) = match self.pace {
            Pace::Closed { time } => {
                let now = Instant::now();
                return (now.duration_since(self.start) < time).then_some(now);
            }
            Pace::Open { rate, time } => (rate, time),
        };
        let due =
            Duration::from_secs_f64(f64::from(self.count.replace(self.count.get() + 1)) / rate);
        if due >= time {
            return None;
        }
        let due = self.start + due;
        if Instant::now() >= due {
            // No connection was free: the wait is the server's.
            return Some(due);
        }
        tokio::time::sleep_until(due.into()).await;
        // A timer that is late by up to a millisecond is not.
        Some(Instant::now())
    }
}

#[derive(Default)]
struct Connection {
    socket: Option<TcpStream>,
    buffer: Vec<u8>,
}

impl Connection {
    /// Sends the next request; returns when its answer's body began.
    async fn exchange(&mut self, load: &Load) -> io::Result<Instant> {
        let done = tokio::time::timeout(LIMIT, self.try_exchange(load)).await;
        let outcome = done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if outcome.is_err() {
            self.socket = None;
            self.buffer.clear();
        }
        outcome
    }

    async fn try_exchange(&mut self, load: &Load) -> io::Result<Instant> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => {
                let socket = TcpStream::connect(load.address).await?;
                socket.set_nodelay(true)?;
                none.insert(socket)
            }
        };
        let buffer = &mut self.buffer;
        buffer.reserve(BUFFER);
        let request = load.request();
        // A server may refuse before it has read everything, and say why.
        let sent = socket.write_all(&request).await;
        let Some(mut head) = read_head(socket, buffer).await? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let mut lines = Lines::default();
        let mut first = None;
        while !head.body.done() {
            if buffer.is_empty() && socket.read_buf(buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let own = head.body.feed(buffer, |data| lines.feed(data));
            if first.is_none() && lines.some {
                first = Some(Instant::now());
            }
            buffer.drain(..own);
            if head.body.broken() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        sent?;
        if head.close {
            self.socket = None;
        }
        if head.status() != 200 || load.lines.is_some_and(|lines_due| lines.count != lines_due) {
            return Err(io::Error::other(format!(
                "status {}, {} lines",
                head.status(),
                lines.count
            )));
        }
        first.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Counts lines that are not empty.
#[derive(Debug, Default)]
struct Lines {
    some: bool,
    count: usize,
    /// The line under way has bytes.
    begun: bool,
}

impl Lines {
    fn feed(&mut self, data: &[u8]) {
        self.some |= !data.is_empty();
        let mut behind = 0;
        for end in memchr::memchr_iter(b'\n', data) {
            self.count += usize::from(self.begun || end > behind);
            self.begun = false;
            behind = end + 1;
        }
        self.begun |= behind < data.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_however_they_are_cut() {
        let stream = b"data: a\n\ndata: b\n\ndata: [DONE]\n\n";
        for piece in 1..=stream.len() {
            let mut lines = Lines::default();
            stream.chunks(piece).for_each(|piece| lines.feed(piece));
            assert_eq!(lines.count, 3, "{piece}");
        }
    }

    #[tokio::test]
    async fn refusals_and_cut_streams_are_failures() {
        let stream = |chunks: &str| {
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{chunks}", chunks.len())
        };
        let whole = "data: x\n\n".repeat(9);
        let cases = [
            (stream(&whole), 0),
            (stream("data: x\n\n"), 1),
            ("HTTP/1.1 503 no\r\ncontent-length: 2\r\n\r\nno".to_owned(), 1),
        ];
        for (answer, failures) in cases {
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = tokio::spawn(async move {
                while let Ok((mut socket, _)) = listener.accept().await {
                    let mut buffer = Vec::new();
                    while let Ok(Some(mut head)) = read_head(&mut socket, &mut buffer).await {
                        let own = head.body.feed(&buffer, |_| ());
                        buffer.drain(..own);
                        let _ = socket.write_all(answer.as_bytes()).await;
                    }
                }
            });
            let load = Load::new(Case::LargeStream, address, &[Bytes::from_static(b"{}")]);
            let pace = Pace::Open { rate: 1_000.0, time: Duration::from_micros(1) };
            let measured = Rc::new(load).run(1, pace, true, || ()).await;
            assert_eq!((measured.failures, measured.whole_us.len()), (failures, 1 - failures));
            server.abort();
        }
    }
}
