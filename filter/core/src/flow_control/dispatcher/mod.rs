//! The dispatcher: one for all workers, in the VM that is the applier. What it knows is in its own memory and goes with
//! it; the next one asks the workers.

mod announcement;
mod band;
mod gate;
mod in_flight;
mod member;
mod reclamation;
mod reports;
pub mod statistics;

pub use in_flight::places_matter;

use crate::flow_control::policy::saturation::EndpointLoad;
use crate::flow_control::protocol::{
    DropReason, Order, PoolKey, Refused, Request, TicketId, ToWorker, Usage,
};
use crate::quota::{Ask, Buckets, Kind};
use gate::{Gate, Held, Step};
use member::Member;
use statistics::Statistics;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::flow::FlowControl;

/// A new dispatcher lets nobody go for so long, unless all workers have announced themselves before. A lease of the old
/// one is over by then.
pub const OPENING_MS: u64 = 600;

/// How long a lease is good for, unless it is renewed. Not longer than [`OPENING_MS`].
const LEASE_MS: u64 = 600;

/// When to try again if a queue is full: there is no telling.
const RETRY_AFTER_MS: u64 = 1000;

/// A tick that comes later than this after the one before shows that the dispatcher itself stood still.
const STALL_MS: u64 = 500;

/// How often what is idle is looked through.
const TIDY_MS: u64 = 10_000;

/// Flow control of one pool, as configured.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolControl {
    /// The pool.
    pub pool: PoolKey,
    /// Its flow control: that of its scheduler.
    pub flow: FlowControl,
    /// Priorities of the objectives that point at it.
    pub objectives: Vec<i32>,
}

/// How a pool stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolView {
    /// Which.
    pub pool: PoolKey,
    /// 1 and above: full.
    pub saturation: f64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Their tokens.
    pub in_flight_tokens: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Endpoints whose metrics are missing or too old for the detector.
    pub stale_endpoints: usize,
}

/// Requests of a flow that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLength {
    /// Pool.
    pub pool: PoolKey,
    /// Priority.
    pub priority: i32,
    /// Fairness ID.
    pub flow: String,
    /// How many.
    pub requests: usize,
}

/// The dispatcher of one epoch.
#[derive(Debug)]
pub struct Dispatcher {
    epoch: u64,
    /// Until when nobody goes; `None`: it is open.
    opening_until_ms: Option<u64>,
    began_ms: u64,
    ticked_ms: u64,
    tidied_ms: u64,
    next_nonce: u64,
    gates: BTreeMap<PoolKey, Gate>,
    members: BTreeMap<u64, Member>,
    budgets: Buckets,
    /// Requests that came before it was open, and whether their budgets are taken.
    early: BTreeMap<TicketId, (Rc<Request>, bool)>,
    statistics: Statistics,
    outbox: Vec<ToWorker>,
}

impl Dispatcher {
    /// A dispatcher that knows nothing and asks the `live` incarnations for all that they have. `epoch` must be greater
    /// than that of any dispatcher before it, and not 0.
    #[must_use]
    pub fn new(epoch: u64, live: &[u64], now_ms: u64) -> Self {
        let mut dispatcher = Self {
            epoch,
            opening_until_ms: Some(now_ms.saturating_add(OPENING_MS)),
            began_ms: now_ms,
            ticked_ms: now_ms,
            tidied_ms: now_ms,
            next_nonce: 1,
            gates: BTreeMap::new(),
            members: BTreeMap::new(),
            budgets: Buckets::default(),
            early: BTreeMap::new(),
            statistics: Statistics::default(),
            outbox: Vec::new(),
        };
        for incarnation in live {
            dispatcher.ask(*incarnation, now_ms);
        }
        dispatcher
    }

