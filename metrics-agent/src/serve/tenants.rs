//! `POST /v1/tenants`: how an Envoy's tenants stand.

use super::Server;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use std::time::{Duration, Instant};
use warmroute_shared_state::tenant_status::{MAX_STATUS_BYTES, TenantStatus};

/// Time for a status's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// Keeps a status until the Envoy's next one; 204.
pub async fn put(State(server): State<Server>, body: Body) -> Response {
    let body = match super::body(body, "status", MAX_STATUS_BYTES, BODY_TIMEOUT).await {
        Ok(body) => body,
        Err(answer) => return answer.into_response(),
    };
    let kept = TenantStatus::from_json(&body).map(|s| server.tenants.put(s, Instant::now()));
    match kept {
        Ok(true) => StatusCode::NO_CONTENT.into_response(),
        Ok(false) => (StatusCode::SERVICE_UNAVAILABLE, "too many Envoys\n").into_response(),
        Err(error) => {
            let text = format!(
                "not a status of this version ({error}); run filter and agent of the same release\n"
            );
            (StatusCode::BAD_REQUEST, text).into_response()
        }
    }
}
