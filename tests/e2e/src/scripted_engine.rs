//! An engine whose answers a test writes itself, byte by byte.
//!
//! It answers `/metrics`, so that the agent takes it in. Other requests are looked up by their
//! `x-request-id`: whoever expected it gets a [`Served`] to answer through; one that nobody expected gets a
//! short whole answer.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::stack::PATIENCE;

/// What an engine at rest shows.
const METRICS: &str = "process_start_time_seconds 1000\n\
    vllm:num_requests_waiting 0.0\nvllm:num_requests_running 0.0\nvllm:kv_cache_usage_perc 0.0\n\
    vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10000\"} 1.0\n";

/// The answer to requests that nobody expected.
const SHORT: &str = r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}"#;

/// Who expects a request, in the order in which they asked.
type Expected = Arc<Mutex<HashMap<String, VecDeque<Expectation>>>>;
type Expectation = (mpsc::UnboundedSender<Request>, mpsc::UnboundedReceiver<Order>);

/// The engine. It ends with this value.
#[derive(Debug)]
pub struct ScriptedEngine {
    /// Where it listens.
    pub address: SocketAddr,
    expected: Expected,
    order: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Request {
    /// The request line and the headers.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

/// One request's way to be answered.
#[derive(Debug)]
pub struct Served {
    arrived: mpsc::UnboundedReceiver<Request>,
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Debug)]
enum Order {
    Send(Vec<u8>),
    Reset,
    Close,
    Done,
}

impl ScriptedEngine {
    /// Starts to listen.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let expected = Expected::default();
        let mut tasks = JoinSet::new();
        let order = Arc::<Mutex<Vec<String>>>::default();
        let (known, noted) = (Arc::clone(&expected), Arc::clone(&order));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(converse(socket, Arc::clone(&known), Arc::clone(&noted)));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, expected, order, _tasks: tasks })
    }

    /// `x-request-id` of all requests so far, in the order of their arrival.
    #[must_use]
    pub fn order(&self) -> Vec<String> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The next request with this `x-request-id` is answered through what this returns; called again, the one
    /// after that.
    #[must_use]
    pub fn expect(&self, request_id: &str) -> Served {
        let (arrives, arrived) = mpsc::unbounded_channel();
        let (orders, ordered) = mpsc::unbounded_channel();
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        expected.entry(request_id.to_owned()).or_default().push_back((arrives, ordered));
        Served { arrived, orders }
    }
}

impl Served {
    /// Waits for the request; none if it does not come.
    pub async fn arrived(&mut self) -> Option<Request> {
        tokio::time::timeout(PATIENCE, self.arrived.recv()).await.ok().flatten()
    }

    /// Waits, after the request arrived, until Envoy hangs up.
    pub async fn hung_up(&mut self) {
        while self.arrived.recv().await.is_some() {}
    }

    /// Sends bytes as they are.
    pub fn send(&self, bytes: impl Into<Vec<u8>>) {
        self.order(Order::Send(bytes.into()));
    }

    /// Status 200 and the head of a chunked event stream.
    pub fn send_stream_head(&self) {
        self.send(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
             transfer-encoding: chunked\r\n\r\n",
        );
    }

    /// One chunk of a chunked body; nothing for no bytes, since an empty chunk would end it.
    pub fn send_chunk(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
            chunk.extend_from_slice(bytes);
            chunk.extend_from_slice(b"\r\n");
            self.send(chunk);
        }
    }

    /// The end of a chunked body.
    pub fn end_chunks(self) {
        self.send("0\r\n\r\n");
        self.done();
    }

    /// The answer is complete; the connection stays for the next request.
    pub fn done(self) {
        self.order(Order::Done);
    }

    /// The connection is reset.
    pub fn reset(self) {
        self.order(Order::Reset);
    }

    /// The connection is closed.
    pub fn close(self) {
        self.order(Order::Close);
    }

    fn order(&self, order: Order) {
        // Nobody listens once Envoy has hung up, which the client's side shows.
        let _ = self.orders.send(order);
    }
}

