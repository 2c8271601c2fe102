//! The first line and the headers of a message.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::BodyReader;

/// Longer heads are refused.
const LONGEST: usize = 64 << 10;

/// What is read of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// `GET`, or `HTTP/1.1`.
    pub first: String,
    /// Path, or status.
    pub second: String,
    /// How long the body is.
    pub body: BodyReader,
    /// `connection: close`.
    pub close: bool,
}

impl Head {
    /// Reads the lines before the empty one.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (first, second) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut head = Self { first, second, body: BodyReader::sized(0), close: false };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                head.body = BodyReader::sized(value.parse().ok()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.body = BodyReader::chunked();
            } else if name.eq_ignore_ascii_case("connection") {
                head.close = value.eq_ignore_ascii_case("close");
            }
        }
        Some(head)
    }

    /// The status of an answer, 0 if it is no number.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.second.parse().unwrap_or(0)
    }
}

/// Reads into the empty `buffer` until a head is complete; leaves in it what came behind the head. `None`: the connection
/// ended before the first byte.
///
/// # Errors
/// When the connection breaks or what comes is no HTTP.
pub async fn read_head(
    socket: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Head>> {
    loop {
        if let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            let text = String::from_utf8_lossy(buffer.get(..end).unwrap_or_default()).into_owned();
            buffer.drain(..end + 4);
            let head = Head::parse(&text).ok_or(io::ErrorKind::InvalidData)?;
            return Ok(Some(head));
        }
        if buffer.len() > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if socket.read_buf(buffer).await? == 0 {
            let clean = buffer.is_empty();
            return if clean { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> (io::Result<Option<Head>>, Vec<u8>) {
        let mut buffer = Vec::new();
        let head = read_head(&mut &*bytes, &mut buffer).await;
        (head, buffer)
    }

    #[tokio::test]
    async fn a_head_says_how_long_its_body_is() {
        let (head, rest) = read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").await;
        let head = head.unwrap().unwrap();
        assert_eq!((head.status(), head.body, rest), (200, BodyReader::sized(3), b"abc".to_vec()));
        let (head, _) =
            read(b"POST /v1 HTTP/1.1\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n")
                .await;
        let head = head.unwrap().unwrap();
        assert_eq!((head.first.as_str(), head.second.as_str(), head.close), ("POST", "/v1", true));
        assert_eq!(head.body, BodyReader::chunked());
    }

    #[tokio::test]
    async fn ends_are_told_from_breaks() {
        assert!(matches!(read(b"").await.0, Ok(None)));
        assert!(read(b"HTTP/1.1 200").await.0.is_err());
        assert!(read(b"x\r\n\r\n").await.0.is_err());
        assert!(read(b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n").await.0.is_err());
    }
}
