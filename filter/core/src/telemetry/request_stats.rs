//! llm-d's request metrics as stats of one VM: what a request moves, under labels that are bounded once, when it is
//! sent on.

use super::labels::{NameId, OTHER};
use super::{
    Admission, LabelBounds, Labels, Metric, MetricKind, Phase, SetId, counter, error_code,
    observations, stat_name,
};
use crate::exchange::Record;
use std::collections::BTreeMap;
use warmroute_shared_state::endpoint::EndpointId;

/// Endpoints with a counter of their own, each for each model: those beyond are counted as one.
const ATTEMPTS_KEPT: usize = 4000;

/// Counters of names that the configuration has: what is beyond, after many configurations, is not counted.
const COUNTERS_KEPT: usize = 4000;

/// Where the stats are.
pub trait StatSink {
    /// Id of the stat of this name, made if there is none. An id that no stat has is one that does nothing.
    fn define(&mut self, kind: MetricKind, name: &str) -> u32;
    /// Adds to a counter or a gauge.
    fn add(&mut self, id: u32, by: i64);
    /// Adds a value to a histogram.
    fn record(&mut self, id: u32, value: u64);
}

/// Whose attempts a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Picked {
    Nobody,
    Endpoint(EndpointId),
    Other,
}

/// The stats of one VM.
#[derive(Debug, Default)]
pub struct RequestStats {
    bounds: LabelBounds,
    /// By the number of the set.
    sets: Vec<[Option<u32>; Metric::ALL.len()]>,
    errors: BTreeMap<(SetId, &'static str), u32>,
    attempts: BTreeMap<(NameId, Picked), u32>,
    counters: BTreeMap<String, u32>,
}

impl RequestStats {
    /// A request is sent on. Returns its labels: what it added to a gauge it takes from the same.
    pub fn started(
        &mut self,
        sink: &mut dyn StatSink,
        record: &Record,
        admission: &Admission<'_>,
    ) -> SetId {
        let set = self.bounds.admit(&record.labels(), admission);
        self.observe(sink, record, set, Phase::Started);
        self.count_attempt(sink, record, set);
        let Some(labels) = self.bounds.labels(set) else { return set };
        let model = ("model_name", &*labels.model);
        if let Some(rewrite) = &record.rewritten_by {
            let target = ("target_model", &*labels.target_model);
            let all = [("model_rewrite_name", rewrite.as_str()), model, target];
            count(&mut self.counters, sink, counter::REWRITES, &all);
        }
        if let Some(stages) = &record.stages {
            let all = [
                ("plugin_name", stages.plugin_name.as_str()),
                ("plugin_type", &stages.plugin_type),
                model,
                ("decision_type", stages.decision),
            ];
            count(&mut self.counters, sink, counter::DISAGG, &all);
            count(&mut self.counters, sink, counter::PD, &all);
        }
        set
    }

    /// A request is over. `started`: its labels, if it had been sent on. One that was neither sent on nor refused (the
    /// filter's own page) counts for nothing.
    pub fn ended(
        &mut self,
        sink: &mut dyn StatSink,
        record: &Record,
        started: Option<SetId>,
        admission: &Admission<'_>,
    ) {
        if started.is_none() && record.cause.is_none() {
            return;
        }
        let set = started.unwrap_or_else(|| self.bounds.admit(&record.labels(), admission));
        if let Some(code) = error_code(record) {
            let bounds = &self.bounds;
            let id = self.errors.entry((set, code)).or_insert_with(|| {
                define(sink, bounds, set, MetricKind::Counter, counter::ERRORS, Some(code))
            });
            sink.add(*id, 1);
        }
        self.observe(sink, record, set, Phase::Ended { started: started.is_some() });
    }

    fn observe(&mut self, sink: &mut dyn StatSink, record: &Record, set: SetId, phase: Phase) {
        if self.sets.len() <= set.0 {
            self.sets.resize(set.0.saturating_add(1), Default::default());
        }
        let Some(ids) = self.sets.get_mut(set.0) else { return };
        for (metric, value) in observations(record, phase) {
            let Some(place) = ids.get_mut(metric as usize) else { continue };
            let (kind, name) = (metric.kind(), metric.name());
            let id =
                *place.get_or_insert_with(|| define(sink, &self.bounds, set, kind, name, None));
            match kind {
                MetricKind::Histogram => sink.record(id, u64::try_from(value).unwrap_or(0)),
                MetricKind::Counter | MetricKind::Gauge => sink.add(id, value),
            }
        }
    }

    fn count_attempt(&mut self, sink: &mut dyn StatSink, record: &Record, set: SetId) {
        let target = self.bounds.target_model(set);
        let mut picked = record.endpoint_id.map_or(Picked::Nobody, Picked::Endpoint);
        if self.attempts.len() >= ATTEMPTS_KEPT && !self.attempts.contains_key(&(target, picked)) {
            picked = Picked::Other;
        }
        let id = self.attempts.entry((target, picked)).or_insert_with(|| {
            let (name, address) = match picked {
                Picked::Other => (OTHER, ""),
                _ => (
                    record.endpoint_name.as_deref().unwrap_or_default(),
                    record.endpoint.as_deref().unwrap_or_default(),
                ),
            };
            let (namespace, name) = name.split_once('/').unwrap_or(("", name));
            let status = if picked == Picked::Nobody { "failure" } else { "success" };
            let target = self.bounds.labels(set).map_or(OTHER, |labels| &*labels.target_model);
            let all = [
                ("status", status),
                ("target_model_name", target),
                ("endpoint_name", name),
                ("namespace", namespace),
                ("port", address.rsplit_once(':').map_or("", |(_, port)| port)),
            ];
            sink.define(MetricKind::Counter, &stat_name(counter::ATTEMPTS, &all))
        });
        sink.add(*id, 1);
    }
}

/// Adds one to a counter with these labels.
fn count(
    counters: &mut BTreeMap<String, u32>,
    sink: &mut dyn StatSink,
    metric: &str,
    labels: &[(&str, &str)],
) {
    let name = stat_name(metric, labels);
    let id = match counters.get(&name) {
        Some(id) => *id,
        None if counters.len() >= COUNTERS_KEPT => return,
        None => {
            let id = sink.define(MetricKind::Counter, &name);
            counters.insert(name, id);
            id
        }
    };
    sink.add(id, 1);
}

fn define(
    sink: &mut dyn StatSink,
    bounds: &LabelBounds,
    set: SetId,
    kind: MetricKind,
    metric: &str,
    error_code: Option<&str>,
) -> u32 {
    let nothing = Labels::default();
    let labels = bounds.labels(set).unwrap_or(&nothing);
    let priority = labels.priority.to_string();
    let all = [
        ("model_name", &*labels.model),
        ("target_model_name", &*labels.target_model),
        ("fairness_id", &*labels.fairness_id),
        ("priority", priority.as_str()),
        ("error_code", error_code.unwrap_or_default()),
    ];
    let [common @ .., _] = &all;
    let labels = if error_code.is_some() { &all[..] } else { common };
    sink.define(kind, &stat_name(metric, labels))
}
