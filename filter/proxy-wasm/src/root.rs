//! The root context: configuration, ticks, the applier's queue and its requests to the agent.

use crate::host::{self, HostStore};
use crate::runtime::{self, Poll, Runtime};
use crate::stream::Stream;
use crate::{counts, faults, turns, warm_up};
use core::time::Duration;
use log::{error, info, warn};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{BufferType, ContextType, MapType};
use std::rc::Rc;
use warmroute_core::config::PluginConfig;
use warmroute_core::ledger::Token;
use warmroute_core::vm::PageOutcome;

/// Between two ticks of an idle VM: heartbeats and leases live from them.
const TICK: Duration = Duration::from_millis(100);

/// Of the applier: rows are added up and deltas published at least this often. And of a VM that has requests: what it
/// has for others goes in parcels.
const BUSY_TICK: Duration = Duration::from_millis(5);

/// How long the agent may hold an answer while it has no news.
const WAIT_MS: u64 = 5000;

/// When a request to the agent is given up.
const POLL_TIMEOUT: Duration = Duration::from_millis(8000);

/// When a batch of records is given up, to be sent again.
const RECORDS_TIMEOUT: Duration = Duration::from_millis(5000);

/// When a status of tenants is given up: the next one comes soon.
const STATUS_TIMEOUT: Duration = Duration::from_millis(900);

/// First and longest pause after a failed request to the agent.
const RETRY_MS: (u64, u64) = (100, 2000);

/// One plugin configuration in one VM.
pub(crate) struct Root {
    id: u32,
    config: Option<Rc<PluginConfig>>,
    fast_ticks: bool,
}

impl Root {
    pub(crate) fn new(id: u32) -> Self {
        Self { id, config: None, fast_ticks: true }
    }

    /// Ticks follow the role, and whether there are requests.
    fn set_pace(&mut self, busy: bool) {
        if busy != self.fast_ticks {
            self.fast_ticks = busy;
            let _ = host::set_tick_period(if busy { BUSY_TICK } else { TICK });
        }
    }

    fn poll_agent(&self, runtime: &mut Runtime, cluster: &str, now_ms: u64) {
        let under_way = runtime
            .poll
            .as_ref()
            .is_some_and(|poll| poll.root == self.id && now_ms < poll.deadline_ms);
        if under_way || now_ms < runtime.next_poll_ms {
            return;
        }
        let Some(path) = runtime.vm.poll_path(WAIT_MS) else { return };
        match host::get(cluster, &path, POLL_TIMEOUT) {
            Some(token) => {
                let patience = u64::try_from(POLL_TIMEOUT.as_millis()).unwrap_or(0);
                let deadline_ms = now_ms.saturating_add(patience).saturating_add(1000);
                runtime.poll = Some(Poll { root: self.id, token, deadline_ms });
            }
            None => self.poll_failed(runtime, "Envoy could not send it", now_ms),
        }
    }

    fn poll_failed(&self, runtime: &mut Runtime, why: &str, now_ms: u64) {
        let (first, longest) = RETRY_MS;
        let factor = 1u64.checked_shl(runtime.poll_failures).unwrap_or(u64::MAX);
        runtime.next_poll_ms = now_ms.saturating_add(first.saturating_mul(factor).min(longest));
        // Said once for each outage.
        if runtime.poll_failures == 0 {
            let cluster = self.config.as_ref().map_or("", |config| config.agent_cluster.as_str());
            warn!(
                "the agent (cluster {cluster}) gave no table: {why}; the last one stays in force"
            );
        }
        runtime.poll_failures = runtime.poll_failures.saturating_add(1).min(10);
        runtime.metrics.agent_failures.add(1);
    }

    fn on_agent_answer(&self, runtime: &mut Runtime, body_size: usize, now_ms: u64) {
        runtime.poll = None;
        let status = host::header(MapType::HttpCallResponseHeaders, ":status");
        if status.as_deref() != Some(b"200") {
            let status = status.and_then(|status| String::from_utf8(status).ok());
            let why = status.map_or("no answer".into(), |status| format!("status {status}"));
            self.poll_failed(runtime, &why, now_ms);
            return;
        }
        let body = host::buffer(BufferType::HttpCallResponseBody, 0, body_size);
        match runtime.vm.on_page(&HostStore, &body, now_ms) {
            Ok(outcome) => {
                if runtime.poll_failures > 0 {
                    info!("the agent answers again");
                    runtime.poll_failures = 0;
                }
                // The rest of a snapshot at once; deltas at the next tick, which lets them gather.
                runtime.next_poll_ms = 0;
                if outcome == PageOutcome::More
                    && let Some(config) = &self.config
                {
                    self.poll_agent(runtime, &config.agent_cluster, now_ms);
                }
            }
            Err(why) => self.poll_failed(runtime, &format!("unreadable page: {why}"), now_ms),
        }
    }
}

