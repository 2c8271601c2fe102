//! `POST /v3/discovery:endpoints` and `/v3/discovery:clusters`: hosts, and the clusters of several
//! pools, over REST xDS (`api_type: REST`), for an Envoy on another machine than the agent.

use super::Server;
use crate::publish::clusters::HostsFrom;
use axum::body::Body;
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
    /// What Envoy has; empty before the first.
    #[serde(default)]
    version_info: String,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// Answers with the hosts, or that Envoy has them: it asks several times a second, and takes in each answer.
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
    let body = match super::body(body, "request", MAX_REQUEST_BYTES, BODY_TIMEOUT).await {
        Ok(body) => body,
        Err(answer) => return answer.into_response(),
    };
    match serde_json::from_slice::<DiscoveryRequest>(&body) {
        Ok(request) => {
            let response = response(&request.resource_names);
            let known = request.version_info;
            // Of no cluster there is no version.
            if !known.is_empty() && response.get("version_info").is_some_and(|now| *now == known) {
                return StatusCode::NOT_MODIFIED.into_response();
            }
            ([(header::CONTENT_TYPE, "application/json")], response.to_string()).into_response()
        }
        Err(error) => {
            let text = format!("not a DiscoveryRequest in JSON: {error}\n");
            (StatusCode::BAD_REQUEST, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::discovery::Discovery;
    use crate::publish::eds::Hosts;
    use axum::body::to_bytes;
    use serde_json::json;

    async fn ask(discovery: &Discovery, version: &str, name: &str) -> (StatusCode, Value) {
        let request = json!({ "version_info": version, "resource_names": [name], "node": {} });
        let answer =
            answer(Body::from(request.to_string()), |names| discovery.hosts_response(names));
        let (head, body) = answer.await.into_parts();
        let body = to_bytes(body, MAX_REQUEST_BYTES).await.unwrap();
        (head.status, serde_json::from_slice(&body).unwrap_or_default())
    }

    #[tokio::test]
    async fn a_request_that_is_too_large_is_told_so() {
        let body = Body::from(vec![b' '; MAX_REQUEST_BYTES + 1]);
        let answer = answer(body, |_| unreachable!("it is not read")).await;
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn what_envoy_has_is_not_sent_again() {
        let hosts = |port: u16| Hosts {
            cluster: "all".into(),
            addresses: vec![([10, 0, 0, 1], port).into()],
        };
        let of = |port| Discovery { all: hosts(port), pools: Vec::new() };
        let (status, first) = ask(&of(1), "", "all").await;
        let version = first["version_info"].as_str().unwrap();
        assert_eq!((status, first["resources"].as_array().unwrap().len()), (StatusCode::OK, 1));
        assert_eq!(ask(&of(1), version, "all").await, (StatusCode::NOT_MODIFIED, Value::Null));
        let (status, second) = ask(&of(2), version, "all").await;
        assert_eq!(status, StatusCode::OK);
        assert_ne!(second["version_info"], first["version_info"]);
        // A cluster that is not there has no hosts, each time anew.
        let (status, none) = ask(&of(1), "", "gone").await;
        assert_eq!((status, &none["resources"]), (StatusCode::OK, &json!([])));
    }
}
