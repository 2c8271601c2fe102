//! A fleet inside the test's process, and a client that sees raw bytes.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of this")]
#![allow(clippy::needless_pass_by_value, reason = "calls read better with json!() in place")]

pub mod events;

use std::net::SocketAddr;
use std::sync::Arc;

use engine_sim::admin::fleet::Fleet;
use engine_sim::api::ApiConfig;
use engine_sim::engine::EngineConfig;
use engine_sim::replica::{Replica, SimConfig};
use engine_sim::tokens::Tokenizer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A configuration in which nothing takes long.
pub fn config() -> SimConfig {
    SimConfig {
        api: ApiConfig {
            models: vec!["tiny".to_owned(), "tiny-alias".to_owned()],
            loras: vec!["lora-a".to_owned(), "lora-b".to_owned()],
            max_model_len: 4_096,
            default_reply_tokens: 8,
            prompt_tokens_details: true,
            force_include_usage: false,
        },
        engine: EngineConfig { num_blocks: 1_001, ..EngineConfig::default() },
        time_scale: 100.0,
        request_id_headers: false,
        sse_keep_alive: None,
        records: 100,
        kv_events: None,
        formats: Vec::new(),
        sidecars: false,
    }
}

pub struct Sim {
    pub fleet: Arc<Fleet>,
    pub admin: SocketAddr,
    pub replicas: Vec<Arc<Replica>>,
}

impl Sim {
    pub async fn start(config: SimConfig, replicas: usize) -> Self {
        let fleet = Arc::new(Fleet::new(config, Tokenizer::new().unwrap()));
        let mut started = Vec::new();
        for _ in 0..replicas {
            started.push(fleet.add(0).await.unwrap());
        }
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let admin = socket.local_addr().unwrap();
        tokio::spawn(engine_sim::admin::serve(Arc::clone(&fleet), socket));
        Self { fleet, admin, replicas: started }
    }

    pub fn addr(&self, index: usize) -> SocketAddr {
        self.replicas[index].addr
    }

    pub async fn command(&self, path: &str, body: &Value) -> Value {
        let reply = send(self.admin, "POST", path, &[], body.to_string().as_bytes()).await.unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    pub async fn fault(&self, body: Value) {
        self.command("/faults", &body).await;
    }

    pub async fn state(&self, index: usize) -> Value {
        let reply = send(self.admin, "GET", "/state", &[], b"").await.unwrap();
        let replicas = reply.json()["replicas"].clone();
        replicas
            .as_array()
            .unwrap()
            .iter()
            .find(|replica| replica["index"] == index)
            .unwrap()
            .clone()
    }

    /// Waits until `index`'s state satisfies `wanted`.
    pub async fn until(&self, index: usize, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let state = self.state(index).await;
            if wanted(&state) {
                return state;
            }
            tokio::task::yield_now().await;
        }
    }
}

pub fn chat(text: &str, more: Value) -> Value {
    let mut body =
        json!({"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 4});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// A text of about `words` tokens.
pub fn long_text(words: usize) -> String {
    (0..words).map(|i| if i % 2 == 0 { " the" } else { " model" }).collect()
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// Whether the body came to its proper end.
    pub complete: bool,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The `data:` payloads.
    pub fn events(&self) -> Vec<String> {
        self.text()
            .split("\n\n")
            .filter_map(|event| event.strip_prefix("data: ").map(str::to_owned))
            .collect()
    }
}

/// A connection on which a request was sent.
pub struct Call(pub TcpStream);

impl Call {
    pub async fn open(
        addr: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(addr).await?;
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {addr}\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).await?;
        Ok(Self(stream))
    }

    pub async fn post(addr: SocketAddr, path: &str, body: &Value) -> std::io::Result<Self> {
        Self::open(
            addr,
            "POST",
            path,
            &[("content-type", "application/json")],
            body.to_string().as_bytes(),
        )
        .await
    }

    /// Reads until what came contains `needle`; returns all of it.
    pub async fn read_until(&mut self, needle: &str) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while !String::from_utf8_lossy(&bytes).contains(needle) {
            if self.0.read_buf(&mut bytes).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(bytes)
    }

    /// Reads the rest of the connection; `earlier` is what was read before.
    pub async fn finish(mut self, earlier: Vec<u8>) -> std::io::Result<Reply> {
        let mut bytes = earlier;
        self.0.read_to_end(&mut bytes).await?;
        Ok(parse(&bytes))
    }
}

/// One request on a connection of its own.
pub async fn send(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Reply> {
    let headers: Vec<_> = headers.iter().copied().chain([("connection", "close")]).collect();
    Call::open(addr, method, path, &headers, body).await?.finish(Vec::new()).await
}

pub async fn post(addr: SocketAddr, path: &str, body: &Value) -> std::io::Result<Reply> {
    send(addr, "POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
        .await
}

pub async fn get(addr: SocketAddr, path: &str) -> std::io::Result<Reply> {
    send(addr, "GET", path, &[], b"").await
}

/// Reads a raw response; a chunked body is put together.
pub fn parse(bytes: &[u8]) -> Reply {
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("no head: {bytes:?}"));
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let rest = &bytes[end + 4..];
    let lower = head.to_ascii_lowercase();
    if !lower.contains("transfer-encoding: chunked") {
        let length = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map(|n| n.parse().unwrap());
        return Reply { status, head, body: rest.to_vec(), complete: length == Some(rest.len()) };
    }
    let (mut body, mut at, mut complete) = (Vec::new(), 0, false);
    while let Some(line) = rest[at..].windows(2).position(|window| window == b"\r\n") {
        let size =
            usize::from_str_radix(std::str::from_utf8(&rest[at..at + line]).unwrap(), 16).unwrap();
        at += line + 2;
        if size == 0 {
            complete = true;
            break;
        }
        body.extend_from_slice(&rest[at..(at + size).min(rest.len())]);
        at = (at + size + 2).min(rest.len());
    }
    Reply { status, head, body, complete }
}

/// The shape of a JSON text: keys in order and the kinds of the values, `null` and booleans as they
/// are; an array of numbers counts as one number.
pub fn shape(json: &str) -> String {
    let mut out = String::new();
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                let mut text = String::new();
                while let Some(c) = chars.next() {
                    match c {
                        '\\' => {
                            chars.next();
                        }
                        '"' => break,
                        c => text.push(c),
                    }
                }
                if chars.peek() == Some(&':') { out.push_str(&text) } else { out.push('S') }
            }
            '0'..='9' | '-' => {
                while chars.peek().is_some_and(|c| matches!(c, '0'..='9' | '.' | 'e' | '+' | '-')) {
                    chars.next();
                }
                out.push('N');
            }
            ' ' => {}
            c => out.push(c),
        }
    }
    while out.contains("N,N") {
        out = out.replace("N,N", "N");
    }
    out
}
