//! What the compiled configuration makes of a request, before an endpoint is picked: pool, names, priority.

use super::RequestHead;
use crate::routing::{
    Chooser, Control, Destination, RouteRequest, base_model, conversation_of, rewrite, route,
};
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::routing::RouteRule;

/// Header with the base model of the request's model, for routes.
pub(super) const BASE_MODEL: &str = "x-gateway-base-model-name";

/// Header with the model name that the client sent.
pub(super) const MODEL: &str = "x-gateway-model-name";

/// Header by which Envoy's route finds the pool's cluster.
pub(super) const CLUSTER: &str = "x-warmroute-cluster";

/// Envoy's own header for a request's timeout; its router takes it off.
const TIMEOUT: &str = "x-envoy-upstream-rq-timeout-ms";

/// A request as the configuration sees it.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Index of the pool; `None` = the one pool of the plugin configuration.
    pub pool: Option<usize>,
    /// The model that the client asked for; empty if the body names none.
    pub model: String,
    /// What the engine is asked for.
    pub target: String,
    /// The rewrite that chose it.
    pub rewritten_by: Option<String>,
    /// Control headers.
    pub control: Control,
    /// By its objective.
    pub priority: i32,
    /// Request headers to set.
    pub set: Vec<(String, String)>,
    /// Request headers to add.
    pub add: Vec<(String, String)>,
    /// Request headers to take off.
    pub remove: Vec<String>,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlan {
    /// No route matches.
    NoRoute,
    /// The route's backend does not exist.
    NoBackend,
    /// A rewrite applies, and none of its targets can be chosen.
    NoModel,
}

/// Makes the plan. `model` is the body's, empty if it has none or was not read; `opening` is the conversation's
/// (see [`conversation_of`]).
pub(super) fn plan(
    policy: &Policy,
    head: &mut RequestHead,
    model: &str,
    opening: impl FnOnce() -> u64,
    random: &mut dyn FnMut() -> u64,
) -> Result<Plan, NoPlan> {
    let mut plan = Plan { model: model.to_owned(), ..Plan::default() };
    if !model.is_empty()
        && let Some(base) = base_model(policy, model)
    {
        for (name, value) in [(BASE_MODEL, base), (MODEL, model)] {
            head.headers.set(name, value);
            plan.set.push((name.into(), value.into()));
        }
    }
    plan.control = Control::read(&|name| head.headers.control(name));
    let header = |name: &str| head.headers.get(name);
    let tenant = plan.control.fairness_id.as_deref().unwrap_or_default();
    // Only a weighted choice needs it, and it may have to read the prompt.
    let weighs = !policy.routing.rules.is_empty() || !policy.rewrites.is_empty();
    let conversation = if weighs { conversation_of(tenant, &header, opening) } else { 0 };
    let mut chooser = Chooser { conversation, random };
    let request = RouteRequest {
        host: head.host(),
        path: head.path(),
        method: head.method(),
        header: &header,
    };
    let routed = route(policy, &request, &mut chooser);
    plan.pool = match routed.destination {
        Destination::Pool(pool) => pool,
        Destination::NoRoute => return Err(NoPlan::NoRoute),
        Destination::NoBackend => return Err(NoPlan::NoBackend),
    };
    // A header asks for another name; a rewrite of the client's name overrides it.
    let rewritten = rewrite(policy, plan.pool, model, &mut chooser);
    let asked = plan.control.model_rewrite.as_deref().filter(|_| !model.is_empty());
    plan.target = rewritten.map(|r| r.target).or(asked).unwrap_or(model).to_owned();
    if plan.target.is_empty() && rewritten.is_some() {
        return Err(NoPlan::NoModel);
    }
    plan.rewritten_by = rewritten.map(|rewritten| rewritten.by.to_owned());
    plan.priority = plan.control.priority(policy, plan.pool);
    if let Some(rule) = routed.rule {
        plan.follow(rule);
    }
    Ok(plan)
}

impl Plan {
    fn follow(&mut self, rule: &RouteRule) {
        self.set.extend(rule.set_headers.iter().cloned());
        self.add.extend(rule.add_headers.iter().cloned());
        self.remove.extend(rule.remove_headers.iter().cloned());
        if let Some(timeout_ms) = rule.timeout_ms.filter(|ms| *ms > 0) {
            self.set.push((TIMEOUT.into(), timeout_ms.to_string()));
        }
    }
}
