//! What a worker knows of tenants' budgets, and what it was lent of them.

use crate::quota::{Ask, Bucket, BucketId, Buckets, Level};
use std::collections::BTreeMap;

/// Budgets that are remembered; beyond, those heard of longest ago are forgotten.
const MAX_LEVELS: usize = 20_000;

#[derive(Debug, Clone, Copy)]
struct Lent {
    ask: Ask,
    until_ms: u64,
}

/// The budgets in use here.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    /// How they stood, and when; what is lent being taken.
    levels: BTreeMap<BucketId, (Level, u64)>,
    lent: BTreeMap<BucketId, Lent>,
}

impl Budgets {
    /// The dispatcher said how they stand.
    pub(super) fn heard(&mut self, levels: &[Level], now_ms: u64) {
        for level in levels {
            self.levels.insert(level.bucket, (*level, now_ms));
        }
    }

    /// So much more may be used without asking.
    pub(super) fn lent(&mut self, asks: &[Ask], until_ms: u64) {
        for ask in asks {
            let none = Lent { ask: Ask { amount: 0, ..*ask }, until_ms };
            let lent = self.lent.entry(ask.bucket).or_insert(none);
            lent.ask.amount = lent.ask.amount.saturating_add(ask.amount);
            lent.until_ms = until_ms;
        }
    }

    /// Whether all of this can be used without asking.
    pub(super) fn has(&self, asks: &[Ask], now_ms: u64) -> bool {
        asks.iter().all(|ask| {
            let lent = self.lent.get(&ask.bucket);
            lent.is_some_and(|lent| lent.ask.amount >= ask.amount && now_ms < lent.until_ms)
        })
    }

    pub(super) fn use_lent(&mut self, asks: &[Ask]) {
        for ask in asks {
            if let Some(lent) = self.lent.get_mut(&ask.bucket) {
                lent.ask.amount = lent.ask.amount.saturating_sub(ask.amount);
            }
        }
    }

    /// What is left of these, to be returned.
    pub(super) fn take_lent(&mut self, buckets: &[BucketId]) -> Vec<Ask> {
        buckets.iter().filter_map(|id| self.lent.remove(id)).map(|lent| lent.ask).collect()
    }

    /// What is left of those whose time is over, to be returned.
    pub(super) fn take_over(&mut self, now_ms: u64) -> Vec<Ask> {
        self.lent.extract_if(.., |_, lent| now_ms >= lent.until_ms).map(|(_, l)| l.ask).collect()
    }

    /// Whatever was lent is void.
    pub(super) fn forget_lent(&mut self) {
        self.lent.clear();
    }

    /// A request is over: until the dispatcher tells more, what is left of its budgets.
    pub(super) fn settled(&mut self, asks: &[Ask], charged: Option<u64>, now_ms: u64) {
        for ask in asks {
            let Some((level, at_ms)) = self.levels.get_mut(&ask.bucket) else { continue };
            // What time does not fill can't be followed from here.
            if !ask.bucket.kind().refills() {
                continue;
            }
            let mut known = Buckets::default();
            known.restore(level, *at_ms, now_ms);
            match charged {
                Some(tokens) => known.settle(&[*ask], tokens, now_ms),
                None => known.release(&[*ask]),
            }
            *level = known.level(ask, now_ms);
            *at_ms = now_ms;
        }
    }

    /// How a request's budgets stand, as far as was heard; what is lent and not used is left.
    pub(super) fn levels(&self, asks: &[Ask]) -> Vec<Level> {
        let of = |ask: &Ask| {
            let (mut level, _) = *self.levels.get(&ask.bucket)?;
            let lent = self.lent.get(&ask.bucket).map_or(0, |lent| lent.ask.amount);
            let lent = i64::try_from(lent).unwrap_or(0);
            level.balance = level.balance.saturating_add(lent);
            Some(level)
        };
        asks.iter().filter_map(of).collect()
    }

    /// All that was heard, for a dispatcher that does not know.
    pub(super) fn all(&self) -> Vec<(Level, u64)> {
        self.levels.values().copied().collect()
    }

    /// What time has filled up again need not be remembered.
    pub(super) fn forget_full(&mut self, now_ms: u64) {
        self.levels.retain(|bucket, (level, at_ms)| {
            let mut known = Bucket::with_balance(bucket.kind(), level.limit, level.balance, *at_ms);
            known.advance(level.limit, now_ms);
            bucket.kind().refills() && !known.is_full()
        });
        if self.levels.len() > MAX_LEVELS {
            let mut times: Vec<u64> = self.levels.values().map(|(_, at_ms)| *at_ms).collect();
            times.sort_unstable();
            let surplus = self.levels.len().saturating_sub(MAX_LEVELS);
            let oldest = times.get(surplus).copied().unwrap_or(0);
            self.levels.retain(|_, (_, at_ms)| *at_ms >= oldest);
        }
    }
}