    /// Its epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The pools' flow control from now on. What waits and what is in flight stays; of a pool that has none any more,
    /// all that waits goes.
    pub fn configure(&mut self, controls: &[PoolControl], now_ms: u64) {
        let mut homeless = Vec::new();
        let kept: BTreeSet<PoolKey> = controls.iter().map(|control| control.pool).collect();
        for (_, mut gate) in self.gates.extract_if(.., |pool, _| !kept.contains(pool)) {
            homeless.extend(gate.drain());
        }
        for control in controls {
            let old = self.gates.get_mut(&control.pool);
            if old.as_ref().is_some_and(|gate| gate.is(&control.flow, &control.objectives)) {
                continue;
            }
            let mut gate = Gate::new(&control.flow, &control.objectives);
            if let Some(old) = old {
                gate.set_endpoints(old.endpoints());
                gate.take_leases(old);
                homeless.extend(old.drain());
            }
            for (incarnation, member) in &self.members {
                for (number, held) in &member.held {
                    if held.request.pool == control.pool {
                        let id = TicketId { incarnation: *incarnation, number: *number };
                        gate.start(id, held);
                    }
                }
            }
            self.gates.insert(control.pool, gate);
        }
        homeless.sort_by_key(|(id, request)| (request.since_ms, *id));
        for (id, request) in homeless {
            self.accept(id, &request, true, now_ms);
        }
    }

    /// The endpoints of a pool that may be picked, and their loads. With every change of either.
    pub fn set_endpoints(&mut self, pool: PoolKey, endpoints: &[EndpointLoad], now_ms: u64) {
        if let Some(gate) = self.gates.get_mut(&pool) {
            gate.set_endpoints(endpoints);
            self.dispatch(pool, now_ms);
        }
    }

    /// The regular work, at least every 100 ms or so; messages are to be read before.
    pub fn tick(&mut self, now_ms: u64) {
        let stood_still = now_ms.saturating_sub(self.ticked_ms);
        if stood_still > STALL_MS {
            self.members.values_mut().for_each(|member| member.forgive(stood_still));
        }
        self.ticked_ms = now_ms;
        let silent = |(id, member): (&u64, &Member)| member.is_silent(now_ms).then_some(*id);
        let gone: Vec<u64> = self.members.iter().filter_map(silent).collect();
        gone.into_iter().for_each(|incarnation| self.lose(incarnation, now_ms));
        let late = |(id, member): (&u64, &Member)| member.is_late(now_ms).then_some(*id);
        let late: Vec<u64> = self.members.iter().filter_map(late).collect();
        late.into_iter().for_each(|incarnation| self.ask(incarnation, now_ms));
        self.open_if_due(now_ms);
        let pools: Vec<PoolKey> = self.gates.keys().copied().collect();
        pools.into_iter().for_each(|pool| self.dispatch(pool, now_ms));
        if now_ms.saturating_sub(self.tidied_ms) >= TIDY_MS {
            self.tidied_ms = now_ms;
            self.gates.values_mut().for_each(|gate| gate.forget_idle(now_ms));
        }
    }

    /// Messages to be sent now. To be asked for after every call that changes something.
    #[must_use]
    pub fn take_messages(&mut self) -> Vec<ToWorker> {
        std::mem::take(&mut self.outbox)
    }

    /// Whether it lets requests go.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.opening_until_ms.is_none()
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// How the tenants' budgets stand.
    pub fn budgets(&mut self) -> &mut Buckets {
        &mut self.budgets
    }

    /// How the pools stand.
    pub fn pools(&self, now_ms: u64) -> impl Iterator<Item = PoolView> {
        self.gates.iter().map(move |(pool, gate)| PoolView {
            pool: *pool,
            saturation: gate.saturation(now_ms),
            in_flight: gate.in_flight().requests,
            in_flight_tokens: gate.in_flight().tokens,
            waiting: gate.waiting(),
            stale_endpoints: gate.stale_endpoints(now_ms),
        })
    }

    /// Who waits where.
    pub fn queue_lengths(&self) -> impl Iterator<Item = QueueLength> {
        self.gates.iter().flat_map(|(pool, gate)| {
            gate.bands().flat_map(move |(priority, band)| {
                band.queue_lengths().map(move |(flow, requests)| QueueLength {
                    pool: *pool,
                    priority,
                    flow: flow.to_owned(),
                    requests,
                })
            })
        })
    }

    fn send(&mut self, incarnation: u64, order: Order) {
        if let Some(member) = self.members.get_mut(&incarnation) {
            let sequence = member.next_sequence();
            self.outbox.push(ToWorker { epoch: self.epoch, incarnation, sequence, order });
        }
    }

