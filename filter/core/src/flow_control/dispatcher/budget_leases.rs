//! Parts of tenants' budgets that are lent to workers.

use crate::quota::{Ask, BucketId};
use std::collections::BTreeMap;

/// Budgets that anything is lent of, at most.
const MAX_LENT: usize = 4096;

/// What one worker was lent of a budget. The budget counts it as taken.
#[derive(Debug, Clone, Copy)]
struct Lent {
    ask: Ask,
    until_ms: u64,
    recalled: bool,
}

/// All that is lent.
#[derive(Debug, Default)]
pub(super) struct BudgetLeases {
    lent: BTreeMap<BucketId, BTreeMap<u64, Lent>>,
}

impl BudgetLeases {
    /// What the worker has of a budget, and until when.
    pub(super) fn of(&self, worker: u64, bucket: BucketId) -> (u64, u64) {
        let lent = self.lent.get(&bucket).and_then(|holders| holders.get(&worker));
        lent.map_or((0, 0), |lent| (lent.ask.amount, lent.until_ms))
    }

    /// What all workers have of a budget.
    pub(super) fn lent(&self, bucket: BucketId) -> u64 {
        let holders = self.lent.get(&bucket).into_iter().flatten();
        holders.fold(0, |sum, (_, lent)| sum.saturating_add(lent.ask.amount))
    }

    pub(super) fn has_room(&self) -> bool {
        self.lent.len() < MAX_LENT
    }

    pub(super) fn lend(&mut self, worker: u64, asks: &[Ask], until_ms: u64) {
        for ask in asks {
            let holders = self.lent.entry(ask.bucket).or_default();
            let none = Lent { ask: Ask { amount: 0, ..*ask }, until_ms, recalled: false };
            let lent = holders.entry(worker).or_insert(none);
            lent.ask.amount = lent.ask.amount.saturating_add(ask.amount);
            lent.until_ms = until_ms;
        }
    }

    /// The worker used or returns so much. What it had, if that is less.
    pub(super) fn take_back(&mut self, worker: u64, asks: &[Ask]) -> Vec<Ask> {
        let mut had = Vec::new();
        for ask in asks {
            let Some(holders) = self.lent.get_mut(&ask.bucket) else { continue };
            let Some(lent) = holders.get_mut(&worker) else { continue };
            let amount = ask.amount.min(lent.ask.amount);
            had.push(Ask { amount, ..*ask });
            lent.ask.amount = lent.ask.amount.saturating_sub(amount);
            if lent.ask.amount == 0 {
                holders.remove(&worker);
            }
            if holders.is_empty() {
                self.lent.remove(&ask.bucket);
            }
        }
        had
    }

    /// All that the worker has.
    pub(super) fn take_all_back(&mut self, worker: u64) -> Vec<Ask> {
        let mut had = Vec::new();
        self.lent.retain(|_, holders| {
            had.extend(holders.remove(&worker).map(|lent| lent.ask));
            !holders.is_empty()
        });
        had
    }

    /// Whether anybody has anything of these budgets.
    pub(super) fn any_of(&self, asks: &[Ask]) -> bool {
        asks.iter().any(|ask| self.lent.contains_key(&ask.bucket))
    }

    /// Who is to be asked for what is left of these budgets, if they were not yet.
    pub(super) fn recall(&mut self, asks: &[Ask]) -> BTreeMap<u64, Vec<BucketId>> {
        let mut from: BTreeMap<u64, Vec<BucketId>> = BTreeMap::new();
        for ask in asks {
            for (worker, lent) in self.lent.get_mut(&ask.bucket).into_iter().flatten() {
                if !std::mem::replace(&mut lent.recalled, true) {
                    from.entry(*worker).or_default().push(ask.bucket);
                }
            }
        }
        from
    }
}
