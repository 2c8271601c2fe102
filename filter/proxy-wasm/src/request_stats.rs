//! Envoy's stats for the core's counts, and the names that the configuration knows.

use crate::counts;
use crate::runtime::Runtime;
use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;
use warmroute_core::exchange::Record;
use warmroute_core::telemetry::{Admission, MetricKind, SetId, StatSink, is_configured};

struct EnvoyStats;

impl StatSink for EnvoyStats {
    fn define(&mut self, kind: MetricKind, name: &str) -> u32 {
        let kind = match kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
        };
        hostcalls::define_metric(kind, name).unwrap_or(u32::MAX)
    }

    fn add(&mut self, id: u32, by: i64) {
        counts::add(id, by);
    }

    fn record(&mut self, id: u32, value: u64) {
        let _ = hostcalls::record_metric(id, value);
    }
}

impl Runtime {
    /// Counts a request that is sent on. Its labels are for its end.
    pub(crate) fn count_start(&mut self, record: &Record) -> SetId {
        let replica = &self.vm.follower().replica;
        let configured = |label, name: &str| is_configured(replica, label, name);
        let admission = Admission { sent_on: true, configured: &configured };
        self.request_stats.started(&mut EnvoyStats, record, &admission)
    }

    /// Counts the end of a request; `started`: its labels, if it was sent on.
    pub(crate) fn count_end(&mut self, record: &Record, started: Option<SetId>) {
        let replica = &self.vm.follower().replica;
        let configured = |label, name: &str| is_configured(replica, label, name);
        let admission = Admission { sent_on: false, configured: &configured };
        self.request_stats.ended(&mut EnvoyStats, record, started, &admission);
    }
}
