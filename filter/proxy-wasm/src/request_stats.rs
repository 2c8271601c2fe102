//! llm-d's request metrics as Envoy stats, their labels in the names for Envoy's `stats_tags`.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;
use std::collections::BTreeMap;
use warmroute_core::exchange::Record;
use warmroute_core::telemetry::{
    LabelBounds, Labels, Metric, MetricKind, Phase, counter, error_code, observations, stat_name,
};

/// Counters with labels of their own, of one VM: what is beyond is not counted.
const COUNTERS_KEPT: usize = 4000;

/// The stats of one VM.
#[derive(Default)]
pub(crate) struct RequestStats {
    bounds: LabelBounds,
    sets: BTreeMap<Labels, [Option<u32>; Metric::ALL.len()]>,
    counters: BTreeMap<String, u32>,
}

impl RequestStats {
    /// The request was sent on, or is over; `started`: it had been sent on. `labels` are those of its start: what it
    /// added to a gauge it takes from the same.
    pub(crate) fn observe(&mut self, record: &Record, labels: &Labels, phase: Phase) {
        let labels = self.bounds.admit(labels);
        if let Some(code) = error_code(record).filter(|_| matches!(phase, Phase::Ended { .. })) {
            let priority = labels.priority.to_string();
            let mut all = with_priority(&labels, &priority).to_vec();
            all.push(("error_code", code));
            self.count(counter::ERRORS, &all);
        }
        let ids = self.sets.entry(labels.clone()).or_default();
        for (metric, value) in observations(record, phase) {
            let Some(place) = ids.get_mut(metric as usize) else { continue };
            let id = *place.get_or_insert_with(|| define(metric, &labels));
            let _ = match metric.kind() {
                MetricKind::Histogram => {
                    hostcalls::record_metric(id, u64::try_from(value).unwrap_or(0))
                }
                MetricKind::Counter | MetricKind::Gauge => hostcalls::increment_metric(id, value),
            };
        }
    }

    /// Adds one to a counter with these labels.
    pub(crate) fn count(&mut self, metric: &str, labels: &[(&str, &str)]) {
        let name = stat_name(metric, labels);
        let id = match self.counters.get(&name) {
            Some(id) => *id,
            None if self.counters.len() >= COUNTERS_KEPT => return,
            None => {
                let Ok(id) = hostcalls::define_metric(MetricType::Counter, &name) else { return };
                self.counters.insert(name, id);
                id
            }
        };
        let _ = hostcalls::increment_metric(id, 1);
    }
}

fn with_priority<'a>(labels: &'a Labels, priority: &'a str) -> [(&'a str, &'a str); 4] {
    [
        ("model_name", &labels.model),
        ("target_model_name", &labels.target_model),
        ("fairness_id", &labels.fairness_id),
        ("priority", priority),
    ]
}

fn define(metric: Metric, labels: &Labels) -> u32 {
    let kind = match metric.kind() {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Histogram => MetricType::Histogram,
    };
    let name = stat_name(metric.name(), &with_priority(labels, &labels.priority.to_string()));
    // An id that no stat has does nothing.
    hostcalls::define_metric(kind, &name).unwrap_or(u32::MAX)
}
