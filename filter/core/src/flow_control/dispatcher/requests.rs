//! A request's way: accepted, let go or refused, over.

use super::{Dispatcher, Held, RETRY_AFTER_MS, Step};
use crate::flow_control::protocol::{
    DropReason, Order, PoolKey, Refused, Request, TicketId, Usage,
};
use crate::quota::{Ask, Kind, Why};
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
        if self.opening_until_ms.is_some() {
            self.early.insert(id, (Rc::clone(request), reserved));
            return;
        }
        if !reserved && let Err(refusal) = self.budgets.take_all(&request.budgets, now_ms) {
            if refusal.why != Why::TooLarge && self.budget_leases.any_of(&request.budgets) {
                // Nobody is refused for what others have and do not use.
                self.early.insert(id, (Rc::clone(request), false));
                self.recall_budgets(&request.budgets);
                return;
            }
            self.statistics.dropped(request, DropReason::Budget);
            let refused = Refused::Budget(refusal);
            self.send(id.incarnation, Order::Refuse { number: id.number, refused });
            return;
        }
        let Some(gate) = self.gates.get_mut(&request.pool) else {
            self.grant(id, request, now_ms);
            self.offer_budgets(id.incarnation, &request.budgets, now_ms);
            return;
        };
        gate.push(id, Rc::clone(request));
        if let Some(member) = self.members.get_mut(&id.incarnation) {
            member.waiting.insert(id.number, Rc::clone(request));
        }
        self.dispatch(request.pool, now_ms);
        if !self.is_waiting(id) {
            self.offer_slots(request.pool, id.incarnation, now_ms);
            self.offer_budgets(id.incarnation, &request.budgets, now_ms);
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
    pub(super) fn finish(&mut self, id: TicketId, usage: Usage, charged: Option<u64>, now_ms: u64) {
        let member = self.members.get_mut(&id.incarnation);
        let Some(held) = member.and_then(|member| member.held.remove(&id.number)) else { return };
        let usage = usage.plausible();
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
    pub(super) fn withdraw(&mut self, id: TicketId, reason: DropReason) {
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
}

/// Tokens that a request took of its tenant's budgets.
pub(super) fn reserved(request: &Request) -> u64 {
    let of = |kind| request.budgets.iter().find(|ask| ask.bucket.kind() == kind);
    let ask = of(Kind::Tokens).or_else(|| of(Kind::InflightTokens));
    ask.map_or(0, |ask| ask.amount)
}
