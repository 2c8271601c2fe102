//! HTTP on the operator's port.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::fleet::{Fleet, FleetError};
use crate::kv_events::flood::Flood;
use crate::replica::faults::Command;

/// Longest command, bytes.
const MAX_COMMAND: usize = 64 << 10;

/// Requests of each replica in `GET /state` unless `?requests=N` says otherwise.
const DEFAULT_REQUESTS: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Occupy {
    replica: usize,
    fraction: f64,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct NewReplica {
    #[serde(default)]
    port: u16,
}

/// Answers on `socket` for as long as the process lives.
pub async fn serve(fleet: Arc<Fleet>, socket: TcpListener) {
    loop {
        let Ok((stream, _)) = socket.accept().await else {
            // Out of descriptors: let some close before trying again.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let fleet = Arc::clone(&fleet);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let fleet = Arc::clone(&fleet);
                async move { Ok::<_, Infallible>(answer(&fleet, request).await) }
            });
            // An operator that goes away early gets no answer.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(fleet: &Fleet, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let result = match Limited::new(body, MAX_COMMAND).collect().await {
        Ok(body) => route(fleet, &parts.method, &parts.uri, &body.to_bytes()).await,
        Err(error) => {
            Err((StatusCode::BAD_REQUEST, format!("the command could not be read: {error}")))
        }
    };
    let (status, value) = result
        .map_or_else(|(status, text)| (status, json!({ "error": text })), |v| (StatusCode::OK, v));
    let mut response = Response::new(Full::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}

async fn route(
    fleet: &Fleet,
    method: &Method,
    uri: &hyper::Uri,
    body: &[u8],
) -> Result<Value, (StatusCode, String)> {
    let done = || json!({ "ok": true });
    match (method.as_str(), uri.path()) {
        ("GET", "/health") => Ok(done()),
        ("GET", "/state") => Ok(fleet.state(requests_asked(uri.query().unwrap_or("")))),
        ("POST", "/faults") => {
            let command: Command = parse(body)?;
            fleet.fault(&command).await.map(|()| done()).map_err(refused)
        }
        ("POST", "/reset") => {
            fleet.reset();
            Ok(done())
        }
        ("POST", "/occupy") => {
            let command: Occupy = parse(body)?;
            if !(0.0..=1.0).contains(&command.fraction) {
                return Err((
                    StatusCode::BAD_REQUEST,
                    "fraction must lie between 0 and 1".to_owned(),
                ));
            }
            let replica = fleet.get(command.replica).map_err(refused)?;
            Ok(json!({ "blocks": replica.core().occupy(command.fraction) }))
        }
        ("POST", "/flood") => {
            let command: Flood = parse(body)?;
            fleet.flood(command).await.map(|blocks| json!({ "blocks": blocks })).map_err(refused)
        }
        ("POST", "/replicas") => {
            let command: NewReplica =
                if body.is_empty() { NewReplica::default() } else { parse(body)? };
            let replica = fleet.add(command.port).await.map_err(refused)?;
            Ok(json!({
                "index": replica.index, "port": replica.addr.port(), "endpoint": replica.addr.to_string(),
            }))
        }
        ("DELETE", path) => {
            let index = path.strip_prefix("/replicas/").and_then(|index| index.parse().ok());
            let index =
                index.ok_or((StatusCode::NOT_FOUND, "DELETE takes /replicas/N".to_owned()))?;
            fleet.remove(index).await.map(|()| done()).map_err(refused)
        }
        (method, path) => Err((
            StatusCode::NOT_FOUND,
            format!(
                "no {method} {path} here; there are GET /health, GET /state, POST /faults, POST /reset, POST /occupy, \
                 POST /flood, POST /replicas, DELETE /replicas/N"
            ),
        )),
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, (StatusCode, String)> {
    serde_json::from_slice(body)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("the command is not valid: {error}")))
}

#[allow(clippy::needless_pass_by_value, reason = "taken by map_err")]
fn refused(error: FleetError) -> (StatusCode, String) {
    let status = match error {
        FleetError::NoReplica(_) => StatusCode::NOT_FOUND,
        FleetError::BadCommand(_) | FleetError::NoEvents(_) => StatusCode::BAD_REQUEST,
        FleetError::Full | FleetError::Bind { .. } => StatusCode::CONFLICT,
    };
    (status, error.to_string())
}

fn requests_asked(query: &str) -> usize {
    query
        .split('&')
        .find_map(|pair| pair.strip_prefix("requests="))
        .and_then(|count| count.parse().ok())
        .unwrap_or(DEFAULT_REQUESTS)
}
