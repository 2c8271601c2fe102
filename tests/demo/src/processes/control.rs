//! Asks the programs' own pages: one short request, one answer.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::ProcessError;

const LIMIT: Duration = Duration::from_secs(10);
const LARGEST: usize = 64 << 20;

/// Status and body.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// The body read as JSON; null if it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// GET; any status is an answer.
///
/// # Errors
/// When there is no answer at all.
pub async fn get(address: SocketAddr, path: &str) -> Result<Answer, ProcessError> {
    get_for(LIMIT, address, path).await
}

/// The same for what takes up to `limit`.
///
/// # Errors
/// When there is no answer at all.
pub async fn get_for(
    limit: Duration,
    address: SocketAddr,
    path: &str,
) -> Result<Answer, ProcessError> {
    ask_for(limit, "GET", address, path, Bytes::new()).await
}

/// POST of a JSON body; only a status below 300 is accepted.
///
/// # Errors
/// When there is no answer or one of another status.
pub async fn post(
    address: SocketAddr,
    path: &str,
    body: &serde_json::Value,
) -> Result<Answer, ProcessError> {
    post_for(LIMIT, address, path, body).await
}

/// The same for what takes up to `limit`.
///
/// # Errors
/// When there is no answer or one of another status.
pub async fn post_for(
    limit: Duration,
    address: SocketAddr,
    path: &str,
    body: &serde_json::Value,
) -> Result<Answer, ProcessError> {
    let answer = ask_for(limit, "POST", address, path, Bytes::from(body.to_string())).await?;
    accepted("POST", address, path, answer)
}

/// DELETE; only a status below 300 is accepted.
///
/// # Errors
/// When there is no answer or one of another status.
pub async fn delete(address: SocketAddr, path: &str) -> Result<Answer, ProcessError> {
    let answer = ask_for(LIMIT, "DELETE", address, path, Bytes::new()).await?;
    accepted("DELETE", address, path, answer)
}

fn accepted(
    method: &'static str,
    address: SocketAddr,
    path: &str,
    answer: Answer,
) -> Result<Answer, ProcessError> {
    if answer.status < 300 {
        return Ok(answer);
    }
    let text = String::from_utf8_lossy(&answer.body);
    let reason =
        format!("status {}: {}", answer.status, text.chars().take(300).collect::<String>());
    Err(ProcessError::Control { method, address, path: path.to_owned(), reason })
}

async fn ask_for(
    limit: Duration,
    method: &'static str,
    address: SocketAddr,
    path: &str,
    body: Bytes,
) -> Result<Answer, ProcessError> {
    let exchange = tokio::time::timeout(limit, exchange(method, address, path, body));
    let reason = match exchange.await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {limit:?}"),
    };
    Err(ProcessError::Control { method, address, path: path.to_owned(), reason })
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(
    method: &str,
    address: SocketAddr,
    path: &str,
    body: Bytes,
) -> Result<Answer, AnyError> {
    let socket = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("host", address.to_string())
        .header("content-type", "application/json")
        .body(Full::new(body))?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), LARGEST).collect().await?.to_bytes();
        Ok::<_, AnyError>(Answer { status, body })
    };
    tokio::pin!(answer, connection);
    tokio::select! {
        answer = &mut answer => answer,
        // The connection may end, its task done, just before the last of the answer is read.
        ended = &mut connection => { ended?; answer.await }
    }
}