async fn converse(mut socket: TcpStream, expected: Expected, order: Arc<Mutex<Vec<String>>>) {
    let _ = socket.set_nodelay(true);
    let mut read = Vec::new();
    // An error is a peer that left.
    while let Ok(Some(request)) = next_request(&mut socket, &mut read).await {
        if let Some(id) = header(&request.head, "x-request-id")
            && !request.head.starts_with("GET /metrics ")
        {
            order.lock().unwrap_or_else(PoisonError::into_inner).push(id.to_owned());
        }
        let answer = answer(&mut socket, &expected, request).await;
        if !matches!(answer, Ok(true)) {
            return;
        }
    }
}

/// Whether the connection stays.
async fn answer(socket: &mut TcpStream, expected: &Expected, request: Request) -> io::Result<bool> {
    if request.head.starts_with("GET /metrics ") {
        return whole(socket, "text/plain; version=0.0.4", METRICS).await.map(|()| true);
    }
    let id = header(&request.head, "x-request-id").unwrap_or_default();
    let known = take(expected, id);
    let Some((arrives, mut orders)) = known else {
        return whole(socket, "application/json", SHORT).await.map(|()| true);
    };
    // A test that does not look at the request has dropped its end.
    let _ = arrives.send(request);
    let mut next = [0; 1];
    let mut watched = true;
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Send(bytes)) => socket.write_all(&bytes).await?,
                Some(Order::Done) => return Ok(true),
                Some(Order::Reset) => {
                    socket.set_zero_linger()?;
                    return Ok(false);
                }
                Some(Order::Close) | None => return Ok(false),
            },
            // Only looked at: where the answer is already whole Envoy may send its next request before the
            // order comes that says so. Anything else is that it hung up; with `arrives` dropped that is known.
            seen = socket.peek(&mut next), if watched => match seen {
                Ok(1..) => watched = false,
                _ => return Ok(false),
            },
        }
    }
}

fn take(expected: &Expected, id: &str) -> Option<Expectation> {
    let mut expected = expected.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = expected.get_mut(id)?;
    let first = waiting.pop_front();
    if waiting.is_empty() {
        expected.remove(id);
    }
    first
}

async fn whole(socket: &mut TcpStream, kind: &str, text: &str) -> io::Result<()> {
    let length = text.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{text}"
    );
    socket.write_all(answer.as_bytes()).await
}

async fn next_request(socket: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<Option<Request>> {
    let end = loop {
        if let Some(at) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if !fill(socket, read).await? {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    read.drain(..end + 4);
    // Envoy passes on the length that the tests' clients give; a body that the filter changed comes in chunks.
    if header(&head, "transfer-encoding").is_some_and(|value| value == "chunked") {
        return Ok(chunked_body(socket, read).await?.map(|body| Request { head, body }));
    }
    let length = header(&head, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    let body = take_bytes(socket, read, length).await?;
    Ok(body.map(|body| Request { head, body }))
}

/// The next bytes of the connection; none if it ends before.
async fn take_bytes(
    socket: &mut TcpStream,
    read: &mut Vec<u8>,
    count: usize,
) -> io::Result<Option<Vec<u8>>> {
    while read.len() < count {
        if !fill(socket, read).await? {
            return Ok(None);
        }
    }
    Ok(Some(read.drain(..count).collect()))
}

/// A body in chunks, without trailers.
async fn chunked_body(socket: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = read.windows(2).position(|window| window == b"\r\n") {
                break at;
            }
            if !fill(socket, read).await? {
                return Ok(None);
            }
        };
        let line = String::from_utf8_lossy(&read[..end]).into_owned();
        read.drain(..end + 2);
        let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        let Some(chunk) = take_bytes(socket, read, size + 2).await? else { return Ok(None) };
        if size == 0 {
            return Ok(Some(body));
        }
        body.extend_from_slice(&chunk[..size]);
    }
}

async fn fill(socket: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; 16 << 10];
    let count = socket.read(&mut piece).await?;
    read.extend_from_slice(&piece[..count]);
    Ok(count > 0)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
