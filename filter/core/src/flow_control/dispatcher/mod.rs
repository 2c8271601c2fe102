//! The dispatcher: one for all workers, in the VM that is the applier. What it knows is in its own memory and goes with
//! it; the next one asks the workers.

mod announcement;
mod band;
mod budget_leases;
mod gate;
mod in_flight;
mod leases;
mod member;
mod reclamation;
mod reports;
mod requests;
mod views;

pub use in_flight::places_matter;
pub use views::{FlowKey, FlowView, PoolView};

use crate::flow_control::policy::saturation::EndpointLoad;
use crate::flow_control::protocol::{Order, PoolKey, Request, TicketId, ToWorker, Usage};
use crate::quota::Buckets;
use budget_leases::BudgetLeases;
use gate::{Gate, Held, Step};
use member::Member;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
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

/// The dispatcher of one epoch.
#[derive(Debug)]
pub struct Dispatcher {
    epoch: u64,
    /// The worker in the same VM.
    own: u64,
    /// Until when nobody goes; `None`: it is open.
    opening_until_ms: Option<u64>,
    began_ms: u64,
    ticked_ms: u64,
    tidied_ms: u64,
    next_nonce: u64,
    gates: BTreeMap<PoolKey, Gate>,
    members: BTreeMap<u64, Member>,
    budgets: Buckets,
    budget_leases: BudgetLeases,
    /// Requests that came before it was open, or for budgets that are on their way back from a lease; and whether their
    /// budgets are taken.
    early: BTreeMap<TicketId, (Rc<Request>, bool)>,
    outbox: Vec<ToWorker>,
}

impl Dispatcher {
    /// A dispatcher that knows nothing and asks the `live` incarnations for all that they have. `epoch` must be greater
    /// than that of any dispatcher before it, and not 0. `own`: the incarnation of its VM.
    #[must_use]
    pub fn new(epoch: u64, own: u64, live: &[u64], now_ms: u64) -> Self {
        let mut dispatcher = Self {
            epoch,
            own,
            opening_until_ms: Some(now_ms.saturating_add(OPENING_MS)),
            began_ms: now_ms,
            ticked_ms: now_ms,
            tidied_ms: now_ms,
            next_nonce: 1,
            gates: BTreeMap::new(),
            members: BTreeMap::new(),
            budgets: Buckets::default(),
            budget_leases: BudgetLeases::default(),
            early: BTreeMap::new(),
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
        let homeless = homeless.into_iter().map(|(id, request)| (id, request, true));
        self.accept_all(homeless, now_ms);
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
        if now_ms < self.ticked_ms {
            // The clock was set back.
            self.members.values_mut().for_each(|member| member.not_heard_after(now_ms));
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

    /// How the tenants' budgets stand.
    pub fn budgets(&mut self) -> &mut Buckets {
        &mut self.budgets
    }

    fn send(&mut self, incarnation: u64, order: Order) {
        if let Some(member) = self.members.get_mut(&incarnation) {
            let sequence = member.next_sequence();
            self.outbox.push(ToWorker { epoch: self.epoch, incarnation, sequence, order });
        }
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
            .map(|(number, held)| {
                (id(number), held.request.tokens, requests::reserved(&held.request))
            })
            .collect();
        self.end_leases(incarnation);
        let early: Vec<TicketId> =
            self.early.keys().filter(|id| id.incarnation == incarnation).copied().collect();
        for id in waiting.into_iter().chain(early) {
            self.withdraw(id);
        }
        for (id, tokens, reserved) in held {
            let usage = Usage { prompt: tokens, completion: 0 };
            self.finish(id, usage, Some(reserved), now_ms);
        }
        self.members.remove(&incarnation);
        self.open_if_due(now_ms);
        self.accept_early(now_ms);
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
        self.accept_early(now_ms);
    }
}
