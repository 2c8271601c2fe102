//! Which metrics a request moves, and when.

use crate::exchange::{Cause, Record};
use crate::response::Outcome;

/// A metric with the labels of [`Labels`](super::Labels).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Metric {
    /// Requests.
    Requests,
    /// Requests under way.
    Running,
    /// Bytes of a request's body.
    RequestBytes,
    /// Bytes of a response's body.
    ResponseBytes,
    /// Prompt tokens.
    InputTokens,
    /// Cached prompt tokens.
    CachedTokens,
    /// Output tokens.
    OutputTokens,
}

/// What kind of stat it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Values.
    Histogram,
}

impl Metric {
    /// All of them.
    pub(super) const ALL: [Self; 7] = [
        Self::Requests,
        Self::Running,
        Self::RequestBytes,
        Self::ResponseBytes,
        Self::InputTokens,
        Self::CachedTokens,
        Self::OutputTokens,
    ];

    /// llm-d's name of it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Requests => "llm_d_epp_request_total",
            Self::Running => "llm_d_epp_request_running",
            Self::RequestBytes => "llm_d_epp_request_size_bytes",
            Self::ResponseBytes => "llm_d_epp_response_size_bytes",
            Self::InputTokens => "llm_d_epp_request_input_tokens",
            Self::CachedTokens => "llm_d_epp_request_cached_tokens",
            Self::OutputTokens => "llm_d_epp_request_output_tokens",
        }
    }

    /// What kind of stat it is.
    pub(super) fn kind(self) -> MetricKind {
        match self {
            Self::Requests => MetricKind::Counter,
            Self::Running => MetricKind::Gauge,
            _ => MetricKind::Histogram,
        }
    }
}

/// A change of a metric: by how much, or of a histogram, the value.
pub(super) type Observation = (Metric, i64);

/// When it is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The request was sent on.
    Started,
    /// It is over; `started`: it had been sent on.
    Ended {
        /// It had been sent on.
        started: bool,
    },
}

/// What a request moves in a phase.
pub(super) fn observations(record: &Record, phase: Phase) -> impl Iterator<Item = Observation> {
    let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut all: [Option<Observation>; 7] = [None; 7];
    match phase {
        Phase::Started => {
            all[0] = Some((Metric::Requests, 1));
            all[1] = Some((Metric::Running, 1));
            all[2] = Some((Metric::RequestBytes, whole(record.request_bytes)));
        }
        Phase::Ended { started: false } => all[0] = Some((Metric::Requests, 1)),
        Phase::Ended { started: true } => {
            let usage = &record.usage;
            all[0] = Some((Metric::Running, -1));
            all[1] = Some((Metric::ResponseBytes, whole(record.response_bytes)));
            all[2] = usage.prompt_tokens.map(|tokens| (Metric::InputTokens, whole(tokens)));
            all[3] = usage.cached_tokens.map(|tokens| (Metric::CachedTokens, whole(tokens)));
            all[4] = usage.completion_tokens.map(|tokens| (Metric::OutputTokens, whole(tokens)));
        }
    }
    all.into_iter().flatten()
}

/// `error_code` of `request_error_total`, if the request failed: llm-d's words.
pub(super) fn error_code(record: &Record) -> Option<&'static str> {
    let completed = matches!(record.cause, Some(Cause::Answered(Outcome::Completed)));
    if completed
        || matches!(record.cause, Some(Cause::ClientGone | Cause::Answered(Outcome::ClientGone)))
    {
        return None;
    }
    Some(match record.status {
        400 | 413 | 415 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        412 => "PreconditionFailed",
        429 => "ResourceExhausted",
        503 => "ServiceUnavailable",
        _ => "ModelServerError",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::Usage;

    fn seen(record: &Record, phase: Phase) -> Vec<(&'static str, i64)> {
        observations(record, phase).map(|(metric, value)| (metric.name(), value)).collect()
    }

    crate::tests! {
        // Dashboards ask for these by name.
        fn names_are_llm_ds() {
            let names = Metric::ALL.map(Metric::name);
            assert_eq!(names, [
                "llm_d_epp_request_total",
                "llm_d_epp_request_running",
                "llm_d_epp_request_size_bytes",
                "llm_d_epp_response_size_bytes",
                "llm_d_epp_request_input_tokens",
                "llm_d_epp_request_cached_tokens",
                "llm_d_epp_request_output_tokens",
            ]);
            use super::super::counter::{ATTEMPTS, DISAGG, ERRORS, PD, REWRITES};
            assert_eq!([ERRORS, ATTEMPTS, REWRITES, DISAGG, PD], [
                "llm_d_epp_request_error_total",
                "llm_d_epp_scheduler_attempts_total",
                "llm_d_epp_model_rewrite_decisions_total",
                "llm_d_epp_disagg_decision_total",
                "llm_d_epp_pd_decision_total",
            ]);
        }

        fn what_is_under_way_returns_to_zero_and_unknown_usage_is_no_zero() {
            let usage = Usage { prompt_tokens: Some(9), ..Usage::default() };
            let record = Record { request_bytes: 5, response_bytes: 7, usage, ..Record::default() };
            assert_eq!(seen(&record, Phase::Started), [
                ("llm_d_epp_request_total", 1), ("llm_d_epp_request_running", 1), ("llm_d_epp_request_size_bytes", 5),
            ]);
            assert_eq!(seen(&record, Phase::Ended { started: true }), [
                ("llm_d_epp_request_running", -1), ("llm_d_epp_response_size_bytes", 7), ("llm_d_epp_request_input_tokens", 9),
            ]);
            assert_eq!(seen(&record, Phase::Ended { started: false }), [("llm_d_epp_request_total", 1)]);
        }

        fn an_error_has_llm_ds_word_and_a_client_that_left_is_none() {
            let code = |cause, status| error_code(&Record { cause: Some(cause), status, ..Record::default() });
            assert_eq!(code(Cause::Answered(Outcome::Completed), 200), None);
            assert_eq!(code(Cause::ClientGone, 0), None);
            assert_eq!(code(Cause::Rejected("x"), 429), Some("ResourceExhausted"));
            assert_eq!(code(Cause::Answered(Outcome::EngineError), 200), Some("ModelServerError"));
            assert_eq!(code(Cause::NoResponse, 503), Some("ServiceUnavailable"));
        }
    }
}
