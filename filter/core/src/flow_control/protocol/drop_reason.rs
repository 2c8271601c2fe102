//! Why a request is refused or ended, and what the client is told (llm-d-router, `requestcontrol/admission.go`).

/// Why flow control let a request go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// Its band or the whole queue is full.
    Saturated,
    /// The queue is full, and the pool has no endpoint.
    NoEndpoints,
    /// It waited for as long as it may.
    TtlExpired,
    /// It waited for as long as it may for any endpoint.
    TtlNoEndpoints,
    /// Its client left.
    Cancelled,
    /// The filter is ending.
    ShuttingDown,
    /// Ended in flight for a higher priority.
    Evicted,
    /// A budget of its tenant does not allow for it; [`Refusal`](crate::quota::Refusal) says more.
    Budget,
}

impl DropReason {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Saturated | Self::TtlExpired | Self::Evicted | Self::Budget => 429,
            Self::NoEndpoints | Self::TtlNoEndpoints | Self::Cancelled | Self::ShuttingDown => 503,
        }
    }

    /// The value of `x-llm-d-request-dropped-reason`; a tenant's budget has none.
    #[must_use]
    pub fn header(self) -> Option<&'static str> {
        match self {
            Self::Saturated => Some("rejected-saturated"),
            Self::NoEndpoints | Self::TtlNoEndpoints => Some("rejected-no-endpoints"),
            Self::TtlExpired => Some("rejected-ttl-expired"),
            Self::Cancelled => Some("rejected-context-cancelled"),
            Self::ShuttingDown => Some("rejected-shutting-down"),
            Self::Evicted => Some("evicted"),
            Self::Budget => None,
        }
    }

    /// One word, for metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::TtlNoEndpoints => "ttl-no-endpoints",
            other => other.header().unwrap_or("other"),
        }
    }

    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::Saturated,
        Self::NoEndpoints,
        Self::TtlExpired,
        Self::TtlNoEndpoints,
        Self::Cancelled,
        Self::ShuttingDown,
        Self::Evicted,
        Self::Budget,
    ];

    pub(super) fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}
