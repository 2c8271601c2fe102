//! Envoy stats. A fixed set: stats are never freed.

use crate::counts;
use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;
use warmroute_core::ledger::OutboxCounts;
use warmroute_core::vm::VmState;

/// The table counts as stale if the agent has not answered for this long.
const STALE_MS: u64 = 10_000;

const REPORT_MS: u64 = 1000;

/// One stat; does nothing if Envoy refused to define it.
#[derive(Clone, Copy)]
pub(crate) struct Stat(Option<u32>);

impl Stat {
    fn counter(name: &str) -> Self {
        Self(hostcalls::define_metric(MetricType::Counter, name).ok())
    }

    fn histogram(name: &str) -> Self {
        Self(hostcalls::define_metric(MetricType::Histogram, name).ok())
    }

    fn gauge(name: &str) -> Self {
        Self(hostcalls::define_metric(MetricType::Gauge, name).ok())
    }

    pub(crate) fn add(self, count: i64) {
        if let Some(id) = self.0 {
            counts::add(id, count);
        }
    }

    /// Adds what a count has grown by. One that began anew counts from 0.
    fn add_grown(self, now: u64, before: u64) {
        let grown = now.checked_sub(before).unwrap_or(now);
        if grown > 0 {
            self.add(i64::try_from(grown).unwrap_or(i64::MAX));
        }
    }

    fn set(self, value: u64) {
        if let Some(id) = self.0 {
            let _ = hostcalls::record_metric(id, value);
        }
    }
}

