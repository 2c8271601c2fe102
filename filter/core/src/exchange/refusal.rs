//! What clients are told when the configuration, or the pool, has no place for their request.

use super::plan::NoPlan;
use crate::flow_control::protocol::DropReason;
use crate::request::LocalReply;

impl NoPlan {
    /// The answer, and one word for the access log.
    pub(super) fn reply(self) -> (LocalReply, &'static str) {
        match self {
            Self::Route => (
                LocalReply::error(404, "No route matches this request.", None),
                "warmroute_no_route",
            ),
            Self::Backend => (
                LocalReply::error(
                    500,
                    "The route of this request leads to a pool that does not exist.",
                    None,
                ),
                "warmroute_no_backend",
            ),
            Self::Model => (
                LocalReply::error(
                    400,
                    "The model of this request could not be found.",
                    Some("model"),
                ),
                "warmroute_no_model",
            ),
        }
    }
}

/// 429: every endpoint was filtered out.
pub(super) fn saturated() -> LocalReply {
    let message = "All endpoints are too busy to serve the request.";
    let reply = LocalReply::error(429, message, None).retry_later();
    match DropReason::Saturated.header() {
        Some(reason) => reply.dropped(reason),
        None => reply,
    }
}

/// 400: its header names a profile that there is not.
pub(super) fn unknown_profile() -> LocalReply {
    LocalReply::error(400, "The scheduling profile that the request asks for does not exist.", None)
}

/// 412: the client wants the request served only where its prompt is cached.
pub(super) fn not_cached() -> LocalReply {
    LocalReply::error(412, "No endpoint holds the prompt in its cache.", None)
}

/// 400: the request has no body.
pub(super) fn empty_body() -> LocalReply {
    LocalReply::error(400, "The request has no body: a JSON object was expected.", None)
}
