//! What the dispatcher's VM tells the agent of tenants: how budgets and queues stand.

use super::VmState;
use super::flow::pool_key;
use crate::flow_control::dispatcher::Dispatcher;
use crate::flow_control::protocol::PoolKey;
use crate::quota::{Kind, bucket};
use std::collections::BTreeMap;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::tenants::{Limit, Tenant};
use warmroute_shared_state::tenant_status::{BudgetStatus, FlowStatus, Level, TenantStatus};

/// Between two statuses.
const EVERY_MS: u64 = 1000;

/// What has not changed is told again after this long: the agent may have been away, and forgets who falls silent.
const AGAIN_MS: u64 = 3000;

/// What was told, and when.
#[derive(Debug, Default)]
pub(super) struct ToldStatus {
    envoy: u64,
    looked_ms: u64,
    told_ms: u64,
    /// Empty: nothing, or that there is nothing.
    told: Vec<u8>,
}

impl ToldStatus {
    pub(super) fn new(envoy: u64) -> Self {
        Self { envoy, ..Self::default() }
    }
}

impl VmState {
    /// How tenants stand, as the body of `POST /v1/tenants`, if this VM is the dispatcher and that is due. An Envoy
    /// without tenants and flow control never has anything to tell.
    pub fn next_tenant_status(&mut self, now_ms: u64) -> Option<Vec<u8>> {
        let dispatching = self.flow.dispatcher.as_mut()?;
        let (dispatcher, told) = (&mut dispatching.dispatcher, &mut dispatching.told_status);
        // Before it is open it has not heard of all.
        if now_ms.abs_diff(told.looked_ms) < EVERY_MS || !dispatcher.is_open() {
            return None;
        }
        told.looked_ms = now_ms;
        let policy = self.follower.replica.policy.current();
        let status = compose(told.envoy, policy, dispatcher, now_ms);
        if status.is_empty() && told.told.is_empty() {
            return None;
        }
        let body = status.to_json();
        if body == told.told && now_ms.abs_diff(told.told_ms) < AGAIN_MS {
            return None;
        }
        told.told_ms = now_ms;
        told.told = if status.is_empty() { Vec::new() } else { body.clone() };
        Some(body)
    }
}

fn compose(envoy: u64, policy: &Policy, dispatcher: &mut Dispatcher, now_ms: u64) -> TenantStatus {
    let limits = policy.tenants.iter().flat_map(|tenant| {
        let limits = tenant.limits.iter();
        limits.map(move |limit| (tenant, limit))
    });
    let budgets = limits.map(|(tenant, limit)| budget(tenant, limit, dispatcher, now_ms)).collect();
    let names: BTreeMap<PoolKey, &str> =
        policy.pools.iter().map(|pool| (pool_key(Some(pool)), pool.name.as_str())).collect();
    let flows = dispatcher.flows().into_iter().map(|((pool, priority, flow), view)| FlowStatus {
        pool: names.get(&pool).copied().unwrap_or_default().to_owned(),
        priority: Some(priority.0),
        fairness_id: flow.to_owned(),
        waiting: view.waiting,
        waiting_bytes: view.waiting_bytes,
        in_flight: view.in_flight,
        in_flight_tokens: view.in_flight_tokens,
    });
    let flows = flows.collect();
    TenantStatus { envoy, budgets, flows }.bounded()
}

fn budget(
    tenant: &Tenant,
    limit: &Limit,
    dispatcher: &mut Dispatcher,
    now_ms: u64,
) -> BudgetStatus {
    let mut level = |kind: Kind| {
        let ask = bucket(tenant, limit, kind)?;
        Some(Level { limit: ask.limit, remaining: dispatcher.remaining(&ask, now_ms) })
    };
    BudgetStatus {
        tenant: tenant.name.clone(),
        model: limit.model.clone(),
        rpm: level(Kind::Requests),
        tpm: level(Kind::Tokens),
        concurrency: level(Kind::Concurrency),
        inflight_tokens: level(Kind::InflightTokens),
    }
}