/// All stats.
pub(crate) struct Metrics {
    picks: [(&'static str, Stat); 3],
    fail_open: Stat,
    prompts: [(&'static str, Stat); 3],
    decision_us: Stat,
    event_to_visible_ms: Stat,
    pub(crate) rejected: Stat,
    pub(crate) agent_failures: Stat,
    records_lost: Stat,
    record_batches_failed: Stat,
    records_told: OutboxCounts,
    // Gauges: only the applier writes them.
    stale: Stat,
    age_ms: Stat,
    endpoints: Stat,
    endpoints_ready: Stat,
    endpoints_refused: Stat,
    blocks: Stat,
    in_flight: Stat,
    precise: Stat,
    models: Stat,
    models_approximate: Stat,
    expectations: [Stat; 2],
    expectations_told: (u64, u64),
    problems_told: Vec<(u64, bool)>,
    reported_ms: u64,
}

impl Metrics {
    pub(crate) fn define() -> Self {
        let pick = |reason| (reason, Stat::counter(&format!("warmroute.picks.{reason}")));
        Self {
            picks: ["prefix", "load_over_prefix", "load"].map(pick),
            fail_open: Stat::counter("warmroute.fail_open"),
            prompts: ["rendered", "unrendered", "approximate"]
                .map(|source| (source, Stat::counter(&format!("warmroute.prompts.{source}")))),
            decision_us: Stat::histogram("warmroute.decision_us"),
            event_to_visible_ms: Stat::histogram("warmroute.event_to_visible_ms"),
            rejected: Stat::counter("warmroute.rejected"),
            agent_failures: Stat::counter("warmroute.agent_failures"),
            records_lost: Stat::counter("warmroute.records.lost"),
            record_batches_failed: Stat::counter("warmroute.records.batches_failed"),
            records_told: OutboxCounts::default(),
            stale: Stat::gauge("warmroute.table_stale"),
            age_ms: Stat::gauge("warmroute.table_age_ms"),
            endpoints: Stat::gauge("warmroute.endpoints"),
            endpoints_ready: Stat::gauge("warmroute.endpoints_ready"),
            endpoints_refused: Stat::gauge("warmroute.endpoints_refused"),
            blocks: Stat::gauge("warmroute.prefix_blocks"),
            in_flight: Stat::gauge("warmroute.in_flight"),
            precise: Stat::gauge("warmroute.endpoints_precise"),
            models: Stat::gauge("warmroute.models"),
            models_approximate: Stat::gauge("warmroute.models_approximate"),
            expectations: ["confirmed", "unconfirmed"]
                .map(|end| Stat::counter(&format!("warmroute.expectations.{end}"))),
            expectations_told: (0, 0),
            problems_told: Vec::new(),
            reported_ms: 0,
        }
    }

    /// How a prompt's bytes were found.
    pub(crate) fn prompt(&self, source: Option<&'static str>) {
        if let Some((_, stat)) = self.prompts.iter().find(|(name, _)| Some(*name) == source) {
            stat.add(1);
        }
    }

    /// All of a request was there; what becomes of it was known after so many nanoseconds.
    pub(crate) fn decided(&self, took_ns: u64) {
        self.decision_us.set(took_ns / 1_000);
    }

    /// This VM learned of events that happened at these times, in ms since 1970.
    pub(crate) fn visible(&self, told_ms: &[u64], now_ms: u64) {
        for at_ms in told_ms {
            self.event_to_visible_ms.set(now_ms.saturating_sub(*at_ms));
        }
    }

    /// Logs, once for each record of a model, why it is approximate.
    fn report_models(&mut self, vm: &VmState) {
        let models = &vm.follower().replica.models;
        let mut approximate = 0u64;
        let mut told = Vec::new();
        for model in models.iter() {
            let mark = (model.revision, model.distrusted);
            if let Some(problem) = model.problem() {
                approximate = u64::saturating_add(approximate, 1);
                if !self.problems_told.contains(&mark) {
                    log::warn!(
                        "chats of model {} are routed approximately: {problem}",
                        model.record.name
                    );
                }
            }
            told.push(mark);
        }
        self.problems_told = told;
        self.models.set(models.iter().len() as u64);
        self.models_approximate.set(approximate);
    }

    fn report_expectations(&mut self, vm: &VmState) {
        let counts = vm.expectation_counts();
        let (confirmed, unconfirmed) = self.expectations_told;
        let [first, second] = self.expectations;
        first.add_grown(counts.confirmed, confirmed);
        second.add_grown(counts.unconfirmed, unconfirmed);
        self.expectations_told = (counts.confirmed, counts.unconfirmed);
    }

    /// What became of this VM's records for the ledger.
    pub(crate) fn report_records(&mut self, counts: OutboxCounts) {
        self.records_lost.add_grown(counts.dropped, self.records_told.dropped);
        self.record_batches_failed.add_grown(counts.failed, self.records_told.failed);
        self.records_told = counts;
    }

    /// A request was sent on.
    pub(crate) fn forwarded(&self, reason: Option<&'static str>) {
        match self.picks.iter().find(|(name, _)| Some(*name) == reason) {
            Some((_, stat)) => stat.add(1),
            None => self.fail_open.add(1),
        }
    }

    /// The applier: the state of the table, about once a second.
    pub(crate) fn report_table(&mut self, vm: &VmState, now_ms: u64) {
        if now_ms.saturating_sub(self.reported_ms) < REPORT_MS {
            return;
        }
        self.reported_ms = now_ms;
        let replica = &vm.follower().replica;
        let (_, answered_ms) = replica.roster.position();
        let age_ms = now_ms.saturating_sub(answered_ms);
        let ready = replica.roster.iter().filter(|endpoint| endpoint.is_ready()).count();
        let in_flight: u64 =
            vm.in_flight().totals.all().iter().map(|(_, c)| u64::from(c.requests)).sum();
        self.stale.set(u64::from(age_ms > STALE_MS));
        self.age_ms.set(age_ms);
        self.endpoints.set(replica.roster.len() as u64);
        self.endpoints_ready.set(ready as u64);
        self.endpoints_refused.set(vm.refused_endpoints());
        let precise = replica.roster.iter().filter(|e| e.record.precise && e.is_ready()).count();
        self.precise.set(precise as u64);
        self.report_models(vm);
        self.report_expectations(vm);
        self.blocks.set(replica.table.len() as u64);
        self.in_flight.set(in_flight);
    }
}