impl Root {
    /// Sends finished requests' records, if a batch is due.
    fn send_records(&self, runtime: &mut Runtime, cluster: &str, now_ms: u64) {
        let Some((batch, body)) = runtime.ledger.next_batch(now_ms) else { return };
        match host::post(cluster, "/v1/records", &body, RECORDS_TIMEOUT) {
            Some(call) => runtime.batch = Some((self.id, call, batch)),
            None => runtime.ledger.failed(batch, now_ms),
        }
    }

    fn on_records_answer(runtime: &mut Runtime, batch: Token, now_ms: u64) {
        runtime.batch = None;
        let status = host::header(MapType::HttpCallResponseHeaders, ":status");
        if status.as_deref() == Some(b"200") {
            runtime.ledger.acknowledged(batch);
        } else {
            runtime.ledger.failed(batch, now_ms);
        }
    }
}

impl Context for Root {
    fn on_http_call_response(
        &mut self,
        token: u32,
        _num_headers: usize,
        body_size: usize,
        _num_trailers: usize,
    ) {
        let now_ms = host::now_ms();
        runtime::with(|runtime| {
            if let Some((root, call, batch)) = runtime.batch
                && (root, call) == (self.id, token)
            {
                Self::on_records_answer(runtime, batch, now_ms);
                return;
            }
            if runtime.poll.as_ref().is_some_and(|poll| poll.token == token && poll.root == self.id)
            {
                self.on_agent_answer(runtime, body_size, now_ms);
            }
        });
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        let bytes = host::buffer(BufferType::PluginConfiguration, 0, size);
        let config = match PluginConfig::parse(&bytes) {
            Ok(config) => Rc::new(config),
            Err(refused) => {
                error!("{refused}");
                return false;
            }
        };
        match runtime::ensure(&config) {
            Ok(true) => warm_up::run(),
            Ok(false) => {}
            Err(pool) => {
                let wanted = &config.pool;
                error!("this vm_id serves the pool {pool}; give {wanted} a vm_id of its own");
                return false;
            }
        }
        runtime::with(|runtime| {
            runtime.configured(self.id, host::now_ms());
            runtime.vm.attach(&HostStore);
        });
        self.config = Some(config);
        // The first tick comes soon: until somebody is the applier there is no table.
        let _ = host::set_tick_period(BUSY_TICK);
        true
    }

    fn on_tick(&mut self) {
        counts::tell();
        let Some(config) = self.config.clone() else { return };
        let now_ms = host::now_ms();
        let busy = runtime::with(|runtime| {
            if !runtime.ticks(self.id, now_ms) {
                return false;
            }
            runtime.vm.set_settings(config.settings());
            faults::on_tick(runtime.vm.slot());
            if runtime.vm.is_applier() {
                // What waits goes out with this tick. Queue callbacks may have fallen silent.
                runtime.consume_queue(self.id);
                runtime.drain_queue(now_ms);
            }
            let applier = runtime.vm.tick(&HostStore, now_ms);
            runtime.vm.take_told();
            if applier {
                runtime.consume_queue(self.id);
                self.poll_agent(runtime, &config.agent_cluster, now_ms);
                runtime.metrics.report_table(&runtime.vm, now_ms);
                if let Some(status) = runtime.vm.next_tenant_status(now_ms) {
                    // Its answer changes nothing.
                    host::post(&config.agent_cluster, "/v1/tenants", &status, STATUS_TIMEOUT);
                }
            } else {
                runtime.queue_root = None;
            }
            runtime.consume_orders(self.id);
            runtime.drain_orders(now_ms);
            runtime.flush(now_ms);
            self.send_records(runtime, &config.agent_cluster, now_ms);
            runtime.metrics.report_records(runtime.ledger.counts());
            runtime.pace(applier, now_ms)
        });
        self.set_pace(busy.unwrap_or(false));
        turns::deliver(self.id, None);
        // Last: it acts on other contexts.
        runtime::with(|runtime| runtime.watchdog.check(now_ms));
    }

    fn on_queue_ready(&mut self, _queue_id: u32) {
        let now_ms = host::now_ms();
        runtime::with(|runtime| {
            if runtime.vm.is_applier() {
                runtime.drain_queue(now_ms);
            }
            runtime.drain_orders(now_ms);
        });
        turns::deliver(self.id, None);
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream::new(id, self.config.clone()?)))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
