//! Tokens by tenant and model since the agent's start: for its page and its metrics.

use super::other_of;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use warmroute_shared_state::usage_record::{EndCause, UsageRecord};

/// Pairs of tenant and model that are told apart; the rest is `other`.
const MAX_PAIRS: usize = 1000;

/// What a tenant had of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Requests that were not refused.
    pub requests: u64,
    /// Requests that were.
    pub rejected: u64,
    /// Prompt tokens, with cached ones.
    pub input: u64,
    /// Cached ones.
    pub cached: u64,
    /// Output tokens.
    pub output: u64,
    /// Charged tokens.
    pub charged: u64,
}

impl Sums {
    /// Prompt and output tokens.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    fn add(&mut self, record: &UsageRecord) {
        if record.cause == EndCause::Rejected {
            self.rejected = self.rejected.saturating_add(1);
            return;
        }
        self.requests = self.requests.saturating_add(1);
        self.input = self.input.saturating_add(record.input_tokens);
        self.cached = self.cached.saturating_add(record.cached_tokens.min(record.input_tokens));
        self.output = self.output.saturating_add(record.output_tokens);
        self.charged = self.charged.saturating_add(record.charged_tokens);
    }
}

/// Tenant and model.
pub type Pair = (String, String);

/// Sums by tenant and model.
#[derive(Debug, Default)]
pub struct Tally(Mutex<BTreeMap<Pair, Sums>>);

impl Tally {
    /// Adds a record.
    pub fn add(&self, record: &UsageRecord) {
        let mut sums = self.lock();
        let pair = (record.tenant.clone(), record.model.clone());
        // What is refused may name any model, and makes no room for it.
        let takes_room = record.cause != EndCause::Rejected && sums.len() < MAX_PAIRS;
        let known = takes_room || sums.contains_key(&pair);
        let pair = if known { pair } else { other_of(&sums, &record.tenant) };
        sums.entry(pair).or_default().add(record);
    }

    /// All sums, by tenant and model.
    #[must_use]
    pub fn sums(&self) -> Vec<(Pair, Sums)> {
        self.lock().iter().map(|(pair, sums)| (pair.clone(), *sums)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Pair, Sums>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::record;
    use warmroute_shared_state::tenant_status::OTHER;

    #[test]
    fn tokens_are_added_up_and_refusals_apart() {
        let tally = Tally::default();
        let mut one = record(1);
        (one.input_tokens, one.cached_tokens, one.output_tokens, one.charged_tokens) =
            (10, 99, 5, 15);
        tally.add(&one);
        tally.add(&one);
        tally.add(&UsageRecord { cause: EndCause::Rejected, ..one.clone() });
        let sums =
            Sums { requests: 2, rejected: 1, input: 20, cached: 20, output: 10, charged: 30 };
        assert_eq!(tally.sums(), [((one.tenant, one.model), sums)]);
    }

    #[test]
    fn names_that_clients_choose_take_bounded_room() {
        let tally = Tally::default();
        for n in 0..5000 {
            let (tenant, model) = (format!("t{}", n % 3), format!("m{n}"));
            tally.add(&UsageRecord { tenant, model, ..record(n) });
        }
        for n in 0..5000 {
            let (tenant, model) = (format!("u{n}"), format!("m{n}"));
            tally.add(&UsageRecord { tenant, model, cause: EndCause::Rejected, ..record(n) });
        }
        let sums = tally.sums();
        assert_eq!(sums.len(), MAX_PAIRS + 4, "and `other` of three tenants, and of nobody");
        assert_eq!(sums.iter().map(|(_, sums)| sums.requests).sum::<u64>(), 5000);
        let others = sums.iter().find(|(pair, _)| pair.0 == OTHER).unwrap();
        assert_eq!((others.0.1.as_str(), others.1.rejected), (OTHER, 5000));
    }
}
