//! Flow control and budgets in a VM: every VM is a worker of it; the one that is the applier is the dispatcher, too.
//!
//! What workers say to the dispatcher goes through the applier's queue; what it answers, through the queue of each
//! worker, which is named after the slot of its row.

use super::tenant_status::ToldStatus;
use super::{Keys, Message, Routed, SharedStore, VmState};
use crate::flow_control::dispatcher::{Dispatcher, PoolControl, places_matter};
use crate::flow_control::policy::saturation::{EndpointLoad, Role};
use crate::flow_control::protocol::{FromWorker, PoolKey, Request, ToWorker, Usage};
use crate::flow_control::worker::{Admission, Event, Ticket, TimeToLive, Worker};
use crate::quota::{Ask as BudgetAsk, Level};
use crate::replica::{EndpointState, Replica};
use std::collections::BTreeMap;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::flow::FlowControl;
use warmroute_shared_state::policy::plugin::ROLE_LABEL;
use warmroute_shared_state::policy::routing::Pool;

/// Reports that are kept for a VM that has no row yet, at most. The dispatcher asks for all if it misses any.
const REPORTS_KEPT: usize = 1024;

/// An order for the worker whose row has this slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderTo {
    /// The slot.
    pub slot: usize,
    /// The order's bytes, for [`VmState::on_order`].
    pub bytes: Vec<u8>,
}

/// Flow control's state in one VM.
#[derive(Debug)]
pub(super) struct Flow {
    worker: Worker,
    pub(super) dispatcher: Option<Box<Dispatching>>,
    events: Vec<Event>,
    reports: Vec<FromWorker>,
    orders: Vec<OrderTo>,
    /// A request has asked at least once: only then is there anything to say.
    used: bool,
}

/// The dispatcher with what it was last told of the world.
#[derive(Debug)]
pub(super) struct Dispatching {
    pub(super) dispatcher: Dispatcher,
    /// What the agent was told of tenants.
    pub(super) told_status: ToldStatus,
    /// Revisions of policy and roster that it was told of.
    told: Option<(u64, u64)>,
    loads: BTreeMap<PoolKey, Vec<EndpointLoad>>,
    /// Who answers at which slot, by the reports of each.
    slots: BTreeMap<usize, u64>,
}

impl Flow {
    pub(super) fn new(incarnation: u64) -> Self {
        Self {
            worker: Worker::new(incarnation),
            dispatcher: None,
            events: Vec::new(),
            reports: Vec::new(),
            orders: Vec::new(),
            used: false,
        }
    }
}

/// The pools with flow control, by the policy.
fn controls(policy: &Policy) -> Vec<PoolControl> {
    let objectives = |index: Option<usize>| {
        let of_pool = policy.objectives.iter().filter(|o| o.pool.is_none() || o.pool == index);
        of_pool.map(|objective| objective.priority).collect::<Vec<_>>()
    };
    let flow_of = |scheduler: usize| policy.flow.iter().find(|flow| flow.scheduler == scheduler);
    if policy.pools.is_empty() {
        let only = flow_of(0).map(|flow| PoolControl {
            pool: pool_key(None),
            flow: flow.clone(),
            objectives: objectives(None),
        });
        return only.into_iter().collect();
    }
    let pools = policy.pools.iter().enumerate();
    let control = |(index, pool): (usize, &Pool)| {
        let flow = flow_of(pool.scheduler)?.clone();
        Some(PoolControl { pool: pool_key(Some(pool)), flow, objectives: objectives(Some(index)) })
    };
    pools.filter_map(control).collect()
}

/// The key of a pool; without pools, that of the only one.
#[must_use]
pub fn pool_key(pool: Option<&Pool>) -> PoolKey {
    PoolKey::of(pool.map_or("", |pool| &pool.name))
}

fn loads(replica: &Replica, pool: Option<&Pool>) -> Vec<EndpointLoad> {
    ready(replica, pool).map(load_of).collect()
}

fn ready<'r>(
    replica: &'r Replica,
    pool: Option<&'r Pool>,
) -> impl Iterator<Item = &'r EndpointState> {
    replica.roster.iter().filter(move |e| e.is_ready() && e.is_in(pool))
}

fn role_of(endpoint: &EndpointState) -> Role {
    let label = endpoint.record.labels.iter().find(|(key, _)| key == ROLE_LABEL);
    Role::of_label(label.map(|(_, value)| value.as_str()))
}

/// The endpoint as a saturation detector sees it.
pub(super) fn load_of(endpoint: &EndpointState) -> EndpointLoad {
    EndpointLoad {
        id: endpoint.record.id,
        role: role_of(endpoint),
        waiting: endpoint.load.waiting,
        kv_usage: endpoint.load.kv_usage,
        scraped_ms: (endpoint.load_at_ms > 0).then_some(endpoint.load_at_ms),
    }
}

