//! What all contexts of one VM share: one state, whichever root context or stream is at work.

use crate::host::{self, HostStore};
use crate::metrics::Metrics;
use crate::stream::Shared;
use crate::watchdog::Watchdog;
use proxy_wasm::hostcalls;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use warmroute_core::config::PluginConfig;
use warmroute_core::exchange::{BodyBudget, Env};
use warmroute_core::ledger::{Outbox, Token};
use warmroute_core::request::ScratchPool;
use warmroute_core::telemetry::RequestStats;
use warmroute_core::vm::{Message, OrderTo, Parcel, SharedStore, VmState, messages};
use warmroute_shared_state::prefix::{ChainScope, chain_step};

/// The applier's queue. One name: whoever registers it last is the consumer.
const QUEUE: &str = "warmroute.applier";

/// How long after a stream's last event a VM counts as busy.
const BUSY_MS: u64 = 1000;

/// A root context that has not ticked for this long is gone.
const SILENCE_MS: u64 = 350;

/// Parcels or orders taken in one go, so that a flood cannot hold the thread.
const DRAIN_LIMIT: usize = 2048;

/// The same in bytes of parcels.
const DRAIN_BYTES: usize = 4 << 20;

/// A request to the agent that is under way.
pub(crate) struct Poll {
    pub(crate) root: u32,
    pub(crate) token: u32,
    pub(crate) deadline_ms: u64,
}

/// One VM.
pub(crate) struct Runtime {
    pub(crate) vm: VmState,
    pub(crate) metrics: Metrics,
    pub(crate) request_stats: RequestStats,
    pub(crate) watchdog: Watchdog,
    /// The root context that was configured last.
    newest_root: u32,
    /// The one that does the regular work, and when it last did.
    ticker: u32,
    ticked_ms: u64,
    /// The one that consumes the applier's queue, if this VM does.
    pub(crate) queue_root: Option<u32>,
    pub(crate) poll: Option<Poll>,
    pub(crate) next_poll_ms: u64,
    pub(crate) poll_failures: u32,
    /// Streams that wait for their turn or run with one, by their contexts.
    pub(crate) turns: BTreeMap<u32, Rc<Shared>>,
    /// Records on their way to the agent.
    pub(crate) ledger: Outbox,
    /// The batch under way: the root context that sent it, the call, and the batch.
    pub(crate) batch: Option<(u32, u32, Token)>,
    /// This worker's queue: the root context that consumes it, the row's slot, and the queue.
    worker_queue: Option<(u32, usize, u32)>,
    worker_queues: BTreeMap<usize, u32>,
    scratches: ScratchPool,
    bodies: BodyBudget,
    outbox: Vec<Vec<u8>>,
    parcel: Parcel,
    /// This VM ticks every few milliseconds: what is not urgent may wait for that.
    ticks_fast: bool,
    /// When a stream was last at work.
    worked_ms: u64,
    queue: Option<u32>,
    random: u64,
    vm_id: String,
    pool: String,
}

thread_local! {
    static RUNTIME: Cell<Option<Box<Runtime>>> = const { Cell::new(None) };
}

/// Works on the VM's state. `None` if the VM was never configured, or is at work already: a host call
/// that calls back at once must not find it twice.
pub(crate) fn with<T>(work: impl FnOnce(&mut Runtime) -> T) -> Option<T> {
    RUNTIME.with(|cell| {
        let mut runtime = cell.take()?;
        let result = work(&mut runtime);
        cell.set(Some(runtime));
        Some(result)
    })
}

/// Makes the VM's state if there is none yet. Returns whether it did.
///
/// # Errors
/// The pool that this VM serves, if it is another one: all filters with one `vm_id` share one table.
pub(crate) fn ensure(config: &PluginConfig) -> Result<bool, String> {
    RUNTIME.with(|cell| {
        let known = cell.take();
        let fresh = known.is_none();
        let runtime = known.unwrap_or_else(|| Box::new(Runtime::new(config)));
        let pool = runtime.pool.clone();
        cell.set(Some(runtime));
        if pool == config.pool { Ok(fresh) } else { Err(pool) }
    })
}

