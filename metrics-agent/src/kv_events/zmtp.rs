//! ZMTP 3.0, the client's half: <https://rfc.zeromq.org/spec/23/>, mechanism NULL, over TCP.
//!
//! Own code and not the `zeromq` crate, for two reasons. A frame's length is the peer's word, and
//! the crate reserves memory for it unseen: a length of 2^62 ends the agent. And it reconnects by
//! itself and out of sight, while here a new connection means that the engine may be another one
//! (see [`sequence`](super::sequence)). Clients that only subscribe or ask need little of ZMTP.

use bytes::{Buf as _, Bytes, BytesMut};
use rustix::net::sockopt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Bytes of a message at most, all its frames together. A batch of 10,000 blocks of 16 tokens
/// with hashes of 32 bytes has 1 MB.
pub const MAX_MESSAGE_BYTES: usize = 8 << 20;
/// Frames of a message at most.
pub const MAX_FRAMES: usize = 8;
/// Bytes of a command of the peer at most.
const MAX_COMMAND_BYTES: usize = 4096;
/// Bytes read at once: as many as the frame at hand still misses, within these limits. Most publishers are silent most of
/// the time, so nothing is kept for what may come.
const READ_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=64 << 10;

/// A peer that is gone without a word is noticed after `KEEPALIVE_IDLE` and a few probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

const GREETING_BYTES: usize = 64;
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Why there is no connection, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum ZmtpError {
    /// The operating system's word.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer is no ZeroMQ socket, or not one of this kind.
    #[error("the peer does not speak ZMTP 3 as wanted: {0}; check the port")]
    Protocol(&'static str),
    /// The peer's message is larger than is read.
    #[error("a message of more than {MAX_MESSAGE_BYTES} bytes or {MAX_FRAMES} frames")]
    TooLarge,
}

/// What this side is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Subscribes to a publisher.
    Sub,
    /// Asks a router, and takes as many answers as come.
    Dealer,
}

impl Role {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Sub => b"SUB",
            Self::Dealer => b"DEALER",
        }
    }

    fn peers(self) -> &'static [&'static [u8]] {
        match self {
            Self::Sub => &[b"PUB", b"XPUB"],
            Self::Dealer => &[b"ROUTER", b"REP", b"DEALER"],
        }
    }
}

/// One connection, from its handshake to its end.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    received: Received,
    /// Answers to heartbeats that are not sent yet.
    outgoing: BytesMut,
}