impl Dispatching {
    fn new(
        store: &dyn SharedStore,
        keys: &Keys,
        incarnation: u64,
        slots: BTreeMap<usize, u64>,
        now_ms: u64,
    ) -> Self {
        let live: Vec<u64> = slots.values().copied().collect();
        let (epoch, envoy) = next_epoch(store, keys, incarnation, now_ms);
        let dispatcher = Dispatcher::new(epoch, incarnation, &live, now_ms);
        let told_status = ToldStatus::new(envoy);
        Self { dispatcher, told_status, told: None, loads: BTreeMap::new(), slots }
    }

    /// Where this VM answers.
    fn slot_of(&self, incarnation: u64) -> Option<usize> {
        self.slots.iter().find(|(_, by)| **by == incarnation).map(|(slot, _)| *slot)
    }

    /// This VM answers at that slot from now on.
    fn answers_at(&mut self, incarnation: u64, slot: usize) {
        if self.slots.get(&slot) != Some(&incarnation) {
            self.slots.retain(|_, by| *by != incarnation);
            self.slots.insert(slot, incarnation);
        }
    }

    /// Tells the dispatcher what changed of configuration, endpoints and loads.
    fn learn(&mut self, replica: &Replica, now_ms: u64) {
        let policy = replica.policy.current();
        let newest = (replica.policy.revision(), replica.roster.revision());
        let told = self.told.replace(newest);
        if told == Some(newest) {
            return;
        }
        if told.is_none_or(|(policy, _)| policy != newest.0) {
            self.dispatcher.configure(&controls(policy), now_ms);
            self.loads.clear();
        }
        for flow in &policy.flow {
            let mut tell = |pool: Option<&Pool>| {
                let (key, loads) = (pool_key(pool), loads(replica, pool));
                if self.loads.get(&key) != Some(&loads) {
                    self.dispatcher.set_endpoints(key, &loads, now_ms);
                    self.loads.insert(key, loads);
                }
            };
            if policy.pools.is_empty() {
                tell(None);
            }
            policy
                .pools
                .iter()
                .filter(|p| p.scheduler == flow.scheduler)
                .for_each(|p| tell(Some(p)));
        }
    }
}

/// A number greater than that of any dispatcher before, and one that all dispatchers of this Envoy have and no other
/// Envoy's: the incarnation of the first one's VM.
fn next_epoch(store: &dyn SharedStore, keys: &Keys, incarnation: u64, now_ms: u64) -> (u64, u64) {
    let (mut epoch, mut envoy) = (now_ms.max(1), incarnation);
    for _ in 0..16 {
        let (bytes, cas) = store.get(&keys.dispatcher).unwrap_or_default();
        let word = |at: usize| {
            let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<8>());
            bytes.map(|bytes| u64::from_le_bytes(*bytes))
        };
        epoch = word(0).unwrap_or(0).saturating_add(1).max(now_ms);
        envoy = word(8).unwrap_or(incarnation);
        let value = [epoch.to_le_bytes(), envoy.to_le_bytes()].concat();
        if store.set(&keys.dispatcher, &value, Some(cas)).is_ok() {
            break;
        }
    }
    (epoch, envoy)
}

