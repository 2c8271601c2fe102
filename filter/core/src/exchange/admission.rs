//! Before a request is picked for: whose it is, what its tenant's budget allows, and whether its pool has room.

use super::plan::Plan;
use super::{Env, Exchange, RequestHead};
use crate::flow_control::policy::ordering::{deadline_ms, slo_deadline_ms};
use crate::flow_control::policy::shedding::Shedding;
use crate::flow_control::protocol::{DropReason, Refused, Request};
use crate::flow_control::worker::{Admission, Ticket, TimeToLive};
use crate::identity::{Claims, Effects, Unknown};
use crate::quota::{Budget, Demand, refusal_reply};
use crate::replica::DEFAULT_BYTES_PER_TOKEN;
use crate::request::{InputLength, LocalReply, PathClass, RequestFacts};
use crate::routing::{Control, DEFAULT_FAIRNESS_ID};
use crate::scheduling::chance;
use crate::vm::{Ask, VmState, pool_key};
use std::rc::Rc;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::flow::{DEFAULT_REQUEST_TTL_MS, FlowControl};
use warmroute_shared_state::policy::routing::Pool;
use warmroute_shared_state::policy::tenants::{Accounting, Tenant};

/// What a request takes, and of whom.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// What it reserves of its tenant's budgets.
    pub budget: Budget,
    /// Usage with every chunk of a stream.
    pub exact: bool,
}

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiting {
    pub ticket: Ticket,
    pub facts: Option<RequestFacts>,
    pub plan: Plan,
    pub policy: Rc<Policy>,
}

/// Whether the tokens that an engine tells of are charged to somebody.
pub(super) fn counts_tokens(policy: &Policy) -> bool {
    !policy.tenants.is_empty() || !policy.flow.is_empty()
}

/// Whose request it is: index of its tenant; none if there are no tenants.
pub(super) fn identify(
    env: &Env<'_>,
    policy: &Policy,
    head: &RequestHead,
) -> Result<Option<usize>, Unknown> {
    if policy.tenants.is_empty() {
        return Ok(None);
    }
    let index = env.vm.follower().replica.policy.tenants();
    let claims = || claims(env, head);
    index.identify(|name| head.headers.bytes(name), claims).map(Some)
}

/// Claims as `jwt_authn` left them: its header, if the configuration names one, else its metadata.
fn claims(env: &Env<'_>, head: &RequestHead) -> Option<Claims> {
    if let Some(name) = &env.config.jwt_payload_header {
        return Claims::from_payload_header(head.headers.bytes(name)?).ok();
    }
    let index = env.vm.follower().replica.policy.tenants();
    Claims::from_properties(
        |path| (env.jwt_claim)(path),
        |issuer| index.claim_names(issuer).collect::<Vec<_>>(),
    )
}

/// What the tenant changes of its request, before a route is chosen.
pub(super) fn apply_tenant(tenant: &Tenant, head: &mut RequestHead, plan: &mut Plan) {
    let effects = Effects::of(tenant);
    for name in effects.remove {
        head.headers.remove(name);
        plan.remove.push(name.to_owned());
    }
    for (name, value) in effects.set {
        head.headers.set(name, &value);
        plan.set.push((name.to_owned(), value));
    }
    Effects::control(tenant, &mut plan.control);
}

