//! All objects of a configuration beside its endpoints, each read by its kind and not yet resolved.

use super::error::Problem;
use super::gateway::objective::ObjectiveSpec;
use super::gateway::pool::PoolSpec;
use super::gateway::rewrite::RewriteSpec;
use super::gateway::route::RouteSpec;
use super::model_mapping::MappingSpec;
use super::object::Place;
use super::picker::PickerSpec;
use super::tenant::TenantSpec;

/// Objects of one kind at most.
const MAX_OBJECTS: usize = 512;
/// Tenants may be more: the size of the policy bounds them.
pub(crate) const MAX_TENANTS: usize = 16_384;
const TENANTS: &str = "TenantQuota";

/// The objects, in the order of the files.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Objects {
    /// `EndpointPickerConfig`, bare or in ConfigMaps.
    pub pickers: Vec<PickerSpec>,
    /// `InferencePool`.
    pub pools: Vec<PoolSpec>,
    /// `HTTPRoute`.
    pub routes: Vec<RouteSpec>,
    /// `InferenceModelRewrite`.
    pub rewrites: Vec<RewriteSpec>,
    /// `InferenceObjective`.
    pub objectives: Vec<ObjectiveSpec>,
    /// Model mapping ConfigMaps.
    pub mappings: Vec<MappingSpec>,
    /// `TenantQuota`.
    pub tenants: Vec<TenantSpec>,
}

impl Objects {
    /// How many there are of each kind, by its name.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, usize); 7] {
        [
            ("EndpointPickerConfig", self.pickers.len()),
            ("InferencePool", self.pools.len()),
            ("HTTPRoute", self.routes.len()),
            ("InferenceModelRewrite", self.rewrites.len()),
            ("InferenceObjective", self.objectives.len()),
            ("model mapping", self.mappings.len()),
            (TENANTS, self.tenants.len()),
        ]
    }

    /// Whether there is none of any kind.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts().iter().all(|(_, n)| *n == 0)
    }

    /// A kind with more objects than are read.
    ///
    /// # Errors
    /// If there is one.
    pub(super) fn check_counts(&self) -> Result<(), Problem> {
        for (what, n) in self.counts() {
            let limit = if what == TENANTS { MAX_TENANTS } else { MAX_OBJECTS };
            if n > limit {
                return Err(Problem::TooMany { what, limit });
            }
        }
        Ok(())
    }

    /// Where the tenants' objectives are named that do not exist.
    pub(super) fn missing_objectives(&self) -> impl Iterator<Item = (Place, &str)> {
        self.tenants.iter().filter_map(|tenant| {
            let name = tenant.inject.objective.as_deref()?;
            let known = self.objectives.iter().any(|objective| objective.head.name == name);
            (!known).then(|| (tenant.head.place.at(tenant.inject.objective_line), name))
        })
    }
}
