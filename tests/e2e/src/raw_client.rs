//! An HTTP/1.1 client on a bare socket: every byte, and every way to hang up, is the test's choice.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longest wait for a byte. Far above anything that a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection.
#[derive(Debug)]
pub struct RawClient {
    socket: TcpStream,
    /// Read, and not asked for yet.
    read: Vec<u8>,
    body: Body,
}

/// How far the body of the present response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// Bytes to come.
    Length(u64),
    /// Bytes to come of a chunk; then the next one.
    Chunk(u64),
    /// Until the connection closes.
    Close,
    Ended,
}

/// Status and headers of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status.
    pub status: u16,
    /// Names in lower case, in order.
    pub headers: Vec<(String, String)>,
}

impl ResponseHead {
    /// The first header of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// The head of a POST whose body has `content_length` bytes. `headers` are whole lines without their end.
#[must_use]
pub fn post_head(path: &str, request_id: &str, headers: &[&str], content_length: usize) -> String {
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nhost: e2e\r\ncontent-type: application/json\r\nx-request-id: {request_id}\r\n\
         content-length: {content_length}\r\n"
    );
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    head
}

impl RawClient {
    /// Opens a connection.
    ///
    /// # Errors
    /// As the system says.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, read: Vec::new(), body: Body::Ended })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the other side is gone.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await
    }

    /// Sends a whole POST.
    ///
    /// # Errors
    /// When the other side is gone.
    pub async fn post(
        &mut self,
        path: &str,
        request_id: &str,
        headers: &[&str],
        body: &[u8],
    ) -> io::Result<()> {
        let mut bytes = post_head(path, request_id, headers, body.len()).into_bytes();
        bytes.extend_from_slice(body);
        self.send(&bytes).await
    }

    /// Waits for status and headers of the final response; interim ones are passed over.
    ///
    /// # Errors
    /// When the connection ends first, or what comes is not HTTP.
    pub async fn head(&mut self) -> io::Result<ResponseHead> {
        loop {
            let head = self.any_head().await?;
            if head.status >= 200 {
                self.body = framing(&head)?;
                return Ok(head);
            }
        }
    }

    /// Waits for an interim response, such as 100, which has no body.
    ///
    /// # Errors
    /// When the connection ends first, or what comes is not HTTP or is the final response.
    pub async fn interim(&mut self) -> io::Result<ResponseHead> {
        let head = self.any_head().await?;
        if head.status >= 200 {
            return Err(garbled("an interim response", &head.status.to_string()));
        }
        Ok(head)
    }

    async fn any_head(&mut self) -> io::Result<ResponseHead> {
        let end = loop {
            if let Some(at) = find(&self.read, b"\r\n\r\n") {
                break at;
            }
            self.fill().await?;
        };
        let text = String::from_utf8_lossy(&self.read[..end]).into_owned();
        self.read.drain(..end + 4);
        parse_head(&text)
    }

    /// The next bytes of the body, chunked encoding taken off; none once it is complete.
    ///
    /// # Errors
    /// When the connection breaks off before the body's end.
    pub async fn data(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.body {
                Body::Ended => return Ok(None),
                Body::Length(0) => self.body = Body::Ended,
                Body::Length(left) => {
                    let bytes = self.take(left).await?;
                    self.body = Body::Length(left - bytes.len() as u64);
                    return Ok(Some(bytes));
                }
                Body::Close => match self.take(u64::MAX).await {
                    Ok(bytes) => return Ok(Some(bytes)),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        self.body = Body::Ended;
                    }
                    Err(error) => return Err(error),
                },
                Body::Chunk(0) => self.next_chunk().await?,
                Body::Chunk(left) => {
                    let bytes = self.take(left).await?;
                    let left = left - bytes.len() as u64;
                    self.body = Body::Chunk(left);
                    if left == 0 {
                        self.line().await?;
                    }
                    return Ok(Some(bytes));
                }
            }
        }
    }

    /// Reads the body until it has at least `length` bytes, or ends.
    ///
    /// # Errors
    /// When the connection breaks off first.
    pub async fn data_until(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while body.len() < length {
            let Some(bytes) = self.data().await? else { break };
            body.extend(bytes);
        }
        Ok(body)
    }

    /// Reads the rest of the body.
    ///
    /// # Errors
    /// When the connection breaks off first.
    pub async fn rest(&mut self) -> io::Result<Vec<u8>> {
        self.data_until(usize::MAX).await
    }

    /// Hangs up with a TCP reset, whatever is under way.
    pub fn reset(self) {
        // If the option fails the other side sees a plain close, and the test a client that left politely.
        let _ = self.socket.set_zero_linger();
    }

    /// Closes the connection in the orderly way.
    pub fn close(self) {}

    async fn next_chunk(&mut self) -> io::Result<()> {
        let line = self.line().await?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(digits, 16).map_err(|_| garbled("a chunk's size", &line))?;
        if size > 0 {
            self.body = Body::Chunk(size);
            return Ok(());
        }
        // Trailers, up to an empty line.
        while !self.line().await?.is_empty() {}
        self.body = Body::Ended;
        Ok(())
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = find(&self.read, b"\r\n") {
                let line = String::from_utf8_lossy(&self.read[..at]).into_owned();
                self.read.drain(..at + 2);
                return Ok(line);
            }
            self.fill().await?;
        }
    }

    async fn take(&mut self, most: u64) -> io::Result<Vec<u8>> {
        if self.read.is_empty() {
            self.fill().await?;
        }
        let count = usize::try_from(most).unwrap_or(usize::MAX).min(self.read.len());
        Ok(self.read.drain(..count).collect())
    }

    async fn fill(&mut self) -> io::Result<()> {
        let mut piece = [0; 16 << 10];
        let read = tokio::time::timeout(PATIENCE, self.socket.read(&mut piece)).await;
        let count = read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read.extend_from_slice(&piece[..count]);
        Ok(())
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

fn garbled(what: &str, text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not {what}: {text:?}"))
}

fn parse_head(text: &str) -> io::Result<ResponseHead> {
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
    let status = status.ok_or_else(|| garbled("a status line", first))?;
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers: Option<Vec<_>> = lines.map(pair).collect();
    Ok(ResponseHead { status, headers: headers.ok_or_else(|| garbled("headers", text))? })
}

fn framing(head: &ResponseHead) -> io::Result<Body> {
    if matches!(head.status, 204 | 304) {
        return Ok(Body::Ended);
    }
    if head.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        return Ok(Body::Chunk(0));
    }
    let Some(length) = head.header("content-length") else { return Ok(Body::Close) };
    length.parse().map(Body::Length).map_err(|_| garbled("a length", length))
}
