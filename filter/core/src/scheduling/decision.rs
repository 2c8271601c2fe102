//! What scheduling decides, or why it cannot.

use core::fmt;
use warmroute_shared_state::endpoint::EndpointId;

/// The pick and two fallbacks: Envoy takes the next one at each retry.
pub const MAX_DESTINATIONS: usize = 3;

/// Header with the address of the endpoint that computes the prompt.
pub const PREFILL_HEADER: &str = "x-prefiller-host-port";

/// Header with the addresses of those that encode images, sound and video, by commas.
pub const ENCODE_HEADER: &str = "x-encoder-hosts-ports";

/// Header with the address of the rank that was picked behind a common port.
pub const DATA_PARALLEL_HEADER: &str = "x-data-parallel-host-port";

/// Why the endpoint was picked. One word, for logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PickReason {
    /// It holds the longest matching prefix.
    Prefix,
    /// It holds less of the prompt than another one does, which is too busy or not meant for it.
    LoadOverPrefix,
    /// Nobody holds any of the prompt: the least loaded.
    Load,
}

impl PickReason {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::LoadOverPrefix => "load_over_prefix",
            Self::Load => "load",
        }
    }
}

/// Which stages run elsewhere; the words of llm-d's metric `disagg_decision_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disaggregation {
    /// All of it at the decode endpoint.
    DecodeOnly,
    /// Prefill elsewhere.
    PrefillDecode,
    /// Encoding elsewhere.
    EncodeDecode,
    /// Both.
    EncodePrefillDecode,
}

impl Disaggregation {
    pub(super) fn of(prefill: bool, encode: bool) -> Self {
        match (prefill, encode) {
            (false, false) => Self::DecodeOnly,
            (true, false) => Self::PrefillDecode,
            (false, true) => Self::EncodeDecode,
            (true, true) => Self::EncodePrefillDecode,
        }
    }

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DecodeOnly => "decode-only",
            Self::PrefillDecode => "prefill-decode",
            Self::EncodeDecode => "encode-decode",
            Self::EncodePrefillDecode => "encode-prefill-decode",
        }
    }
}

/// What one profile picked.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfilePick {
    /// Index of the profile.
    pub profile: usize,
    /// Best first, never empty. Of the primary pick at least the fallbacks, at most [`MAX_DESTINATIONS`], unless the
    /// picker names more (`maxNumOfEndpoints`).
    pub ranked: Vec<EndpointId>,
    /// Leading blocks that the first one holds.
    pub matched_blocks: usize,
}

/// A decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Where the request goes.
    pub primary: ProfilePick,
    /// Why.
    pub reason: PickReason,
    /// Who computes the prompt, if somebody else does.
    pub prefill: Option<ProfilePick>,
    /// Who encodes, if somebody else does: all of `ranked`.
    pub encode: Option<ProfilePick>,
    /// Which stages run elsewhere, if a handler decided on it.
    pub disaggregation: Option<Disaggregation>,
    /// Request headers to set. Of [`PREFILL_HEADER`], [`ENCODE_HEADER`] and [`DATA_PARALLEL_HEADER`] those that are
    /// not here must be taken off: a client may not set them.
    pub headers: Vec<(&'static str, String)>,
    /// Port of the destinations in place of the endpoints' own.
    pub destination_port: Option<u16>,
    /// Response headers that bring the session back.
    pub session_headers: Vec<SessionHeader>,
    /// For [`super::SchedulerState::remember`].
    pub(super) memories: Vec<Memory>,
}

impl Decision {
    /// Sessions that this decision binds: the plugin's name, the session and its endpoint. Other workers are to know.
    pub fn sessions(&self) -> impl Iterator<Item = (&str, u64, EndpointId)> {
        self.memories.iter().filter_map(|memory| match memory {
            Memory::Session { instance, session, endpoint } => {
                Some((instance.as_str(), *session, *endpoint))
            }
            Memory::Cold { .. } => None,
        })
    }
}

/// A response header for a session: its value is [`super::session_token`] of the endpoint's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionHeader {
    /// Name, in lower case.
    pub header: String,
    /// The endpoint; `None`: the one that served.
    pub endpoint: Option<EndpointId>,
}

/// What is remembered of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Memory {
    /// A session is at this endpoint.
    Session { instance: String, session: u64, endpoint: EndpointId },
    /// A cold prompt went there.
    Cold { instance: String, size: u32, endpoints: Vec<EndpointId> },
}

/// Why nobody was picked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchedulingError {
    /// There is no endpoint to pick from: 503.
    NoCandidate,
    /// The profile's filters left nobody: 429, saturated.
    NoneLeft {
        /// The profile.
        profile: String,
    },
    /// The profile that the request's header names does not exist: 429.
    UnknownProfile,
    /// There is no profile to run: 429. A checked configuration has one.
    NoProfile,
}

impl fmt::Display for SchedulingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCandidate => {
                f.write_str("failed to find endpoint candidates for serving the request")
            }
            Self::NoneLeft { profile } => {
                write!(f, "no endpoints available for the given request in profile `{profile}`")
            }
            Self::UnknownProfile => {
                f.write_str("the profile that the request asks for does not exist")
            }
            Self::NoProfile => f.write_str("there is no profile to run"),
        }
    }
}

impl core::error::Error for SchedulingError {}
