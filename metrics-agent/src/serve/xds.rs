//! `POST /v3/discovery:endpoints` and `/v3/discovery:clusters`: hosts, and the clusters of several
//! pools, over REST xDS (`api_type: REST`), for an Envoy on another machine than the agent.

use super::Server;
use crate::publish::clusters::HostsFrom;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
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
    let discovery = server.shared.publisher.discovery();
    answer(body, |names| discovery.hosts_response(names)).await
}

/// Answers with the clusters, whose hosts are to be asked for here as well.
pub async fn clusters(State(server): State<Server>, body: Body) -> Response {
    let discovery = server.shared.publisher.discovery();
    answer(body, |names| discovery.clusters_response(names, HostsFrom::Agent)).await
}

async fn answer(body: Body, response: impl FnOnce(&[String]) -> Value) -> Response {
    let body = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_REQUEST_BYTES));
    let Ok(Ok(body)) = body.await else {
        return (StatusCode::BAD_REQUEST, "the request is too large or too slow\n").into_response();
    };
    match serde_json::from_slice::<DiscoveryRequest>(&body) {
        Ok(request) => {
            let response = response(&request.resource_names).to_string();
            ([(header::CONTENT_TYPE, "application/json")], response).into_response()
        }
        Err(error) => {
            let text = format!("not a DiscoveryRequest in JSON: {error}\n");
            (StatusCode::BAD_REQUEST, text).into_response()
        }
    }
}