impl VmState {
    /// The flow control of a request's pool, if it has any.
    #[must_use]
    pub fn flow_control_of<'p>(policy: &'p Policy, pool: Option<&Pool>) -> Option<&'p FlowControl> {
        let scheduler = pool.map_or(0, |pool| pool.scheduler);
        policy.flow.iter().find(|flow| flow.scheduler == scheduler)
    }

    /// May this request of the stream `context` go? See [`Worker::acquire`].
    pub fn acquire(
        &mut self,
        request: Request,
        context: u32,
        ttl: TimeToLive,
        now_ms: u64,
    ) -> Admission {
        self.flow.used = true;
        let admission = self.flow.worker.acquire(request, context, ttl, now_ms);
        self.pump(now_ms);
        admission
    }

    /// An admitted request was picked for: said where the detector of its pool needs to know. `policy`: the one that the
    /// pool is of.
    pub fn placed(
        &mut self,
        ticket: Ticket,
        policy: &Policy,
        pool: Option<&Pool>,
        routed: &Routed,
        now_ms: u64,
    ) {
        let Some(flow) = Self::flow_control_of(policy, pool) else { return };
        let roles = || ready(&self.follower.replica, pool).map(role_of);
        if places_matter(&flow.detector, roles) {
            self.flow.worker.placed(ticket, &routed.endpoints());
            self.pump(now_ms);
        }
    }

    /// An admitted request is over. See [`Worker::release`].
    pub fn release(&mut self, ticket: Ticket, usage: Usage, charged: Option<u64>, now_ms: u64) {
        self.flow.worker.release(ticket, usage, charged, now_ms);
        self.pump(now_ms);
    }

    /// The stream of a waiting request is gone.
    pub fn cancel(&mut self, ticket: Ticket, now_ms: u64) {
        self.flow.worker.cancel(ticket);
        self.pump(now_ms);
    }

    /// How budgets stand, as far as this VM has heard.
    #[must_use]
    pub fn budget_levels(&self, budgets: &[BudgetAsk]) -> Vec<Level> {
        self.flow.worker.levels(budgets)
    }

    /// Requests that wait in this VM, and those in flight from it.
    #[must_use]
    pub fn flow_counts(&self) -> (usize, usize) {
        (self.flow.worker.parked(), self.flow.worker.held())
    }

    /// An order of the dispatcher came for this VM.
    pub fn on_order(&mut self, bytes: &[u8], now_ms: u64) {
        if let Ok(message) = ToWorker::decode(bytes) {
            // With tenants it goes on being heard, though nobody asks it for anything: it may have to remember what the
            // dispatcher's own VM takes of their budgets.
            self.flow.used |= !self.follower.replica.policy.current().tenants.is_empty();
            let events = self.flow.worker.on_message(message, now_ms);
            self.flow.events.extend(events);
            self.pump(now_ms);
        }
    }

    /// What waiting and running requests are to be told.
    #[must_use]
    pub fn take_flow_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.flow.events)
    }

    /// What to send to the applier's queue. Nothing as long as this VM has no row: it could not be answered.
    #[must_use]
    pub fn take_reports(&mut self) -> Vec<Vec<u8>> {
        let reports = &mut self.flow.reports;
        let Some(slot) = self.row.slot().and_then(|slot| u16::try_from(slot).ok()) else {
            reports.drain(..reports.len().saturating_sub(REPORTS_KEPT));
            return Vec::new();
        };
        let message =
            |report: FromWorker| Message::Flow { slot, report: &report.encode() }.encode();
        reports.drain(..).map(message).collect()
    }

    /// What to send to workers' queues.
    #[must_use]
    pub fn take_orders(&mut self) -> Vec<OrderTo> {
        core::mem::take(&mut self.flow.orders)
    }

    /// A worker's report came, and this VM is the dispatcher.
    pub(super) fn on_report(&mut self, slot: u16, bytes: &[u8], now_ms: u64) {
        if let Some(dispatching) = &mut self.flow.dispatcher
            && let Ok(message) = FromWorker::decode(bytes)
        {
            dispatching.answers_at(message.incarnation, slot.into());
            dispatching.dispatcher.on_message(message, now_ms);
        }
    }

    /// The regular work of both sides.
    pub(super) fn tick_flow(&mut self, store: &dyn SharedStore, now_ms: u64) {
        match (&self.applier, &self.flow.dispatcher) {
            (Some(applier), None) => {
                let slots = applier.live().iter().copied().collect();
                let incarnation = self.ledger.incarnation();
                let dispatching = Dispatching::new(store, &self.keys, incarnation, slots, now_ms);
                self.flow.dispatcher = Some(Box::new(dispatching));
            }
            (None, Some(_)) => self.flow.dispatcher = None,
            _ => {}
        }
        if let Some(dispatching) = &mut self.flow.dispatcher {
            dispatching.learn(&self.follower.replica, now_ms);
            dispatching.dispatcher.tick(now_ms);
        }
        if self.flow.used {
            let replica = &self.follower.replica;
            let policy = replica.policy.current();
            let is_empty = |key: PoolKey| {
                let pool = policy.pools.iter().find(|pool| pool_key(Some(pool)) == key);
                ready(replica, pool).next().is_none()
            };
            let events = self.flow.worker.tick(is_empty, now_ms);
            self.flow.events.extend(events);
        }
        self.pump(now_ms);
    }

    /// The dispatcher learns at once what the agent told, not only at the next tick.
    pub(super) fn flow_learns(&mut self, now_ms: u64) {
        if let Some(dispatching) = &mut self.flow.dispatcher {
            dispatching.learn(&self.follower.replica, now_ms);
        }
        self.pump(now_ms);
    }

    /// Moves messages until nobody has any: within this VM at once, others' into the lists for their queues.
    pub(super) fn pump(&mut self, now_ms: u64) {
        loop {
            let mut moved = false;
            for report in self.flow.worker.take_messages() {
                moved = true;
                match &mut self.flow.dispatcher {
                    Some(dispatching) => dispatching.dispatcher.on_message(report, now_ms),
                    None => self.flow.reports.push(report),
                }
            }
            let Some(dispatching) = &mut self.flow.dispatcher else { return };
            for order in dispatching.dispatcher.take_messages() {
                moved = true;
                if order.incarnation == self.ledger.incarnation() {
                    let events = self.flow.worker.on_message(order, now_ms);
                    self.flow.events.extend(events);
                } else if let Some(slot) = dispatching.slot_of(order.incarnation) {
                    self.flow.orders.push(OrderTo { slot, bytes: order.encode() });
                }
            }
            if !moved {
                return;
            }
        }
    }
}
