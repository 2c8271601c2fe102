//! One finished request, for the ledger: from the filter to the agent, at least once.
//!
//! The agent stores a record once: `id` tells two apart. How records travel stands in [`batch`].

pub mod batch;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// The engine's answer is complete.
    Natural,
    /// The client left.
    Disconnect,
    /// The engine failed or said so.
    UpstreamError,
    /// Envoy gave up waiting.
    Timeout,
    /// Ended for a higher priority.
    Evicted,
    /// Refused by the filter: nothing was computed.
    Rejected,
}

impl EndCause {
    /// Every cause; a cause's place is its number on the wire.
    pub const ALL: [Self; 6] = [
        Self::Natural,
        Self::Disconnect,
        Self::UpstreamError,
        Self::Timeout,
        Self::Evicted,
        Self::Rejected,
    ];

    /// One word, as in the ledger and the access log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Natural => "natural",
            Self::Disconnect => "disconnect",
            Self::UpstreamError => "upstream_error",
            Self::Timeout => "timeout",
            Self::Evicted => "evicted",
            Self::Rejected => "rejected",
        }
    }
}

/// What flow control did with a request: the outcomes of llm-d-router, `pkg/epp/flowcontrol/types`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FlowOutcome {
    /// Let through, at once or after a wait.
    Dispatched,
    /// The queue was full.
    RejectedCapacity,
    /// The queue was full and the pool empty.
    RejectedNoEndpoints,
    /// Not taken for another reason, like a filter that shuts down.
    RejectedOther,
    /// Waited too long.
    EvictedTTL,
    /// Waited too long for an endpoint.
    EvictedNoEndpoints,
    /// The client left while it waited.
    EvictedContextCancelled,
    /// Taken from the queue for another reason.
    EvictedOther,
}

impl FlowOutcome {
    /// Every outcome; an outcome's place, counted from 1, is its number on the wire.
    pub const ALL: [Self; 8] = [
        Self::Dispatched,
        Self::RejectedCapacity,
        Self::RejectedNoEndpoints,
        Self::RejectedOther,
        Self::EvictedTTL,
        Self::EvictedNoEndpoints,
        Self::EvictedContextCancelled,
        Self::EvictedOther,
    ];

    /// llm-d's label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dispatched => "Dispatched",
            Self::RejectedCapacity => "RejectedCapacity",
            Self::RejectedNoEndpoints => "RejectedNoEndpoints",
            Self::RejectedOther => "RejectedOther",
            Self::EvictedTTL => "EvictedTTL",
            Self::EvictedNoEndpoints => "EvictedNoEndpoints",
            Self::EvictedContextCancelled => "EvictedContextCancelled",
            Self::EvictedOther => "EvictedOther",
        }
    }
}

/// One request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// Unique: VM incarnation and a number of its own.
    pub id: (u64, u64),
    /// When it came, in ms since 1970.
    pub at_ms: u64,
    /// `x-request-id`.
    pub request_id: String,
    /// Tenant; empty without tenants.
    pub tenant: String,
    /// Fairness ID.
    pub fairness_id: String,
    /// Model that the client asked for.
    pub model: String,
    /// Model that the engine was asked for.
    pub target_model: String,
    /// Pool.
    pub pool: String,
    /// Endpoint that is charged.
    pub endpoint: String,
    /// How often Envoy tried.
    pub attempts: u32,
    /// Priority.
    pub priority: i32,
    /// Status that the client got; 0 if none.
    pub status: u16,
    /// Prompt tokens, by the engine or estimated.
    pub input_tokens: u64,
    /// Of these, cached ones.
    pub cached_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Reasoning tokens among these.
    pub reasoning_tokens: u64,
    /// The token counts are the engine's; else they are our own.
    pub exact: bool,
    /// Tokens that were reserved.
    pub reserved_tokens: u64,
    /// Tokens that were charged in the end.
    pub charged_tokens: u64,
    /// Why it ended.
    pub cause: EndCause,
    /// Reason of a refusal or an eviction (`x-llm-d-request-dropped-reason`), else empty.
    pub dropped: String,
    /// What flow control did with it; `None` without flow control.
    pub flow: Option<FlowOutcome>,
    /// Time in the queue, in ms.
    pub queue_ms: u64,
    /// From the request's headers to the first token, in ms; `None` if there was none.
    pub ttft_ms: Option<u64>,
    /// From the request's headers to its end, in ms.
    pub duration_ms: u64,
    /// The answer was a stream.
    pub streamed: bool,
    /// Bytes of the request's body.
    pub request_bytes: u64,
    /// Bytes of the response's body.
    pub response_bytes: u64,
}
