//! Counts of requests under llm-d's metric names and labels (llm-d-router, `pkg/epp/metrics`).
//!
//! Envoy's stats are integers: what is measured in seconds is the agent's to tell. Envoy never frees a stat, so every
//! label's values are bounded: what is beyond is `other`.

mod labels;
mod metric;

pub use labels::{LabelBounds, Labels, stat_name};
pub use metric::{Metric, MetricKind, Observation, Phase, error_code, observations};

/// Counters with labels of their own.
pub mod counter {
    /// Failed requests; [`Labels`](super::Labels) and `error_code`.
    pub const ERRORS: &str = "llm_d_epp_request_error_total";
    /// Picks: `status`, `target_model_name`, `endpoint_name`, `namespace`, `port`.
    pub const ATTEMPTS: &str = "llm_d_epp_scheduler_attempts_total";
    /// Rewrites: `model_rewrite_name`, `model_name`, `target_model`.
    pub const REWRITES: &str = "llm_d_epp_model_rewrite_decisions_total";
    /// Prefill elsewhere or not: `plugin_name`, `plugin_type`, `model_name`, `decision_type`.
    pub const DISAGG: &str = "llm_d_epp_disagg_decision_total";
    /// The deprecated name of the same.
    pub const PD: &str = "llm_d_epp_pd_decision_total";
}
