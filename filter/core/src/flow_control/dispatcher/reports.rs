//! What workers tell.

use super::member::Announcement;
use super::{Dispatcher, Held};
use crate::flow_control::protocol::{FromWorker, Report, Request, TicketId, Usage};
use std::rc::Rc;
use warmroute_shared_state::endpoint::EndpointId;

impl Dispatcher {
    /// A message of a worker.
    pub fn on_message(&mut self, message: FromWorker, now_ms: u64) {
        let FromWorker { epoch, incarnation, sequence, report } = message;
        let Some(member) = self.members.get_mut(&incarnation) else {
            // It is new, or it was taken for gone.
            self.ask(incarnation, now_ms);
            if let Some(member) = self.members.get_mut(&incarnation) {
                member.heard(sequence, now_ms);
            }
            return;
        };
        let gap = member.heard(sequence, now_ms);
        if epoch != self.epoch {
            // It has not heard of this dispatcher, or had not when it said this.
            if !member.is_asked() {
                self.ask(incarnation, now_ms);
            }
            return;
        }
        if gap && !member.is_asked() {
            self.ask(incarnation, now_ms);
        }
        let id = |number| TicketId { incarnation, number };
        match report {
            Report::Acquire { number, request } => self.on_acquire(id(number), request, now_ms),
            Report::Admitted { number, request } => self.on_admitted(id(number), request, now_ms),
            Report::Placed { number, endpoints } => {
                self.on_placed(id(number), endpoints, now_ms);
            }
            Report::Release { number, usage, charged } => {
                self.finish(id(number), usage, charged, now_ms);
            }
            Report::Cancel { number } => {
                self.withdraw(id(number));
                // It may have been let go in the meantime.
                self.finish(id(number), Usage::default(), None, now_ms);
            }
            Report::Return { pools, budgets } => {
                self.on_return(incarnation, &pools, &budgets, now_ms);
            }
            Report::Heartbeat { received } => self.on_heartbeat(incarnation, received, now_ms),
            Report::Announce { nonce, last, held, parked, levels } => {
                let part = Announcement { held, parked, levels };
                let whole = self
                    .members
                    .get_mut(&incarnation)
                    .and_then(|member| member.announced(nonce, part, last));
                if let Some(announcement) = whole {
                    self.on_announcement(incarnation, announcement, now_ms);
                    self.open_if_due(now_ms);
                    self.offer_all_slots(incarnation, now_ms);
                }
            }
        }
    }

    fn on_acquire(&mut self, id: TicketId, request: Request, now_ms: u64) {
        // Of a worker that was asked what it has, it comes with the answer.
        if self.members.get(&id.incarnation).is_some_and(|member| !member.is_asked()) {
            self.accept(id, &Rc::new(request), false, now_ms);
        }
    }

    fn on_admitted(&mut self, id: TicketId, request: Request, now_ms: u64) {
        let Some(member) = self.members.get_mut(&id.incarnation) else { return };
        let request = Rc::new(request);
        let held =
            Held { request: Rc::clone(&request), endpoints: Vec::new(), dispatched_ms: now_ms };
        if let Some(gate) = self.gates.get_mut(&request.pool) {
            gate.unlease(id.incarnation, 1, request.tokens);
            gate.start(id, &held);
            gate.charge(&request);
        }
        member.held.insert(id.number, held);
        self.budget_leases.take_back(id.incarnation, &request.budgets);
        self.accept_early(now_ms);
        self.offer_slots(request.pool, id.incarnation, now_ms);
        self.offer_budgets(id.incarnation, &request.budgets, now_ms);
    }

    fn on_placed(&mut self, id: TicketId, endpoints: Vec<EndpointId>, now_ms: u64) {
        let member = self.members.get_mut(&id.incarnation);
        let Some(held) = member.and_then(|member| member.held.get_mut(&id.number)) else { return };
        let pool = held.request.pool;
        if let Some(gate) = self.gates.get_mut(&pool) {
            gate.moved(held, &endpoints);
        }
        held.endpoints = endpoints;
        // Until it was placed it counted everywhere.
        self.dispatch(pool, now_ms);
    }

    fn on_heartbeat(&mut self, incarnation: u64, received: u64, now_ms: u64) {
        let Some(member) = self.members.get_mut(&incarnation) else { return };
        if member.has_received(received) && !member.is_asked() {
            self.ask(incarnation, now_ms);
            return;
        }
        self.offer_all_slots(incarnation, now_ms);
    }
}