impl Runtime {
    fn new(config: &PluginConfig) -> Self {
        let (count, incarnation) = new_incarnation();
        let vm = VmState::new(incarnation, config.settings());
        // Envoy configures a VM that it throws away, then the main thread's, then the workers'.
        let vm = if count > 2 { vm.reluctant() } else { vm };
        let vm_id = host::property(&["plugin_vm_id"]).unwrap_or_default();
        Self {
            vm,
            metrics: Metrics::define(),
            request_stats: RequestStats::default(),
            watchdog: Watchdog::default(),
            newest_root: 0,
            ticker: 0,
            ticked_ms: 0,
            queue_root: None,
            poll: None,
            next_poll_ms: 0,
            poll_failures: 0,
            turns: BTreeMap::new(),
            ledger: Outbox::new(incarnation),
            batch: None,
            worker_queue: None,
            worker_queues: BTreeMap::new(),
            scratches: ScratchPool::default(),
            bodies: BodyBudget::default(),
            outbox: Vec::new(),
            parcel: Parcel::default(),
            ticks_fast: true,
            worked_ms: 0,
            queue: None,
            random: incarnation,
            vm_id: String::from_utf8(vm_id).unwrap_or_default(),
            pool: config.pool.clone(),
        }
    }

    /// A root context was configured: it does the regular work from now on.
    pub(crate) fn configured(&mut self, root: u32, now_ms: u64) {
        self.newest_root = root;
        self.ticker = root;
        self.ticked_ms = now_ms;
    }

    /// Whether this root context does the VM's regular work. The one configured last does; but Envoy may
    /// drop it (a listener refused after the plugin was configured, a configuration rolled back) and go on
    /// with an older one without a word: once it falls silent the older one takes over.
    pub(crate) fn ticks(&mut self, root: u32, now_ms: u64) -> bool {
        let silent = now_ms.saturating_sub(self.ticked_ms) >= SILENCE_MS || now_ms < self.ticked_ms;
        if root != self.newest_root && root != self.ticker && !silent {
            return false;
        }
        self.ticker = root;
        self.ticked_ms = now_ms;
        true
    }

    /// Calls the core with all that it needs, then sends what it has for the applier.
    pub(crate) fn event<T>(
        &mut self,
        config: &PluginConfig,
        context: u32,
        now_ms: u64,
        event: impl FnOnce(&mut Env<'_>) -> T,
    ) -> T {
        let random = &mut self.random;
        self.worked_ms = now_ms;
        let result = event(&mut Env {
            vm: &mut self.vm,
            store: &HostStore,
            config,
            now_ms,
            random: &mut || split_mix(random),
            bodies: &mut self.bodies,
            context,
            jwt_claim: &jwt_claim,
            ledger: &mut self.ledger,
            scratches: &mut self.scratches,
            outbox: &mut self.outbox,
        });
        self.flush(now_ms);
        self.measure_events();
        result
    }

    /// Something happens of which nothing comes but work.
    pub(crate) fn works(&mut self) {
        self.worked_ms = host::recent_ms();
        self.measure_events();
    }

    /// Sends what this VM has for others. Somebody waits for what flow control says; the rest can wait for a moment.
    pub(crate) fn flush(&mut self, now_ms: u64) {
        self.outbox.drain(..).for_each(|message| self.parcel.add(message));
        let reports = self.vm.take_reports();
        let urgent = !reports.is_empty() || !self.ticks_fast;
        reports.into_iter().for_each(|report| self.parcel.add(report));
        if let Some(parcel) = self.parcel.due(urgent, now_ms) {
            self.send_to_applier(&parcel);
        }
        for OrderTo { slot, bytes } in self.vm.take_orders() {
            self.tell_worker(slot, &bytes);
        }
    }

    fn tell_worker(&mut self, slot: usize, order: &[u8]) {
        let known = self.worker_queues.get(&slot).copied();
        let queue = known.or_else(|| {
            let name = worker_queue(slot);
            hostcalls::resolve_shared_queue(&self.vm_id, &name).ok().flatten()
        });
        if let Some(queue) = queue {
            self.worker_queues.insert(slot, queue);
            // Lost if it is gone: whoever has its slot next announces what it has.
            let _ = hostcalls::enqueue_shared_queue(queue, Some(order));
        }
    }

    /// Makes this root context the consumer of this worker's queue. At every tick: the slot may change.
    pub(crate) fn consume_orders(&mut self, root: u32) {
        let Some(slot) = self.vm.slot() else { return };
        let mine = self.worker_queue.is_some_and(|(by, of, _)| (by, of) == (root, slot));
        if !mine && let Ok(queue) = hostcalls::register_shared_queue(&worker_queue(slot)) {
            self.worker_queue = Some((root, slot, queue));
        }
    }

    /// Takes what the dispatcher had for this VM.
    pub(crate) fn drain_orders(&mut self, now_ms: u64) {
        let Some((_, _, queue)) = self.worker_queue else { return };
        for _ in 0..DRAIN_LIMIT {
            let Ok(Some(order)) = hostcalls::dequeue_shared_queue(queue) else { break };
            self.vm.on_order(&order, now_ms);
        }
        self.flush(now_ms);
    }

    /// Notes how long it took until this VM's requests could see the events that it learned of. Only at a request:
    /// what an idle VM learns at a tick was there to be seen before.
    pub(crate) fn measure_events(&mut self) {
        let told = self.vm.take_told();
        if !told.is_empty() {
            self.metrics.visible(&told, host::now_ms());
        }
    }

    /// Whether this VM is to tick every few milliseconds: as the applier, or because streams are at work.
    pub(crate) fn pace(&mut self, applier: bool, now_ms: u64) -> bool {
        let works = now_ms.abs_diff(self.worked_ms) < BUSY_MS || !self.parcel.is_empty();
        self.ticks_fast = applier || works;
        self.vm.set_ticks_fast(self.ticks_fast);
        self.ticks_fast
    }

    /// Sends a message to whichever VM is the applier, at once.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn tell_applier(&mut self, message: &[u8], now_ms: u64) {
        self.parcel.add(message.to_vec());
        if let Some(parcel) = self.parcel.due(true, now_ms) {
            self.send_to_applier(&parcel);
        }
    }

