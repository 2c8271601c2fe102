//! The compiled configuration: what the agent understood of the YAML files, for the filter to decide by.
//!
//! The agent reads and checks the documents, resolves every reference and sends the result whole, as JSON, each
//! time it changes; the filter swaps it between two requests. Nothing in it can be wrong any more: a plugin's
//! parameters are those its type takes, an index points at something.
//!
//! - [`routing`]: pools, routes, model names, objectives: which pool a request goes to, under what name;
//! - [`scheduler`]: an `EndpointPickerConfig`: profiles of plugins, and who runs them;
//! - [`flow`]: who waits when a pool is full;
//! - [`tenants`]: who a tenant is and what it may use;
//! - [`plugin`]: the plugin types by their names, with their parameters and defaults.

pub mod flow;
pub mod plugin;
pub mod routing;
pub mod scheduler;
pub mod tenants;

use flow::FlowControl;
use routing::{ModelMapping, ModelRewrite, Objective, Pool, Routing, Split};
use scheduler::Scheduler;
use serde::{Deserialize, Serialize};
use tenants::Tenant;

/// Bytes of a policy's JSON at most: one page of the agent's stream carries it.
pub const MAX_POLICY_BYTES: usize = 768 << 10;

/// Everything that the configuration says about requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Policy {
    /// Pools of endpoints. Empty: all endpoints are one pool, that of the plugin configuration.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// How endpoints are picked. [`Pool::scheduler`] points here; never empty once it came from an agent.
    #[serde(default)]
    pub schedulers: Vec<Scheduler>,
    /// Which pool a request goes to.
    #[serde(default)]
    pub routing: Routing,
    /// Base models with their adapters.
    #[serde(default)]
    pub model_mappings: Vec<ModelMapping>,
    /// What a model name becomes on its way to the engine; oldest first.
    #[serde(default)]
    pub rewrites: Vec<ModelRewrite>,
    /// Priorities by name.
    #[serde(default)]
    pub objectives: Vec<Objective>,
    /// Flow control, for each scheduler that has it.
    #[serde(default)]
    pub flow: Vec<FlowControl>,
    /// Tenants. Empty: nobody has to show a key, and nothing is limited.
    #[serde(default)]
    pub tenants: Vec<Tenant>,
}

impl Policy {
    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Plain data with text keys: nothing that JSON cannot say.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Whether some choice depends on the conversation that a request belongs to.
    #[must_use]
    pub fn splits_by_conversation(&self) -> bool {
        let sticky = |split| split == Split::Conversation;
        self.routing.rules.iter().any(|rule| sticky(rule.split) && rule.backends.len() > 1)
            || self.rewrites.iter().any(|rewrite| {
                sticky(rewrite.split) && rewrite.rules.iter().any(|rule| rule.targets.len() > 1)
            })
    }

    /// Reads it again. Fields that this version does not know are passed over.
    ///
    /// # Errors
    /// If it is not what [`Policy::to_json`] of this or an earlier version writes.
    pub fn from_json(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use routing::{Backend, RewriteRule, RewriteTarget, RouteRule};

    fn routes(split: Split, backends: usize) -> Policy {
        let backend = Backend { pool: Some(0), name: "b".into(), weight: 1 };
        let rule = RouteRule { backends: vec![backend; backends], split, ..RouteRule::default() };
        Policy { routing: Routing { rules: vec![rule], ..Routing::default() }, ..Policy::default() }
    }

    fn rewrites(split: Split, targets: usize) -> Policy {
        let target = RewriteTarget { model: "m".into(), weight: None };
        let rule = RewriteRule { models: vec![], generic: true, targets: vec![target; targets] };
        let rewrite = ModelRewrite { name: "r".into(), pool: None, rules: vec![rule], split };
        Policy { rewrites: vec![rewrite], ..Policy::default() }
    }

    crate::tests! {
        fn only_a_choice_among_several_by_conversation_splits() {
            assert!(!Policy::default().splits_by_conversation());
            for make in [routes, rewrites] {
                for (split, sides, splits) in [
                    (Split::Conversation, 0, false),
                    (Split::Conversation, 1, false),
                    (Split::Conversation, 2, true),
                    (Split::Random, 2, false),
                ] {
                    assert_eq!(make(split, sides).splits_by_conversation(), splits, "{split:?} {sides}");
                }
            }
        }
    }
}
