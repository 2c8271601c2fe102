//! A worker's announcement replaces all that is known of it.

use super::member::Announcement;
use super::requests::reserved;
use super::{Dispatcher, Held};
use crate::flow_control::protocol::{HeldTicket, Request, TicketId, Usage};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// For so long after its start a dispatcher takes over how budgets stood; later it knows better itself.
const RESTORES_FOR_MS: u64 = 5000;

impl Dispatcher {
    pub(super) fn on_announcement(&mut self, incarnation: u64, said: Announcement, now_ms: u64) {
        let id = |number: u64| TicketId { incarnation, number };
        let Some(member) = self.members.get_mut(&incarnation) else { return };
        let first = !std::mem::replace(&mut member.known, true);
        if first && now_ms.saturating_sub(self.began_ms) < RESTORES_FOR_MS {
            for (level, at_ms) in &said.levels {
                self.budgets.restore(level, *at_ms, now_ms);
            }
        }
        let known: BTreeMap<u64, (u64, u64)> = member
            .held
            .iter()
            .map(|(number, held)| (*number, (held.request.tokens, reserved(&held.request))))
            .collect();
        let mut suspended = std::mem::take(&mut member.suspended);
        let held: BTreeSet<u64> = said.held.iter().map(|ticket| ticket.number).collect();
        let parked: BTreeSet<u64> = said.parked.iter().map(|ticket| ticket.number).collect();
        // It has given these up when it was asked.
        self.end_leases(incarnation);
        let early = self.early.keys().filter(|id| id.incarnation == incarnation);
        for id in early.copied().collect::<Vec<_>>() {
            if let Some((request, true)) = self.early.remove(&id) {
                suspended.insert(id.number, request);
            }
        }
        for (number, (tokens, reserved)) in known {
            if parked.contains(&number) {
                // The grant was lost: it waits again, its budgets stay taken.
                if let Some(request) = self.take_grant_back(id(number), now_ms) {
                    suspended.insert(number, request);
                }
            } else if !held.contains(&number) {
                // Its release was lost, and what it used with it.
                let usage = Usage { prompt: tokens, completion: 0 };
                self.finish(id(number), usage, Some(reserved), now_ms);
            }
        }
        for ticket in said.held {
            self.take_over(id(ticket.number), ticket, now_ms);
        }
        let mut waiting = Vec::new();
        for ticket in said.parked {
            let (request, reserved) = match suspended.remove(&ticket.number) {
                Some(known) => (known, true),
                None => {
                    let request = Rc::new(ticket.request);
                    if ticket.reserved {
                        self.budgets.take_over(&request.budgets, now_ms);
                    }
                    (request, ticket.reserved)
                }
            };
            waiting.push((id(ticket.number), request, reserved));
        }
        self.accept_all(waiting, now_ms);
        for request in suspended.into_values() {
            self.budgets.release(&request.budgets);
        }
        self.accept_early(now_ms);
        let pools: Vec<_> = self.gates.keys().copied().collect();
        pools.into_iter().for_each(|pool| self.dispatch(pool, now_ms));
    }

    fn take_grant_back(&mut self, id: TicketId, now_ms: u64) -> Option<Rc<Request>> {
        let held = self.members.get_mut(&id.incarnation)?.held.remove(&id.number)?;
        if let Some(gate) = self.gates.get_mut(&held.request.pool) {
            gate.finish(id, &held, Usage::default(), now_ms);
        }
        Some(held.request)
    }

    /// A request in flight that another dispatcher let go.
    fn take_over(&mut self, id: TicketId, ticket: HeldTicket, now_ms: u64) {
        let Some(member) = self.members.get_mut(&id.incarnation) else { return };
        if member.held.contains_key(&id.number) {
            return;
        }
        let held = Held {
            request: Rc::new(ticket.request),
            endpoints: ticket.endpoints,
            dispatched_ms: ticket.dispatched_ms,
        };
        self.budgets.take_over(&held.request.budgets, now_ms);
        if let Some(gate) = self.gates.get_mut(&held.request.pool) {
            gate.start(id, &held);
            gate.charge(&held.request);
        }
        member.held.insert(id.number, held);
    }
}