    /// A request that is known to its worker as waiting: budgets first, then its pool's queue.
    fn accept(&mut self, id: TicketId, request: &Rc<Request>, reserved: bool, now_ms: u64) {
        if self.opening_until_ms.is_some() {
            self.early.insert(id, (Rc::clone(request), reserved));
            return;
        }
        if !reserved && let Err(refusal) = self.budgets.take_all(&request.budgets, now_ms) {
            self.statistics.dropped(request, DropReason::Budget);
            let refused = Refused::Budget(refusal);
            self.send(id.incarnation, Order::Refuse { number: id.number, refused });
            return;
        }
        let Some(gate) = self.gates.get_mut(&request.pool) else {
            self.grant(id, request, now_ms);
            return;
        };
        gate.push(id, Rc::clone(request));
        if let Some(member) = self.members.get_mut(&id.incarnation) {
            member.waiting.insert(id.number, Rc::clone(request));
        }
        self.dispatch(request.pool, now_ms);
        if !self.is_waiting(id) {
            self.offer_lease(request.pool, id.incarnation, now_ms);
            return;
        }
        let overflow = self.gates.get(&request.pool).and_then(|gate| gate.overflow(request));
        if let Some(reason) = overflow {
            self.withdraw(id, reason);
            let refused = Refused::Queue { reason, retry_after_ms: RETRY_AFTER_MS };
            self.send(id.incarnation, Order::Refuse { number: id.number, refused });
            return;
        }
        if !reserved && !request.budgets.is_empty() {
            let levels = self.budgets.levels(&request.budgets, now_ms);
            self.send(id.incarnation, Order::Waits { number: id.number, levels });
        }
        self.recall_leases(request.pool);
    }

    fn is_waiting(&self, id: TicketId) -> bool {
        self.members
            .get(&id.incarnation)
            .is_some_and(|member| member.waiting.contains_key(&id.number))
    }

    /// All that may go in this pool now.
    fn dispatch(&mut self, pool: PoolKey, now_ms: u64) {
        while self.opening_until_ms.is_none()
            && let Some(gate) = self.gates.get_mut(&pool)
        {
            match gate.step(now_ms) {
                Step::Dispatch(id, request) => self.grant(id, &request, now_ms),
                Step::Evict(victims) => victims.into_iter().for_each(|id| self.evict(id)),
                Step::Rest => return,
            }
        }
    }

    fn evict(&mut self, id: TicketId) {
        let held = self.members.get(&id.incarnation).and_then(|m| m.held.get(&id.number));
        if let Some(held) = held {
            self.statistics.dropped(&held.request, DropReason::Evicted);
            self.send(id.incarnation, Order::Evict { number: id.number });
        }
    }

    fn grant(&mut self, id: TicketId, request: &Rc<Request>, now_ms: u64) {
        let Some(member) = self.members.get_mut(&id.incarnation) else { return };
        member.waiting.remove(&id.number);
        let held =
            Held { request: Rc::clone(request), endpoints: Vec::new(), dispatched_ms: now_ms };
        if let Some(gate) = self.gates.get_mut(&request.pool) {
            gate.start(id, &held);
        }
        member.held.insert(id.number, held);
        self.statistics.dispatched(request, now_ms.saturating_sub(request.since_ms));
        let levels = self.budgets.levels(&request.budgets, now_ms);
        self.send(id.incarnation, Order::Grant { number: id.number, levels });
    }

    /// A request in flight is over. `charged` as in [`Report::Release`](crate::flow_control::protocol::Report::Release).
    fn finish(&mut self, id: TicketId, usage: Usage, charged: Option<u64>, now_ms: u64) {
        let member = self.members.get_mut(&id.incarnation);
        let Some(held) = member.and_then(|member| member.held.remove(&id.number)) else { return };
        self.settle(&held.request.budgets, charged, now_ms);
        self.statistics.served(&held.request, usage);
        if let Some(gate) = self.gates.get_mut(&held.request.pool) {
            gate.finish(id, &held, usage, now_ms);
            self.dispatch(held.request.pool, now_ms);
        }
    }

    fn settle(&mut self, budgets: &[Ask], charged: Option<u64>, now_ms: u64) {
        match charged {
            Some(tokens) => self.budgets.settle(budgets, tokens, now_ms),
            None => self.budgets.release(budgets),
        }
    }

    /// A request that waits goes nowhere.
    fn withdraw(&mut self, id: TicketId, reason: DropReason) {
        let Some(member) = self.members.get_mut(&id.incarnation) else { return };
        let waiting = member.waiting.remove(&id.number);
        let request = if let Some(request) = waiting {
            if let Some(gate) = self.gates.get_mut(&request.pool) {
                gate.remove(id, &request);
            }
            request
        } else if let Some(request) = member.suspended.remove(&id.number) {
            request
        } else {
            // Whose budgets are not taken, nothing is given back for.
            let Some((request, reserved)) = self.early.remove(&id) else { return };
            if !reserved {
                self.statistics.dropped(&request, reason);
                return;
            }
            request
        };
        self.budgets.release(&request.budgets);
        self.statistics.dropped(&request, reason);
    }

