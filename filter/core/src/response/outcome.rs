//! Did a request really succeed? Status 200 does not say: an engine that dies sends what it has.

use super::facts::ResponseFacts;

/// How the exchange ended, as the host saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The response came to its proper end (end of stream, or trailers).
    Clean,
    /// The engine's side broke off: reset, idle limit, incomplete chunked body.
    Broken,
    /// The client went away.
    ClientGone,
}

/// What a response lacks that it should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truncation {
    /// Its end: the connection broke off.
    End,
    /// `[DONE]` (Anthropic's `message_stop`) at the end of a stream.
    Done,
    /// A `finish_reason`: no choice ended.
    FinishReason,
    /// The rest of its JSON.
    Json,
}

impl Truncation {
    /// A short name for logs and metric labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Done => "done",
            Self::FinishReason => "finish_reason",
            Self::Json => "json",
        }
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answered in full.
    Completed,
    /// The engine answered with an error status.
    Refused {
        /// The status.
        status: u16,
    },
    /// The engine reported an error under a good status, or ended a choice with `abort` or `error`.
    EngineError,
    /// The answer stops early.
    Truncated(Truncation),
    /// The client left before the answer was complete.
    ClientGone,
}

impl Outcome {
    /// Whether the engine did its part.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Completed
    }

    /// A short name for logs and metric labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Refused { .. } => "refused",
            Self::EngineError => "engine_error",
            Self::Truncated(_) => "truncated",
            Self::ClientGone => "client_gone",
        }
    }
}

/// What a body must show to count as complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// A stream of chunks: a finish reason, then `[DONE]`.
    Stream,
    /// One JSON document; `whole` says whether it was.
    Document {
        /// Its last byte has come and all was well-formed.
        whole: bool,
    },
    /// A body that is not read.
    Anything,
}

/// Judges a response. What the engine says of itself counts before how the connection ended, and a client
/// that hangs up after the last chunk got its answer.
pub(super) fn classify(
    facts: &ResponseFacts,
    expected: Expected,
    status: u16,
    end: End,
) -> Outcome {
    if status >= 400 {
        return Outcome::Refused { status };
    }
    if facts.error.is_some() || facts.finish_reason.is_some_and(|r| r.is_failure()) {
        return Outcome::EngineError;
    }
    let missing = match expected {
        Expected::Stream if facts.finish_reason.is_none() => Some(Truncation::FinishReason),
        Expected::Stream if !facts.done => Some(Truncation::Done),
        Expected::Document { whole: false } => Some(Truncation::Json),
        Expected::Anything if end != End::Clean => Some(Truncation::End),
        _ => None,
    };
    match (missing, end) {
        (None, _) => Outcome::Completed,
        (Some(_), End::ClientGone) => Outcome::ClientGone,
        (Some(_), End::Broken) => Outcome::Truncated(Truncation::End),
        (Some(what), End::Clean) => Outcome::Truncated(what),
    }
}