    fn send_to_applier(&mut self, parcel: &[u8]) {
        if self.queue.is_none() {
            self.queue = hostcalls::resolve_shared_queue(&self.vm_id, QUEUE).ok().flatten();
        }
        if let Some(queue) = self.queue {
            // Lost if there is no applier: its successor learns from the next picks.
            let _ = hostcalls::enqueue_shared_queue(queue, Some(parcel));
        }
    }

    /// Makes this root context the consumer of the applier's queue.
    pub(crate) fn consume_queue(&mut self, root: u32) {
        if self.queue_root != Some(root)
            && let Ok(queue) = hostcalls::register_shared_queue(QUEUE)
        {
            self.queue = Some(queue);
            self.queue_root = Some(root);
        }
    }

    /// Takes what is in the queue.
    pub(crate) fn drain_queue(&mut self, now_ms: u64) {
        let Some(queue) = self.queue else { return };
        let (mut raw, mut bytes) = (Vec::new(), 0_usize);
        while raw.len() < DRAIN_LIMIT
            && bytes < DRAIN_BYTES
            && let Ok(Some(parcel)) = hostcalls::dequeue_shared_queue(queue)
        {
            bytes = bytes.saturating_add(parcel.len());
            raw.push(parcel);
        }
        if raw.is_empty() {
            return;
        }
        let messages = raw.iter().flat_map(|parcel| messages(parcel));
        let messages = messages.filter_map(|bytes| Message::decode(bytes).ok());
        self.vm.on_messages(&HostStore, messages.inspect(crate::faults::on_message), now_ms);
        self.flush(now_ms);
    }
}

/// The queue of the worker whose row has this slot: as many names as there are slots.
fn worker_queue(slot: usize) -> String {
    format!("warmroute.worker.{slot}")
}

/// A claim of the current stream's token, from where `jwt_authn` leaves it (`payload_in_metadata: jwt_payload`).
fn jwt_claim(path: &[&str]) -> Option<Vec<u8>> {
    const FILTER: &str = "envoy.filters.http.jwt_authn";
    let payload = ["metadata", "filter_metadata", FILTER, "jwt_payload"];
    host::property(&[payload.as_slice(), path].concat())
}

/// How many VMs of this Envoy there were, this one included; and a number that no other one has or had: the
/// count mixed with the time, in case the shared data was lost meanwhile.
fn new_incarnation() -> (u64, u64) {
    const KEY: &str = "warmroute.incarnations";
    let mut count = 0;
    for _ in 0..100 {
        let (bytes, cas) = HostStore.get(KEY).map_or((Vec::new(), None), |(b, cas)| (b, Some(cas)));
        let last = bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        count = last.wrapping_add(1);
        if HostStore.set(KEY, &count.to_le_bytes(), cas).is_ok() {
            break;
        }
    }
    let mixed = chain_step(chain_step(ChainScope::default().root(), host::now_ns()), count);
    (count, mixed.max(1))
}

/// SplitMix64: enough for ties, and different in every VM by its seed.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
