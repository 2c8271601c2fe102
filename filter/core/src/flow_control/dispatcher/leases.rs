//! What workers may use without asking, so that no round trip is made while there is plenty.
//!
//! What is leased counts as taken until it is used or returned: no limit is exceeded. When somebody has to wait, or a
//! budget would refuse, it is wanted back first.

use super::member::Member;
use super::{Dispatcher, LEASE_MS};
use crate::flow_control::protocol::{Order, PoolKey};
use crate::quota::Ask;

/// Of a budget, all workers together may have one part in so many.
const LENT_PART: u64 = 8;

/// Of a budget, one worker may have as much as so many requests take.
const LENT_REQUESTS: u64 = 16;

impl Dispatcher {
    /// Whether the worker may be leased anything.
    fn may_lease(&self, incarnation: u64) -> bool {
        let known = self.members.get(&incarnation).is_some_and(|member| !member.is_asked());
        known && self.is_open()
    }

    pub(super) fn offer_slots(&mut self, pool: PoolKey, incarnation: u64, now_ms: u64) {
        if !self.may_lease(incarnation) {
            return;
        }
        let workers = self.members.len() as u64;
        let Some(gate) = self.gates.get_mut(&pool) else { return };
        if let Some((slots, tokens)) = gate.lease(incarnation, workers, now_ms) {
            let until_ms = now_ms.saturating_add(LEASE_MS);
            self.send(incarnation, Order::Lease { pool, slots, tokens, until_ms });
        }
    }

    /// Slots for a worker that has none or little left of them, and more time for those that it has.
    pub(super) fn offer_all_slots(&mut self, incarnation: u64, now_ms: u64) {
        if self.members.get(&incarnation).is_none_or(Member::is_asked) {
            return;
        }
        let renewed: Vec<PoolKey> = self
            .gates
            .iter()
            .filter(|(_, gate)| gate.renews(incarnation, now_ms))
            .map(|(pool, _)| *pool)
            .collect();
        for pool in renewed {
            let until_ms = now_ms.saturating_add(LEASE_MS);
            self.send(incarnation, Order::Lease { pool, slots: 0, tokens: 0, until_ms });
        }
        let pools: Vec<PoolKey> = self.gates.keys().copied().collect();
        pools.into_iter().for_each(|pool| self.offer_slots(pool, incarnation, now_ms));
    }

    /// A request of a tenant went: the worker may let the tenant's next ones go by itself, as long as more than half of
    /// each of its budgets is left.
    pub(super) fn offer_budgets(&mut self, incarnation: u64, asks: &[Ask], now_ms: u64) {
        if asks.is_empty() || !self.may_lease(incarnation) || !self.budget_leases.has_room() {
            return;
        }
        let has = |ask: &Ask| self.budget_leases.of(incarnation, ask.bucket);
        let enough = |ask: &Ask| {
            let (amount, until_ms) = has(ask);
            amount >= ask.amount.saturating_mul(2) && until_ms > now_ms.saturating_add(LEASE_MS / 2)
        };
        let parts = LENT_PART.saturating_mul((self.members.len() as u64).max(1));
        let share = |ask: &Ask| {
            let part = ask.limit.checked_div(parts).unwrap_or(0);
            part.min(ask.amount.saturating_mul(LENT_REQUESTS))
        };
        if asks.iter().all(enough) || asks.iter().any(|ask| share(ask) < ask.amount) {
            return;
        }
        let more = |ask: &Ask| Ask { amount: share(ask).saturating_sub(has(ask).0), ..*ask };
        let more: Vec<Ask> = asks.iter().map(more).collect();
        // Somebody waits for what is lent.
        if self.early.values().any(|(request, _)| {
            request.budgets.iter().any(|ask| asks.iter().any(|own| own.bucket == ask.bucket))
        }) {
            return;
        }
        let levels = self.budgets.levels(&more, now_ms);
        let plenty = more.iter().zip(&levels).all(|(ask, level)| {
            level.remaining().saturating_sub(ask.amount) > ask.limit.div_euclid(2)
        });
        if !plenty {
            return;
        }
        let Ok(levels) = self.budgets.take_all(&more, now_ms) else { return };
        let until_ms = now_ms.saturating_add(LEASE_MS);
        self.budget_leases.lend(incarnation, &more, until_ms);
        self.tell_another(incarnation, &more, now_ms);
        self.send(incarnation, Order::LeaseBudgets { lent: more, levels, until_ms });
    }

    /// Somebody waits in this pool: the slots that others were leased are wanted back.
    pub(super) fn recall_slots(&mut self, pool: PoolKey) {
        let Some(gate) = self.gates.get_mut(&pool) else { return };
        for incarnation in gate.recall() {
            self.send(incarnation, Order::Recall { pools: vec![pool], budgets: Vec::new() });
        }
    }

    pub(super) fn recall_budgets(&mut self, asks: &[Ask]) {
        for (incarnation, budgets) in self.budget_leases.recall(asks) {
            self.send(incarnation, Order::Recall { pools: Vec::new(), budgets });
        }
    }

    pub(super) fn on_return(
        &mut self,
        incarnation: u64,
        pools: &[(PoolKey, u32, u64)],
        budgets: &[Ask],
        now_ms: u64,
    ) {
        let had = self.budget_leases.take_back(incarnation, budgets);
        self.budgets.release(&had);
        self.accept_early(now_ms);
        for (pool, slots, tokens) in pools {
            if let Some(gate) = self.gates.get_mut(pool) {
                gate.unlease(incarnation, u64::from(*slots), *tokens);
                self.dispatch(*pool, now_ms);
            }
        }
    }

    /// The worker has given up all its leases, or is gone.
    pub(super) fn end_leases(&mut self, incarnation: u64) {
        self.gates.values_mut().for_each(|gate| gate.unlease_all(incarnation));
        let had = self.budget_leases.take_all_back(incarnation);
        self.budgets.release(&had);
    }

    /// Those that waited for budgets to come back.
    pub(super) fn accept_early(&mut self, now_ms: u64) {
        if !self.is_open() || self.early.is_empty() {
            return;
        }
        let leases = &self.budget_leases;
        let mut ready: Vec<_> = self
            .early
            .extract_if(.., |_, (request, reserved)| *reserved || !leases.any_of(&request.budgets))
            .collect();
        ready.sort_by_key(|(id, (request, _))| (request.since_ms, *id));
        let ready = ready.into_iter().map(|(id, (request, reserved))| (id, request, reserved));
        self.accept_all(ready, now_ms);
    }
}
