//! The agent's HTTP server: the stream and the hosts for Envoy, metrics and probes for the
//! platform, a page for people.

pub mod connections;
pub mod page;
pub mod stream;
pub mod tenants;
pub mod usage;
pub mod xds;

use crate::app::now_ms;
use crate::fleet::Shared;
use crate::ledger::Ledger;
use crate::metrics::{self, Moment};
use crate::tenant_status::StatusBoard;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What the handlers need.
#[derive(Clone)]
pub struct Server {
    /// What they show.
    pub shared: Arc<Shared>,
    /// Where usage records go.
    pub ledger: Arc<Ledger>,
    /// What Envoys tell of tenants.
    pub tenants: Arc<StatusBoard>,
    /// True once the agent is to stop.
    pub stopping: watch::Receiver<bool>,
}

impl Server {
    /// A server over what the fleet keeps current.
    #[must_use]
    pub fn new(shared: Arc<Shared>, ledger: Arc<Ledger>, stopping: watch::Receiver<bool>) -> Self {
        Self { shared, ledger, tenants: Arc::default(), stopping }
    }

    /// All routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/", get(page::html))
            .route("/v1/endpoints", get(page::endpoints))
            .route("/v1/records", post(usage::records))
            .route("/v1/tenants", post(tenants::put))
            .route("/v1/usage", get(usage::usage))
            .route("/v1/stream", get(stream::poll))
            .route("/v3/discovery:endpoints", post(xds::endpoints))
            .route("/v3/discovery:clusters", post(xds::clusters))
            .route("/metrics", get(exposition))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .with_state(self)
    }
}

/// The body of a request of at most `limit` bytes, or what to answer: what it should have been is `what`.
async fn body(
    body: Body,
    what: &str,
    limit: usize,
    timeout: Duration,
) -> Result<Bytes, (StatusCode, String)> {
    match tokio::time::timeout(timeout, to_bytes(body, limit)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => {
            let text = format!("the {what} is cut or larger than {limit} bytes\n");
            Err((StatusCode::PAYLOAD_TOO_LARGE, text))
        }
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, format!("the {what} came too slowly\n"))),
    }
}

async fn ready(State(server): State<Server>) -> Response {
    let (status, text) = if *server.stopping.borrow() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n")
    } else if server.shared.publisher.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "waiting for the first full table, see /v1/endpoints\n")
    };
    (status, text).into_response()
}

async fn exposition(State(server): State<Server>) -> Response {
    let shared = &server.shared;
    let moment = Moment {
        census: shared.board.census(),
        pools: shared.board.pools(),
        seq: shared.publisher.position().seq,
        config_age_seconds: shared.config_age(Instant::now()).as_secs(),
    };
    let counted = server.ledger.counted();
    let (budgets, flows) = server.tenants.sum(Instant::now());
    let tenants = metrics::tenants::encode(&budgets, &flows, &counted.recent.window(now_ms()));
    // The end mark is the last part's.
    let text = counted
        .encode()
        .and_then(|records| Ok(records + &tenants? + &shared.metrics.encode(&moment)?));
    match text {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
