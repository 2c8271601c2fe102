//! Faults on command.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// How generation requests and the port behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Serving {
    /// As a healthy engine.
    #[default]
    Normal,
    /// Every request on the port is accepted and never answered; streams stand still.
    Hang,
    /// Streams finish, new generation requests get 503, other paths are served; once idle the port
    /// is closed.
    Drain,
    /// The port is closed: connections are refused.
    Down,
}

/// How `/metrics` behaves.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricsFault {
    /// As a healthy engine.
    #[default]
    None,
    /// The connection is closed without an answer.
    Drop,
    /// 200 with an empty body.
    Blank,
    /// 500.
    Error,
    /// 200 with the exposition as it was when the fault began.
    Freeze {
        /// What is served.
        #[serde(skip)]
        text: Arc<str>,
    },
    /// 200 with half an exposition, cut inside a line.
    Truncate,
    /// The KV usage under its name before vLLM 0.10, `gpu_cache_usage_perc`, only.
    OldNames,
    /// KV usage and queue length are `NaN`.
    Nan,
    /// Never answered.
    Hang,
}

/// Generation requests that fail; other paths are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RequestFault {
    /// What happens to them.
    pub kind: RequestFaultKind,
    /// To how many more; `None` for all.
    pub left: Option<u64>,
}

/// Ways for a single request to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestFaultKind {
    /// An error answer with this status.
    Status(u16),
    /// The connection is reset once the request is read, before any answer.
    ResetBefore,
    /// The connection is reset after this many tokens of a stream.
    ResetAfterTokens(usize),
}

/// All faults of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Faults {
    /// Port and generation.
    pub serving: Serving,
    /// `/metrics`.
    pub metrics: MetricsFault,
    /// Generation requests.
    pub requests: Option<RequestFault>,
}

/// Body of `POST /faults`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// Which replica, by its place in the list.
    pub replica: usize,
    /// What happens.
    pub fault: FaultName,
    /// For `error`: the status, 503 by default.
    pub status: Option<u16>,
    /// For `error` and `reset`: how many requests; all by default. For `events_drop` and
    /// `events_gap`: how many batches; one by default.
    pub count: Option<u64>,
    /// For `reset`: after how many tokens; before any answer by default.
    pub after_tokens: Option<usize>,
}

/// Words that [`Command::fault`] takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are those of README.md's table")]
pub enum FaultName {
    None,
    Die,
    Hang,
    Error,
    Reset,
    Drain,
    CrashMidstream,
    CrashMidstreamSilent,
    Refuse,
    Restart,
    MetricsDrop,
    MetricsBlank,
    #[serde(rename = "metrics_500")]
    Metrics500,
    MetricsFreeze,
    MetricsTruncate,
    MetricsOldNames,
    MetricsNan,
    MetricsHang,
    EventsDrop,
    EventsGap,
    EventsStop,
    ReplayOff,
    ReplaySilent,
}
