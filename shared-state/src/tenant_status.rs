//! How an Envoy's tenants stand: their budgets, and what waits and runs of each flow. From the VM that is the dispatcher
//! to the agent, as the body of `POST /v1/tenants`.

use core::cmp::Reverse;
use serde::{Deserialize, Serialize};

/// Bytes of a status at most.
pub const MAX_STATUS_BYTES: usize = 512 << 10;
/// Budgets of a status that are told apart, and flows; each may have one more row, of [`OTHER`].
pub const MAX_ROWS: usize = 256;
/// Stands for whatever there is no room for.
pub const OTHER: &str = "other";

/// What is left of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Level {
    /// The limit.
    pub limit: u64,
    /// What is left; below 0 if it is overdrawn.
    pub remaining: i64,
}

/// A tenant's budget for a model. `None`: without limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// Tenant.
    pub tenant: String,
    /// The limit's model, which may be `*`.
    pub model: String,
    /// Requests a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpm: Option<Level>,
    /// Input and output tokens a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<Level>,
    /// Requests at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Level>,
    /// Reserved tokens at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inflight_tokens: Option<Level>,
}

impl BudgetStatus {
    /// Adds another one's levels.
    pub fn add(&mut self, other: &Self) {
        for (sum, one) in [
            (&mut self.rpm, other.rpm),
            (&mut self.tpm, other.tpm),
            (&mut self.concurrency, other.concurrency),
            (&mut self.inflight_tokens, other.inflight_tokens),
        ] {
            let Some(one) = one else { continue };
            let sum = sum.get_or_insert_default();
            sum.limit = sum.limit.saturating_add(one.limit);
            sum.remaining = sum.remaining.saturating_add(one.remaining);
        }
    }
}

/// What the dispatcher knows of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FlowStatus {
    /// `namespace/name` of the pool; empty if there is only one.
    pub pool: String,
    /// Priority of the band; `None`: of several.
    pub priority: Option<i32>,
    /// Fairness ID.
    pub fairness_id: String,
    /// Requests that wait.
    pub waiting: u64,
    /// Bytes of their bodies.
    pub waiting_bytes: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Their tokens, as estimated.
    pub in_flight_tokens: u64,
}

impl FlowStatus {
    /// Adds another one's counts.
    pub fn add(&mut self, other: &Self) {
        for (sum, one) in [
            (&mut self.waiting, other.waiting),
            (&mut self.waiting_bytes, other.waiting_bytes),
            (&mut self.in_flight, other.in_flight),
            (&mut self.in_flight_tokens, other.in_flight_tokens),
        ] {
            *sum = sum.saturating_add(one);
        }
    }
}

/// All that is told at once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TenantStatus {
    /// The Envoy: all its dispatchers have the same number, and no other Envoy has it.
    pub envoy: u64,
    /// Budgets.
    pub budgets: Vec<BudgetStatus>,
    /// Flows of which anything waits or is in flight.
    pub flows: Vec<FlowStatus>,
}

impl TenantStatus {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.budgets.is_empty() && self.flows.is_empty()
    }

    /// With [`MAX_ROWS`] of each at most and a row for the sum of the rest: the first budgets, and the flows of which
    /// most waits, then most is in flight.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if let Some(rest) = beyond(&mut self.budgets) {
            let (tenant, model) = (OTHER.to_owned(), OTHER.to_owned());
            let mut sum = BudgetStatus { tenant, model, ..BudgetStatus::default() };
            rest.iter().for_each(|one| sum.add(one));
            self.budgets.push(sum);
        }
        if self.flows.len() > MAX_ROWS {
            self.flows.sort_by_key(|flow| Reverse((flow.waiting, flow.in_flight)));
        }
        if let Some(rest) = beyond(&mut self.flows) {
            let (pool, fairness_id) = (OTHER.to_owned(), OTHER.to_owned());
            let mut sum = FlowStatus { pool, fairness_id, ..FlowStatus::default() };
            rest.iter().for_each(|one| sum.add(one));
            self.flows.push(sum);
        }
        self
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Plain data with text keys: nothing that JSON cannot say.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads it again. Fields that this version does not know are passed over.
    ///
    /// # Errors
    /// If it is not what [`TenantStatus::to_json`] writes.
    pub fn from_json(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

/// Takes out what there is no room for.
fn beyond<T>(rows: &mut Vec<T>) -> Option<Vec<T>> {
    (rows.len() > MAX_ROWS).then(|| rows.split_off(MAX_ROWS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(tenant: usize, remaining: i64) -> BudgetStatus {
        BudgetStatus {
            tenant: format!("t{tenant}"),
            model: "*".into(),
            tpm: Some(Level { limit: 10, remaining }),
            ..BudgetStatus::default()
        }
    }

    fn flow(id: usize, waiting: u64) -> FlowStatus {
        FlowStatus {
            priority: Some(-1),
            fairness_id: format!("f{id}"),
            waiting,
            waiting_bytes: 3,
            in_flight: 2,
            in_flight_tokens: 5,
            ..FlowStatus::default()
        }
    }

    crate::tests! {
        fn what_there_is_no_room_for_is_summed() {
            let status = TenantStatus {
                envoy: u64::MAX,
                budgets: (0..MAX_ROWS + 3).map(|n| budget(n, -1)).collect(),
                flows: (0..MAX_ROWS + 2).map(|n| flow(n, n as u64)).collect(),
            };
            let TenantStatus { budgets, flows, .. } = status.bounded();
            assert_eq!((budgets.len(), flows.len()), (MAX_ROWS + 1, MAX_ROWS + 1));
            let other = BudgetStatus {
                tenant: OTHER.into(),
                model: OTHER.into(),
                tpm: Some(Level { limit: 30, remaining: -3 }),
                ..BudgetStatus::default()
            };
            assert_eq!(budgets.last(), Some(&other));
            assert_eq!(flows.first().unwrap().fairness_id, format!("f{}", MAX_ROWS + 1), "most waits first");
            // Those with 0 and 1.
            let other = FlowStatus {
                pool: OTHER.into(),
                priority: None,
                fairness_id: OTHER.into(),
                waiting: 1,
                waiting_bytes: 6,
                in_flight: 4,
                in_flight_tokens: 10,
            };
            assert_eq!(flows.last(), Some(&other));
        }

        fn what_fits_stays_as_it_is_and_is_read_again() {
            let budgets = (0..MAX_ROWS).map(|n| budget(n, 7)).collect();
            let flows = vec![flow(0, 1), flow(1, 2)];
            let status = TenantStatus { envoy: u64::MAX, budgets, flows };
            assert_eq!(status.clone().bounded(), status);
            assert_eq!(TenantStatus::from_json(&status.to_json()).unwrap(), status);
            assert!(status.to_json().len() < MAX_STATUS_BYTES);
        }
    }
}