impl Connection {
    /// Connects and shakes hands. The caller limits the time.
    ///
    /// # Errors
    /// If nobody listens or somebody else does.
    pub async fn open(address: SocketAddr, role: Role) -> Result<Self, ZmtpError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true).map_err(io::Error::from)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE).map_err(io::Error::from)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL).map_err(io::Error::from)?;
        sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES).map_err(io::Error::from)?;
        let (received, outgoing) = (Received::default(), BytesMut::new());
        let mut connection = Self { stream, received, outgoing };
        connection.stream.write_all(&greeting()).await?;
        connection.stream.write_all(&ready(role)).await?;
        while !connection.received.greeted {
            connection.received.greeting()?;
            if !connection.received.greeted {
                connection.read().await?;
            }
        }
        loop {
            match connection.received.next()? {
                Some(Incoming::Command(command)) => {
                    check_ready(&command, role)?;
                    return Ok(connection);
                }
                Some(Incoming::Message(_)) => {
                    return Err(ZmtpError::Protocol("a message before the handshake's end"));
                }
                None => connection.read().await?,
            }
        }
    }

    /// Asks for messages whose first frame begins with `prefix`.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn subscribe(&mut self, prefix: &str) -> Result<(), ZmtpError> {
        let mut frame = vec![1];
        frame.extend_from_slice(prefix.as_bytes());
        self.send(&[&frame]).await
    }

    /// Sends a message of these frames.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn send(&mut self, frames: &[&[u8]]) -> Result<(), ZmtpError> {
        let mut bytes = Vec::new();
        for (index, frame) in frames.iter().enumerate() {
            let more = index.saturating_add(1) < frames.len();
            put_frame(&mut bytes, if more { MORE } else { 0 }, frame);
        }
        Ok(self.stream.write_all(&bytes).await?)
    }

    /// The next message. Nothing is lost if the future is dropped before it is ready.
    ///
    /// # Errors
    /// If the connection ended or broke, or the peer misbehaves; then it is of no more use.
    pub async fn receive(&mut self) -> Result<Vec<Bytes>, ZmtpError> {
        loop {
            while !self.outgoing.is_empty() {
                self.stream.write_buf(&mut self.outgoing).await?;
            }
            match self.received.next()? {
                Some(Incoming::Message(frames)) => return Ok(frames),
                Some(Incoming::Command(command)) => self.answer(&command),
                None => self.read().await?,
            }
        }
    }

    /// Heartbeats are answered (RFC 37); all else is passed over.
    fn answer(&mut self, command: &[u8]) {
        // Name, two bytes of time, and a context that comes back.
        if let Some(context) = command.strip_prefix(b"\x04PING").and_then(|rest| rest.get(2..)) {
            let mut bytes = Vec::new();
            put_frame(&mut bytes, COMMAND, &[b"\x04PONG", context].concat());
            self.outgoing.extend_from_slice(&bytes);
        }
    }

    async fn read(&mut self) -> Result<(), ZmtpError> {
        // Memory follows what has come, not what was announced.
        let missing = self.received.missing().clamp(*READ_BYTES.start(), *READ_BYTES.end());
        self.received.bytes.reserve(missing);
        match self.stream.read_buf(&mut self.received.bytes).await? {
            0 => Err(ZmtpError::Closed),
            _ => Ok(()),
        }
    }
}

fn put_frame(bytes: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(len) => bytes.extend_from_slice(&[flags, len]),
        Err(_) => {
            bytes.push(flags | LONG);
            let len = u64::try_from(body.len()).unwrap_or(u64::MAX);
            bytes.extend_from_slice(&len.to_be_bytes());
        }
    }
    bytes.extend_from_slice(body);
}

/// Signature, version 3.0, mechanism, client, filler.
fn greeting() -> Vec<u8> {
    let mut greeting = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0];
    greeting.extend_from_slice(b"NULL");
    greeting.resize(GREETING_BYTES, 0);
    greeting
}

fn ready(role: Role) -> Vec<u8> {
    let mut body = b"\x05READY".to_vec();
    for (name, value) in [(b"Socket-Type".as_slice(), role.name()), (b"Identity", b"")] {
        // Names and values are ours and short.
        body.push(u8::try_from(name.len()).unwrap_or(0));
        body.extend_from_slice(name);
        body.extend_from_slice(&u32::try_from(value.len()).unwrap_or(0).to_be_bytes());
        body.extend_from_slice(value);
    }
    let mut bytes = Vec::new();
    put_frame(&mut bytes, COMMAND, &body);
    bytes
}

fn check_ready(command: &[u8], role: Role) -> Result<(), ZmtpError> {
    let Some(mut rest) = command.strip_prefix(b"\x05READY") else {
        return Err(ZmtpError::Protocol("the handshake was refused"));
    };
    while let Some((name, value, after)) = property(rest) {
        if name.eq_ignore_ascii_case(b"socket-type") {
            let fits = role.peers().contains(&value);
            return if fits { Ok(()) } else { Err(ZmtpError::Protocol("another socket type")) };
        }
        rest = after;
    }
    Err(ZmtpError::Protocol("no socket type"))
}

/// Name and value of a property, and what follows it.
fn property(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*len))?;
    let (len, rest) = rest.split_first_chunk()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    let (value, rest) = rest.split_at_checked(len)?;
    Some((name, value, rest))
}

