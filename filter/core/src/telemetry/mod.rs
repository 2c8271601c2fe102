//! Counts of requests under llm-d's metric names and labels (llm-d-router, `pkg/epp/metrics`).
//!
//! Envoy's stats are integers: what is measured in seconds is the agent's to tell. Envoy never frees a stat, so every
//! label's values are bounded: what is beyond is `other`. Names that the configuration has come before those that clients
//! make up.

mod configured;
mod labels;
mod metric;
mod request_stats;

#[cfg(test)]
mod tests;

pub use configured::is_configured;
pub use labels::{Admission, Label, Labels, SetId};
pub use metric::MetricKind;
pub use request_stats::{RequestStats, StatSink};

use labels::{LabelBounds, stat_name};
use metric::{Metric, Phase, error_code, observations};

/// Counters with labels of their own.
mod counter {
    /// Failed requests; [`Labels`](super::Labels) and `error_code`.
    pub(super) const ERRORS: &str = "llm_d_epp_request_error_total";
    /// Picks: `status`, `target_model_name`, `endpoint_name`, `namespace`, `port`.
    pub(super) const ATTEMPTS: &str = "llm_d_epp_scheduler_attempts_total";
    /// Rewrites: `model_rewrite_name`, `model_name`, `target_model`.
    pub(super) const REWRITES: &str = "llm_d_epp_model_rewrite_decisions_total";
    /// Prefill elsewhere or not: `plugin_name`, `plugin_type`, `model_name`, `decision_type`.
    pub(super) const DISAGG: &str = "llm_d_epp_disagg_decision_total";
    /// The deprecated name of the same.
    pub(super) const PD: &str = "llm_d_epp_pd_decision_total";
}
