//! The least of an HTTP client: one request, one answer, closed.

use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Status and body.
pub(crate) type Answer = (u16, Vec<u8>);

pub(crate) async fn get(server: SocketAddr, path: &str) -> Answer {
    send(server, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
}

pub(crate) async fn post(server: SocketAddr, path: &str, body: &str) -> Answer {
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    send(server, &format!("{head}content-length: {}\r\n\r\n{body}", body.len())).await
}

pub(crate) async fn post_bytes(server: SocketAddr, path: &str, body: &[u8]) -> Answer {
    send_bytes(server, path, body.to_vec()).await.expect("an answer")
}

/// `None` if the server goes away.
pub(crate) async fn send_bytes(server: SocketAddr, path: &str, body: Vec<u8>) -> Option<Answer> {
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    let mut request = format!("{head}content-length: {}\r\n\r\n", body.len()).into_bytes();
    request.extend_from_slice(&body);
    let mut stream = TcpStream::connect(server).await.ok()?;
    let mut bytes = Vec::new();
    // A server that refuses a body answers without reading all of it.
    let _ = stream.write_all(&request).await;
    let _ = stream.read_to_end(&mut bytes).await;
    (!bytes.is_empty()).then(|| answer(&bytes))
}

pub(crate) async fn text(server: SocketAddr, path: &str) -> String {
    String::from_utf8(get(server, path).await.1).unwrap()
}

async fn send(server: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    answer(&bytes)
}

fn answer(bytes: &[u8]) -> Answer {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head");
    let status = std::str::from_utf8(&bytes[9..12]).unwrap().parse().unwrap();
    (status, bytes[head + 4..].to_vec())
}
