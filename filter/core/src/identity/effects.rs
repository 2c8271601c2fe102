//! What a known tenant changes of its request.

use crate::routing::Control;
use warmroute_shared_state::policy::tenants::Tenant;

/// The header that routes can tell tiers apart by. A client's own never counts.
pub const TIER: &str = "x-tenant-tier";

const FAIRNESS_ID: &str = "x-llm-d-inference-fairness-id";
const OBJECTIVE: &str = "x-llm-d-inference-objective";

/// What is set and what is taken off, beside the control headers that no client may send.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// Headers to set before a route is chosen: fairness ID, objective and tier, as far as the tenant has them.
    pub set: Vec<(&'static str, String)>,
    /// Headers to take off.
    pub remove: Vec<&'static str>,
}

impl Effects {
    /// Of a request of `tenant`.
    #[must_use]
    pub fn of(tenant: &Tenant) -> Self {
        let mut set = vec![(FAIRNESS_ID, tenant.fairness_id.clone())];
        set.extend(tenant.objective.clone().map(|objective| (OBJECTIVE, objective)));
        set.extend(tenant.tier.clone().map(|tier| (TIER, tier)));
        let mut remove = Vec::new();
        if tenant.strip_key {
            // Both: the one that was not looked at may be a key, too.
            remove.extend(["authorization", "x-api-key"]);
        }
        if tenant.tier.is_none() {
            remove.push(TIER);
        }
        Self { set, remove }
    }

    /// The same for what decides by control headers: the tenant's word counts alone.
    pub fn control(tenant: &Tenant, control: &mut Control) {
        control.fairness_id = Some(tenant.fairness_id.clone());
        control.objective.clone_from(&tenant.objective);
    }
}
