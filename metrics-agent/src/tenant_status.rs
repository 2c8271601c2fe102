//! How tenants stand, as the Envoys tell it: the last status of each, added up.

use crate::ledger::bounded;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use warmroute_shared_state::tenant_status::{BudgetStatus, FlowStatus, OTHER, TenantStatus};

/// Envoys whose status is kept at once.
const MAX_ENVOYS: usize = 64;
/// A status that is older counts no more: an Envoy tells its own every three seconds at least.
const EXPIRY: Duration = Duration::from_secs(10);
/// Budgets over all Envoys that are told apart, and flows; the rest is [`OTHER`].
const MAX_ROWS: usize = 1000;

/// The last status of each Envoy.
#[derive(Debug, Default)]
pub struct StatusBoard(Mutex<BTreeMap<u64, (TenantStatus, Instant)>>);

impl StatusBoard {
    /// Takes the place of the Envoy's one before. False, and nothing kept, if there are too many Envoys.
    pub fn put(&self, status: TenantStatus, now: Instant) -> bool {
        let mut known = self.fresh(now);
        if known.len() >= MAX_ENVOYS && !known.contains_key(&status.envoy) {
            return false;
        }
        known.insert(status.envoy, (status, now));
        true
    }

    /// All budgets and flows, with the numbers of all Envoys added up.
    #[must_use]
    pub fn sum(&self, now: Instant) -> (Vec<BudgetStatus>, Vec<FlowStatus>) {
        let mut budgets: BTreeMap<(String, String), BudgetStatus> = BTreeMap::new();
        let mut flows: BTreeMap<(String, Option<i32>, String), FlowStatus> = BTreeMap::new();
        for (status, _) in self.fresh(now).values() {
            for budget in &status.budgets {
                let own = (budget.tenant.clone(), budget.model.clone());
                let key = bounded(&budgets, MAX_ROWS, own, || (OTHER.to_owned(), OTHER.to_owned()));
                let (tenant, model) = key.clone();
                let none = BudgetStatus { tenant, model, ..BudgetStatus::default() };
                budgets.entry(key).or_insert(none).add(budget);
            }
            for flow in &status.flows {
                let own = (flow.pool.clone(), flow.priority, flow.fairness_id.clone());
                let key =
                    bounded(&flows, MAX_ROWS, own, || (OTHER.to_owned(), None, OTHER.to_owned()));
                let (pool, priority, fairness_id) = key.clone();
                let none = FlowStatus { pool, priority, fairness_id, ..FlowStatus::default() };
                flows.entry(key).or_insert(none).add(flow);
            }
        }
        (budgets.into_values().collect(), flows.into_values().collect())
    }

    fn fresh(&self, now: Instant) -> MutexGuard<'_, BTreeMap<u64, (TenantStatus, Instant)>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (_, at)| now.saturating_duration_since(*at) < EXPIRY);
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmroute_shared_state::tenant_status::Level;

    fn status(envoy: u64, tenants: std::ops::Range<u64>) -> TenantStatus {
        let budget = |n: u64| BudgetStatus {
            tenant: format!("t{n}"),
            model: "*".into(),
            tpm: Some(Level { limit: 100, remaining: -1 }),
            ..BudgetStatus::default()
        };
        let flow = |n: u64| FlowStatus {
            priority: Some(0),
            fairness_id: format!("t{n}"),
            waiting: 2,
            waiting_bytes: 30,
            in_flight: 4,
            in_flight_tokens: 50,
            ..FlowStatus::default()
        };
        let (budgets, flows) = (tenants.clone().map(budget).collect(), tenants.map(flow).collect());
        TenantStatus { envoy, budgets, flows }
    }

    fn waiting(flows: &[FlowStatus]) -> u64 {
        flows.iter().map(|flow| flow.waiting).sum()
    }

    #[test]
    fn the_last_status_of_each_envoy_counts_as_long_as_it_is_fresh() {
        let (board, start) = (StatusBoard::default(), Instant::now());
        assert!(board.put(status(1, 0..9), start));
        assert!(board.put(status(1, 0..1), start));
        assert!(board.put(status(2, 0..2), start + Duration::from_secs(5)));
        let (budgets, flows) = board.sum(start + Duration::from_secs(9));
        assert_eq!(budgets[0].tpm, Some(Level { limit: 200, remaining: -2 }));
        assert_eq!(budgets[1].tpm, Some(Level { limit: 100, remaining: -1 }));
        let counts = |flow: &FlowStatus| {
            (flow.waiting, flow.waiting_bytes, flow.in_flight, flow.in_flight_tokens)
        };
        let flows: Vec<_> = flows.iter().map(counts).collect();
        assert_eq!(flows, [(4, 60, 8, 100), (2, 30, 4, 50)]);
        let (budgets, flows) = board.sum(start + Duration::from_secs(10));
        assert_eq!((budgets.len(), waiting(&flows)), (2, 4), "only Envoy 2's");
        assert_eq!(board.sum(start + Duration::from_secs(15)), (vec![], vec![]));
    }

    #[test]
    fn envoys_and_rows_are_bounded() {
        let (board, now) = (StatusBoard::default(), Instant::now());
        for envoy in 0..MAX_ENVOYS as u64 {
            assert!(board.put(status(envoy, envoy * 200..(envoy + 1) * 200), now));
        }
        assert!(!board.put(status(u64::MAX, 0..1), now));
        assert!(board.put(status(0, 0..200), now), "a known one may speak");
        let (budgets, flows) = board.sum(now);
        assert_eq!((budgets.len(), flows.len()), (MAX_ROWS + 1, MAX_ROWS + 1));
        assert_eq!(waiting(&flows), MAX_ENVOYS as u64 * 200 * 2);
        assert!(board.put(status(u64::MAX, 0..1), now + EXPIRY), "the others are gone");
    }
}