/// One unit of what a peer sends.
#[derive(Debug, PartialEq, Eq)]
enum Incoming {
    Message(Vec<Bytes>),
    Command(Bytes),
}

/// What has come and is not taken yet.
#[derive(Debug, Default)]
struct Received {
    bytes: BytesMut,
    greeted: bool,
    /// Frames of a message whose last has not come.
    frames: Vec<Bytes>,
    frame_bytes: usize,
}

impl Received {
    /// Takes the peer's greeting when it is there.
    fn greeting(&mut self) -> Result<(), ZmtpError> {
        // What is no greeting may be shorter than one: it is refused by its first bytes.
        let start = self.bytes.first().is_none_or(|byte| *byte == 0xff)
            && self.bytes.get(9).is_none_or(|byte| *byte == 0x7f)
            && self.bytes.get(10).is_none_or(|version| *version >= 3);
        if !start {
            return Err(ZmtpError::Protocol("no greeting of version 3"));
        }
        if self.bytes.len() < GREETING_BYTES {
            return Ok(());
        }
        let greeting = self.bytes.split_to(GREETING_BYTES);
        let mechanism = greeting.get(12..32).unwrap_or_default();
        if mechanism.strip_prefix(b"NULL").is_none_or(|rest| rest.iter().any(|byte| *byte != 0)) {
            return Err(ZmtpError::Protocol("it wants authentication"));
        }
        self.greeted = true;
        Ok(())
    }

    /// Takes the next message or command; `None` until more has come.
    fn next(&mut self) -> Result<Option<Incoming>, ZmtpError> {
        loop {
            let Some((flags, head, len)) = self.head()? else { return Ok(None) };
            let whole = head.saturating_add(len);
            if self.bytes.len() < whole {
                return Ok(None);
            }
            self.bytes.advance(head);
            let body = self.bytes.split_to(len).freeze();
            if flags & COMMAND != 0 {
                return Ok(Some(Incoming::Command(body)));
            }
            self.frame_bytes = self.frame_bytes.saturating_add(len);
            self.frames.push(body);
            if flags & MORE == 0 {
                self.frame_bytes = 0;
                if self.bytes.is_empty() {
                    self.bytes = BytesMut::new();
                }
                return Ok(Some(Incoming::Message(std::mem::take(&mut self.frames))));
            }
        }
    }

    /// Bytes of the next frame that have not come, as far as its head tells.
    fn missing(&self) -> usize {
        let head = self.head().ok().flatten();
        head.map_or(0, |(_, head, len)| head.saturating_add(len).saturating_sub(self.bytes.len()))
    }

    /// Flags, bytes of the head and of the body of the next frame, if its head is there.
    fn head(&self) -> Result<Option<(u8, usize, usize)>, ZmtpError> {
        let Some((flags, rest)) = self.bytes.split_first() else { return Ok(None) };
        if flags & !(MORE | LONG | COMMAND) != 0 || flags & (MORE | COMMAND) == MORE | COMMAND {
            return Err(ZmtpError::Protocol("a frame of unknown kind"));
        }
        let (head, len) = if flags & LONG == 0 {
            let Some(len) = rest.first() else { return Ok(None) };
            (2, u64::from(*len))
        } else {
            let Some(len) = rest.first_chunk() else { return Ok(None) };
            (9, u64::from_be_bytes(*len))
        };
        let len = usize::try_from(len).map_err(|_| ZmtpError::TooLarge)?;
        let command = flags & COMMAND != 0;
        let limit = if command { MAX_COMMAND_BYTES } else { MAX_MESSAGE_BYTES - self.frame_bytes };
        if len > limit || (!command && self.frames.len() >= MAX_FRAMES) {
            return Err(ZmtpError::TooLarge);
        }
        Ok(Some((*flags, head, len)))
    }
}

#[cfg(test)]
mod tests;
