//! One JSON request over a connection of its own.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// How long an answer may take; a real engine on a CPU is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// Longest answer, bytes.
const LARGEST: usize = 16 << 20;

/// Posts `body` and reads a JSON answer of status 200.
///
/// # Errors
/// Anything else.
pub async fn post(
    address: SocketAddr,
    path: &str,
    request_id: &str,
    body: &Value,
) -> Result<Value> {
    tokio::time::timeout(PATIENCE, exchange(address, path, request_id, body))
        .await
        .with_context(|| format!("POST {path} to {address} took longer than {PATIENCE:?}"))?
        .with_context(|| format!("POST {path} to {address} ({request_id})"))
}

async fn exchange(
    address: SocketAddr,
    path: &str,
    request_id: &str,
    body: &Value,
) -> Result<Value> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    let request = hyper::Request::post(path)
        .header("host", address.to_string())
        .header("content-type", "application/json")
        .header("x-request-id", request_id)
        .body(Full::new(Bytes::from(body.to_string())))?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        let body = body.map_err(anyhow::Error::from_boxed)?.to_bytes();
        let shown = String::from_utf8_lossy(body.get(..300).unwrap_or(&body)).into_owned();
        ensure!(status == 200, "status {status}: {shown}");
        serde_json::from_slice(&body).with_context(|| format!("not JSON: {shown}"))
    };
    tokio::pin!(answer, connection);
    tokio::select! {
        answer = &mut answer => answer,
        // The connection may end just before the last of the answer is read.
        ended = &mut connection => { ended?; answer.await }
    }
}
