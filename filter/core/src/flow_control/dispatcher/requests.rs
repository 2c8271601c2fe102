//! A request's way: accepted, let go or refused, over.

use super::{Dispatcher, Held, RETRY_AFTER_MS, Step};
use crate::flow_control::protocol::{Order, PoolKey, Refused, Request, TicketId, Usage};
use crate::quota::{Ask, Kind, Why};
use std::collections::BTreeSet;
use std::rc::Rc;

impl Dispatcher {
    /// A request that is known to its worker as waiting: budgets first, then its pool's queue.
    pub(super) fn accept(
        &mut self,
        id: TicketId,
        request: &Rc<Request>,
        reserved: bool,
        now_ms: u64,
    ) {
        if self.enqueue(id, request, reserved, now_ms) {
            self.dispatch(request.pool, now_ms);
            self.enqueued(id, request, reserved, now_ms);
        }
    }

    /// The same for many, each with whether its budgets are taken: all are in their queues before the first may go.
    pub(super) fn accept_all(
        &mut self,
        requests: impl IntoIterator<Item = (TicketId, Rc<Request>, bool)>,
        now_ms: u64,
    ) {
        let enqueue = |(id, request, reserved): &(TicketId, Rc<Request>, bool)| {
            self.enqueue(*id, request, *reserved, now_ms)
        };
        let enqueued: Vec<_> = requests.into_iter().filter(enqueue).collect();
        let pools: BTreeSet<PoolKey> =
            enqueued.iter().map(|(_, request, _)| request.pool).collect();
        pools.into_iter().for_each(|pool| self.dispatch(pool, now_ms));
        // If there are too many, the last ones are.
        for (id, request, reserved) in enqueued.into_iter().rev() {
            self.enqueued(id, &request, reserved, now_ms);
        }
    }

    /// Whether it is in its pool's queue now: else it was granted, refused or put aside.
    fn enqueue(
        &mut self,
        id: TicketId,
        request: &Rc<Request>,
        reserved: bool,
        now_ms: u64,
    ) -> bool {
        if self.opening_until_ms.is_some() {
            self.early.insert(id, (Rc::clone(request), reserved));
            return false;
        }
        if !reserved && let Err(refusal) = self.budgets.take_all(&request.budgets, now_ms) {
            if refusal.why != Why::TooLarge && self.budget_leases.any_of(&request.budgets) {
                // Nobody is refused for what others have and do not use.
                self.early.insert(id, (Rc::clone(request), false));
                self.recall_budgets(&request.budgets);
            } else {
                let refused = Refused::Budget(refusal);
                self.send(id.incarnation, Order::Refuse { number: id.number, refused });
            }
            return false;
        }
        let Some(gate) = self.gates.get_mut(&request.pool) else {
            self.grant(id, request, now_ms);
            self.offer_budgets(id.incarnation, &request.budgets, now_ms);
            return false;
        };
        gate.push(id, Rc::clone(request));
        if let Some(member) = self.members.get_mut(&id.incarnation) {
            member.waiting.insert(id.number, Rc::clone(request));
        }
        true
    }

    /// What is to be said of a request that came into its pool's queue, after all that may go has gone.
    fn enqueued(&mut self, id: TicketId, request: &Rc<Request>, reserved: bool, now_ms: u64) {
        if !self.is_waiting(id) {
            self.offer_slots(request.pool, id.incarnation, now_ms);
            self.offer_budgets(id.incarnation, &request.budgets, now_ms);
            return;
        }
        let overflow = self.gates.get(&request.pool).and_then(|gate| gate.overflow(request));
        if let Some(reason) = overflow {
            self.withdraw(id);
            let refused = Refused::Queue { reason, retry_after_ms: RETRY_AFTER_MS };
            self.send(id.incarnation, Order::Refuse { number: id.number, refused });
            return;
        }
        if !reserved && !request.budgets.is_empty() {
            let levels = self.budgets.levels(&request.budgets, now_ms);
            self.send(id.incarnation, Order::Waits { number: id.number, levels });
            self.tell_another(id.incarnation, &request.budgets, now_ms);
        }
        self.recall_slots(request.pool);
    }

    fn is_waiting(&self, id: TicketId) -> bool {
        self.members
            .get(&id.incarnation)
            .is_some_and(|member| member.waiting.contains_key(&id.number))
    }

    /// All that may go in this pool now.
    pub(super) fn dispatch(&mut self, pool: PoolKey, now_ms: u64) {
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
        let member = self.members.get(&id.incarnation);
        if member.is_some_and(|member| member.held.contains_key(&id.number)) {
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
        let levels = self.budgets.levels(&request.budgets, now_ms);
        self.send(id.incarnation, Order::Grant { number: id.number, levels });
        self.tell_another(id.incarnation, &request.budgets, now_ms);
    }

    /// What the worker in this VM has taken of budgets would be forgotten with the VM: another worker is told.
    pub(super) fn tell_another(&mut self, of: u64, budgets: &[Ask], now_ms: u64) {
        if of != self.own || budgets.is_empty() {
            return;
        }
        let another = self.members.iter().find(|(id, member)| **id != self.own && member.known);
        if let Some((another, _)) = another {
            let another = *another;
            let levels = self.budgets.levels(budgets, now_ms);
            self.send(another, Order::Levels { levels });
        }
    }

    /// A request in flight is over. `charged` as in [`Report::Release`](crate::flow_control::protocol::Report::Release).
    pub(super) fn finish(&mut self, id: TicketId, usage: Usage, charged: Option<u64>, now_ms: u64) {
        let member = self.members.get_mut(&id.incarnation);
        let Some(held) = member.and_then(|member| member.held.remove(&id.number)) else { return };
        let usage = usage.plausible();
        self.settle(&held.request.budgets, charged, now_ms);
        self.tell_another(id.incarnation, &held.request.budgets, now_ms);
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
    pub(super) fn withdraw(&mut self, id: TicketId) {
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
                return;
            }
            request
        };
        self.budgets.release(&request.budgets);
    }
}

/// Tokens that a request took of its tenant's budgets.
pub(super) fn reserved(request: &Request) -> u64 {
    let of = |kind| request.budgets.iter().find(|ask| ask.bucket.kind() == kind);
    let ask = of(Kind::Tokens).or_else(|| of(Kind::InflightTokens));
    ask.map_or(0, |ask| ask.amount)
}