/// Bytes a token stands for in this pool, by what its endpoints learned.
fn bytes_per_token(vm: &VmState, pool: Option<&Pool>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for endpoint in vm.follower().replica.roster.iter().filter(|e| e.is_in(pool)) {
        sum += f64::from(endpoint.bytes_per_token);
        count += 1.0;
    }
    if count > 0.0 { sum / count } else { f64::from(DEFAULT_BYTES_PER_TOKEN) }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn estimate(vm: &VmState, pool: Option<&Pool>, facts: &RequestFacts) -> u64 {
    let InputLength { bytes, token_ids } = InputLength::of(facts);
    token_ids.saturating_add((bytes as f64 / bytes_per_token(vm, pool)).ceil() as u64)
}

fn demand(facts: Option<&RequestFacts>, input_tokens: u64) -> Demand {
    let Some(facts) = facts else { return Demand::default() };
    let generates = !matches!(
        facts.path,
        PathClass::Embeddings | PathClass::Conversations | PathClass::CountTokens
    );
    let prompts = u64::try_from(facts.prompt_count().max(1)).unwrap_or(u64::MAX);
    let answers = facts.choices.unwrap_or(1).max(1).saturating_mul(prompts);
    Demand {
        input_tokens,
        max_output: facts.max_output_tokens,
        answers: if generates { answers } else { 0 },
    }
}

/// What the request is accounted as. `tenant`: index of it.
pub(super) fn account(
    env: &Env<'_>,
    policy: &Policy,
    tenant: Option<usize>,
    facts: Option<&RequestFacts>,
    plan: &Plan,
) -> Account {
    let model = &plan.model;
    let pool = plan.pool.and_then(|index| policy.pools.get(index));
    let input_tokens = facts.map_or(0, |facts| estimate(env.vm, pool, facts));
    let demand = demand(facts, input_tokens);
    match tenant.and_then(|index| policy.tenants.get(index)) {
        Some(tenant) => Account {
            budget: Budget::of(tenant, model, &demand),
            exact: tenant.accounting == Accounting::Exact,
        },
        None => Account { budget: Budget::of(&no_limits(), model, &demand), ..Account::default() },
    }
}

/// Of whoever is no tenant: nothing is limited, and the reservation says how much a request may take.
fn no_limits() -> Tenant {
    Tenant {
        name: String::new(),
        key_hashes: Vec::new(),
        jwt: None,
        strip_key: false,
        fairness_id: String::new(),
        objective: None,
        tier: None,
        limits: Vec::new(),
        accounting: Accounting::default(),
    }
}

/// How long a request waits at most. One that waits for its budgets only has no flow control to say.
fn time_to_live(flow: Option<&FlowControl>) -> TimeToLive {
    let default = (DEFAULT_REQUEST_TTL_MS, DEFAULT_REQUEST_TTL_MS);
    let (request_ms, no_endpoint_ms) =
        flow.map_or(default, |flow| (flow.request_ttl_ms, flow.no_endpoint_ttl_ms));
    TimeToLive { request_ms, no_endpoint_ms }
}

/// Whether the pool is too full for a request of this priority to be picked for.
pub(super) fn is_shed(env: &mut Env<'_>, policy: &Policy, ask: &Ask<'_>, priority: i32) -> bool {
    // Nearly all: they need not look at the endpoints.
    let Some(scheduler) = ask.scheduler.filter(|_| priority < 0) else { return false };
    let controlled = VmState::flow_control_of(policy, ask.pool).is_some();
    if controlled && scheduler.admitters.is_empty() {
        return false;
    }
    let endpoints = env.vm.uses(ask);
    let shedding = Shedding {
        detector: (!controlled).then_some(&scheduler.detector),
        admitters: &scheduler.admitters,
        endpoints: &endpoints,
        now_ms: env.now_ms,
    };
    shedding.refuses(priority, || chance(env.random))
}

impl Exchange {
    /// Asks for the request's turn. `None`: it needs not ask.
    pub(super) fn ask_for_turn(
        &mut self,
        env: &mut Env<'_>,
        policy: &Policy,
        plan: &Plan,
        facts: Option<&RequestFacts>,
    ) -> Option<Admission> {
        let pool = plan.pool.and_then(|index| policy.pools.get(index));
        let flow = VmState::flow_control_of(policy, pool).filter(|_| facts.is_some());
        let budgets = self.account.budget.asks.clone();
        if flow.is_none() && budgets.is_empty() {
            return None;
        }
        let ttl = time_to_live(flow);
        let Control { fairness_id, slo_ttft_ms, .. } = &plan.control;
        let request = Request {
            pool: flow.map_or(crate::flow_control::protocol::PoolKey::NONE, |_| pool_key(pool)),
            priority: plan.priority,
            flow: fairness_id.clone().unwrap_or_else(|| DEFAULT_FAIRNESS_ID.into()),
            tokens: self.account.budget.reserved,
            bytes: facts.map_or(0, |facts| facts.body_bytes as u64),
            since_ms: self.started_ms,
            deadline_ms: deadline_ms(self.started_ms, ttl.request_ms),
            slo_ms: slo_deadline_ms(self.started_ms, *slo_ttft_ms),
            budgets,
        };
        self.record.flow_controlled = flow.is_some();
        Some(env.vm.acquire(request, env.context, ttl, env.now_ms))
    }
}

/// The answer to a request that may not go, and one word for the access log.
#[must_use]
pub fn refusal_of(refused: &Refused) -> (LocalReply, &'static str) {
    let (reason, retry_after_ms) = match refused {
        Refused::Budget(refusal) => return (refusal_reply(refusal), "warmroute_budget"),
        Refused::Queue { reason, retry_after_ms } => (*reason, *retry_after_ms),
    };
    let (message, details) = match reason {
        DropReason::Saturated => ("The queue for this pool is full.", "warmroute_queue_full"),
        DropReason::NoEndpoints | DropReason::TtlNoEndpoints => {
            ("No endpoint is available to serve the request.", "warmroute_no_endpoint")
        }
        DropReason::TtlExpired => {
            ("The request waited for its turn for too long.", "warmroute_ttl_expired")
        }
        DropReason::Evicted => {
            ("The request was ended in favour of one of higher priority.", "warmroute_evicted")
        }
        DropReason::Cancelled => ("The request was cancelled.", "warmroute_cancelled"),
        DropReason::ShuttingDown => ("The gateway is shutting down.", "warmroute_shutting_down"),
        DropReason::Budget => ("The budget is used up.", "warmroute_budget"),
    };
    let mut reply = LocalReply::error(reason.status(), message, None);
    if let Some(header) = reason.header() {
        reply = reply.dropped(header);
    }
    let seconds = retry_after_ms.div_ceil(1000).max(1).to_string();
    reply.headers.push(("retry-after", seconds.into()));
    (reply, details)
}