    /// A worker is gone: what it held is free again, what waited goes nowhere. Its requests may have been computed:
    /// they are charged what they reserved.
    fn lose(&mut self, incarnation: u64, now_ms: u64) {
        let Some(member) = self.members.get(&incarnation) else { return };
        let id = |number: &u64| TicketId { incarnation, number: *number };
        let waiting: Vec<TicketId> =
            member.waiting.keys().chain(member.suspended.keys()).map(id).collect();
        let held: Vec<(TicketId, u64, u64)> = member
            .held
            .iter()
            .map(|(number, held)| (id(number), held.request.tokens, reserved(&held.request)))
            .collect();
        self.gates.values_mut().for_each(|gate| gate.unlease_all(incarnation));
        let early: Vec<TicketId> =
            self.early.keys().filter(|id| id.incarnation == incarnation).copied().collect();
        for id in waiting.into_iter().chain(early) {
            self.withdraw(id, DropReason::Cancelled);
        }
        for (id, tokens, reserved) in held {
            let usage = Usage { prompt: tokens, completion: 0 };
            self.finish(id, usage, Some(reserved), now_ms);
        }
        self.members.remove(&incarnation);
        self.open_if_due(now_ms);
    }

    /// Asks a worker for all that it has. Until it answers, nothing of it is let go: a grant on its way and its
    /// announcement could not be told apart.
    fn ask(&mut self, incarnation: u64, now_ms: u64) {
        let nonce = self.next_nonce;
        self.next_nonce = self.next_nonce.wrapping_add(1);
        let member = self.members.entry(incarnation).or_insert_with(|| Member::new(now_ms));
        member.ask(nonce, now_ms);
        let waiting = std::mem::take(&mut member.waiting);
        for (number, request) in &waiting {
            if let Some(gate) = self.gates.get_mut(&request.pool) {
                gate.remove(TicketId { incarnation, number: *number }, request);
            }
        }
        member.suspended.extend(waiting);
        self.send(incarnation, Order::AnnounceRequest { nonce });
    }

    fn open_if_due(&mut self, now_ms: u64) {
        let Some(until_ms) = self.opening_until_ms else { return };
        let all = !self.members.is_empty() && self.members.values().all(|m| !m.is_asked());
        // A clock that is set back must not keep it shut.
        let over = now_ms >= until_ms || now_ms < self.began_ms;
        if !all && !over {
            return;
        }
        self.opening_until_ms = None;
        let mut early: Vec<_> = std::mem::take(&mut self.early).into_iter().collect();
        early.sort_by_key(|(id, (request, _))| (request.since_ms, *id));
        for (id, (request, reserved)) in early {
            self.accept(id, &request, reserved, now_ms);
        }
    }

    fn offer_lease(&mut self, pool: PoolKey, incarnation: u64, now_ms: u64) {
        let workers = self.members.len() as u64;
        let asked = self.members.get(&incarnation).is_none_or(Member::is_asked);
        let Some(gate) = self.gates.get_mut(&pool) else { return };
        if asked || self.opening_until_ms.is_some() {
            return;
        }
        if let Some((slots, tokens)) = gate.lease(incarnation, workers, now_ms) {
            let until_ms = now_ms.saturating_add(LEASE_MS);
            self.send(incarnation, Order::Lease { pool, slots, tokens, until_ms });
        }
    }

    /// Somebody waits: what others were leased is wanted back.
    fn recall_leases(&mut self, pool: PoolKey) {
        let Some(gate) = self.gates.get_mut(&pool) else { return };
        for incarnation in gate.recall() {
            self.send(incarnation, Order::Recall { pools: vec![pool] });
        }
    }
}

/// Tokens that a request took of its tenant's budgets.
fn reserved(request: &Request) -> u64 {
    let of = |kind| request.budgets.iter().find(|ask| ask.bucket.kind() == kind);
    let ask = of(Kind::Tokens).or_else(|| of(Kind::InflightTokens));
    ask.map_or(0, |ask| ask.amount)
}
