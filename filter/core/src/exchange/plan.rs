//! What the compiled configuration makes of a request, before an endpoint is picked: pool, names, priority.

use super::RequestHead;
use super::admission::apply_tenant;
use crate::routing::{
    Chooser, Control, Destination, RouteRequest, base_model, conversation_of, rewrite, route,
};
use crate::scheduling::agent_of;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::routing::RouteRule;
use warmroute_shared_state::policy::tenants::Tenant;

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
    Route,
    /// The route's backend does not exist.
    Backend,
    /// A rewrite applies, and none of its targets can be chosen.
    Model,
}

/// Makes the plan. `model` is the body's, empty if it has none or was not read; `opening` is the conversation's
/// (see [`conversation_of`]).
pub(super) fn plan(
    policy: &Policy,
    head: &mut RequestHead,
    tenant: Option<&Tenant>,
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
    if let Some(tenant) = tenant {
        apply_tenant(tenant, head, &mut plan);
    }
    let header = |name: &str| head.headers.get(name);
    let tenant = plan.control.fairness_id.as_deref().unwrap_or_default();
    // Only such a choice needs it, and it may have to read the prompt.
    let splits = policy.splits_by_conversation();
    let conversation = if splits { conversation_of(tenant, &header, opening) } else { 0 };
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
        Destination::NoRoute => return Err(NoPlan::Route),
        Destination::NoBackend => return Err(NoPlan::Backend),
    };
    if plan.control.fairness_id.is_none() {
        let scheduler =
            plan.pool.and_then(|index| policy.pools.get(index)).map_or(0, |p| p.scheduler);
        let identity = policy.schedulers.get(scheduler).and_then(|s| s.agent_identity.as_ref());
        let agent = identity.and_then(|identity| agent_of(identity, &head.headers));
        plan.control.fairness_id =
            agent.map(|agent| agent.trim().to_owned()).filter(|id| !id.is_empty());
    }
    // A header asks for another name; a rewrite of the client's name overrides it.
    let rewritten = rewrite(policy, plan.pool, model, &mut chooser);
    let asked = plan.control.model_rewrite.as_deref().filter(|_| !model.is_empty());
    plan.target = rewritten.map(|r| r.target).or(asked).unwrap_or(model).to_owned();
    if plan.target.is_empty() && rewritten.is_some() {
        return Err(NoPlan::Model);
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

#[cfg(test)]
mod tests {
    use super::super::Headers;
    use super::*;
    use crate::request::{BodyScan, PathClass, Scratch};
    use warmroute_shared_state::policy::routing::{Backend, Pool, RouteMatch, Routing};

    fn policy(first: u32, second: u32) -> Policy {
        let pool = |name: &str| Pool {
            name: name.into(),
            cluster: name.into(),
            fail_open: false,
            scheduler: 0,
        };
        let backend =
            |pool, name: &str, weight| Backend { pool: Some(pool), name: name.into(), weight };
        let backends = vec![backend(0, "bf16", first), backend(1, "fp8", second)];
        let rule = RouteRule { name: "serving/llama/0".into(), backends, ..RouteRule::default() };
        let routing =
            Routing { matches: vec![RouteMatch::default()], rules: vec![rule], default_pool: None };
        Policy { pools: vec![pool("bf16"), pool("fp8")], routing, ..Policy::default() }
    }

    /// Pool of a turn of a conversation: one system prompt for all, its own first user message.
    fn pool_of(policy: &Policy, conversation: usize, turns: usize) -> usize {
        let mut messages = String::from(r#"{"role":"system","content":"You are helpful."}"#);
        for turn in 0..turns {
            if turn > 0 {
                messages += r#",{"role":"assistant","content":"An answer."}"#;
            }
            let text = if turn == 0 { conversation } else { turn };
            messages += &format!(r#",{{"role":"user","content":"Question {text}"}}"#);
        }
        let body = format!(r#"{{"model":"llama","messages":[{messages}]}}"#);
        let mut scan = BodyScan::new(PathClass::Chat, Scratch::default());
        scan.feed(body.as_bytes()).unwrap();
        let facts = scan.finish().unwrap();
        let pairs = [(":method", "POST"), (":path", "/v1/chat/completions"), (":authority", "h")];
        let headers = Headers::new(pairs, false);
        let mut head = RequestHead { headers, end_of_stream: false };
        let mut random = || panic!("a conversation's side is no matter of chance");
        let opening = || facts.conversation_key();
        plan(policy, &mut head, None, facts.model_name(), opening, &mut random)
            .unwrap()
            .pool
            .unwrap()
    }

    crate::tests! {
        fn twenty_thousand_conversations_split_as_weighed_and_none_changes_sides() {
            const CONVERSATIONS: usize = 20_000;
            let weights = [(90, 10), (70, 30), (80, 20)];
            let policies = weights.map(|(first, second)| policy(first, second));
            let mut small = [0usize; 3];
            let mut moved = 0;
            for conversation in 0..CONVERSATIONS {
                let sides = policies.each_ref().map(|policy| {
                    let side = pool_of(policy, conversation, 1);
                    // Later turns, now and then: they cost more to read.
                    let turns = 2 + conversation % 3;
                    assert_eq!(pool_of(policy, conversation, turns), side, "{conversation}");
                    side
                });
                for (count, side) in small.iter_mut().zip(sides) {
                    *count += side;
                }
                assert!(sides[0] <= sides[2], "from 90/10 to 80/20 nobody moves back");
                moved += usize::from(sides[0] != sides[2]);
            }
            for (count, (_, second)) in small.iter().zip(weights) {
                let off = count.abs_diff(CONVERSATIONS * second as usize / 100);
                assert!(off <= CONVERSATIONS / 100, "{second}%: {count}");
            }
            assert!(moved.abs_diff(CONVERSATIONS / 10) <= CONVERSATIONS / 100, "{moved}");
        }
    }
}
