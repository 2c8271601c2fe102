//! `POST /v3/discovery:endpoints`: the cluster's hosts over REST xDS (`api_type: REST`), for an
//! Envoy on another machine than the agent.

use super::Server;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::time::Duration;

/// Bytes of a request: Envoy's node may be described at length.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Time for a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The part of Envoy's `DiscoveryRequest` that matters here.
#[derive(Deserialize)]
struct DiscoveryRequest {
    #[serde(default)]
    resource_names: Vec<String>,
}

/// Answers with the hosts as they are: REST has no way to say "unchanged" that costs less.
pub async fn endpoints(State(server): State<Server>, body: Body) -> Response {
    let body = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_REQUEST_BYTES));
    let Ok(Ok(body)) = body.await else {
        return (StatusCode::BAD_REQUEST, "the request is too large or too slow\n").into_response();
    };
    let request: DiscoveryRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => {
            let text = format!("not a DiscoveryRequest in JSON: {error}\n");
            return (StatusCode::BAD_REQUEST, text).into_response();
        }
    };
    let response = server.shared.publisher.hosts().response(&request.resource_names);
    ([(header::CONTENT_TYPE, "application/json")], response.to_string()).into_response()
}
