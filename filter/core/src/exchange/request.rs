//! The request's way in: its body is read as it comes, then decided on at once.

use super::admission::{Waiting, account, counts_tokens, identify, is_shed, refusal_of};
use super::plan::{CLUSTER, Plan, plan};
use super::{
    Cause, DESTINATION, Env, Exchange, Forward, Phase, RequestHead, Step, prompt, refusal,
};
use crate::config::FailureMode;
use crate::flow_control::protocol::{DropReason, Refused, Usage};
use crate::flow_control::worker::{Admission, Ticket};
use crate::quota::refusal_reply;
use crate::request::{BodyScan, LocalReply, PathClass, RequestFacts};
use crate::response::usage_shape::Asked;
use crate::vm::{Ask, Choice, Prompt};
use std::rc::Rc;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::usage_record::FlowOutcome;
use warmroute_shared_state::usage_record::batch::MAX_TEXT_BYTES;

/// By which a configured cap in tokens becomes one in bytes: llm-d's estimate.
const BYTES_PER_TOKEN: u64 = 4;

impl Exchange {
    /// The request's headers are there. The host takes [internal ones](super::Headers::internal_names) off.
    pub fn on_request_headers(&mut self, env: &mut Env<'_>, head: RequestHead) -> Step {
        self.started_ms = env.now_ms;
        let class = head.class(env.vm.follower().replica.policy.parsers());
        self.head = head;
        // Before all else: nobody unknown may fill the ledger, or this worker's room for bodies.
        if let Err(step) = self.know_tenant(env) {
            return step;
        }
        let class = match class {
            Ok(class) => class,
            Err(error) => return self.refuse(env, error.into(), "warmroute_no_parser"),
        };
        if !class.reads_body() || self.head.end_of_stream {
            if class.reads_body() {
                return self.refuse(env, refusal::empty_body(), "warmroute_bad_request");
            }
            return self.decide(env, None);
        }
        if let Some(encoding) = self.head.foreign_encoding() {
            let reply = LocalReply::compressed(encoding);
            return self.refuse(env, reply, "warmroute_compressed");
        }
        let length = self.head.content_length().unwrap_or(0);
        if length > env.config.max_body_bytes as u64 {
            return self.too_large(env);
        }
        let length = usize::try_from(length).unwrap_or(0);
        // What nobody will ask for again is not kept. A model may have been told since this VM last had something to do.
        env.vm.refresh_if_idle(env.store, env.now_ms);
        let replica = &env.vm.follower().replica;
        let keeps =
            replica.models.iter().len() > 0 || replica.policy.current().splits_by_conversation();
        let digests = !keeps && class == PathClass::Chat;
        let scratch = env.scratches.take(if digests { 0 } else { length });
        self.read = true;
        let mut scan = BodyScan::new(class, scratch);
        scan.expect(length);
        if digests {
            scan.digest_messages(env.config.max_body_bytes);
        }
        self.phase = Phase::Body(Box::new(scan));
        Step::Pause
    }

    /// Bytes of the body that this exchange has read: the host hands over only what comes after.
    #[must_use]
    pub fn body_taken(&self) -> usize {
        match &self.phase {
            Phase::Body(scan) => scan.taken(),
            Phase::Head | Phase::Waiting(_) | Phase::Decided => 0,
        }
    }

    /// Whether the body is waited for.
    #[must_use]
    pub fn awaits_body(&self) -> bool {
        matches!(self.phase, Phase::Body(_))
    }

    /// The next bytes of the body.
    pub fn on_request_body(&mut self, env: &mut Env<'_>, slice: &[u8]) -> Step {
        let Phase::Body(scan) = &mut self.phase else {
            return Step::Forward(Box::default());
        };
        if scan.taken().saturating_add(slice.len()) > env.config.max_body_bytes {
            return self.too_large(env);
        }
        if !env.bodies.take(slice.len(), env.config.max_unfinished_bytes) {
            return self.refuse(env, LocalReply::busy(), "warmroute_bodies_full");
        }
        self.held = self.held.saturating_add(slice.len());
        // What is wrong with it is said once the whole body is there: a client that is answered while it
        // still sends may never read the answer.
        let before = scan.digest_bytes();
        let _ = scan.feed(slice);
        // What stands for media may be far more than they are.
        let grown = scan.digest_bytes().saturating_sub(before);
        if !env.bodies.take(grown, env.config.max_unfinished_bytes) {
            return self.refuse(env, LocalReply::busy(), "warmroute_bodies_full");
        }
        self.held = self.held.saturating_add(grown);
        Step::Pause
    }

    /// The body is complete: the last bytes or the trailers came.
    pub fn on_request_end(&mut self, env: &mut Env<'_>) -> Step {
        let Phase::Body(scan) = core::mem::take(&mut self.phase) else {
            self.give_back(env);
            self.phase = Phase::Decided;
            return Step::Forward(Box::default());
        };
        match scan.finish() {
            Ok(facts) => {
                self.record.request_bytes = facts.body_bytes as u64;
                self.decide(env, Some(facts))
            }
            Err(error) => self.refuse(env, LocalReply::from(&error), "warmroute_bad_request"),
        }
    }

    fn too_large(&mut self, env: &mut Env<'_>) -> Step {
        let reply = LocalReply::too_large(env.config.max_body_bytes);
        self.refuse(env, reply, "warmroute_too_large")
    }

    fn refuse(&mut self, env: &mut Env<'_>, reply: LocalReply, details: &'static str) -> Step {
        self.give_back(env);
        if let Some(ticket) = self.ticket.take() {
            env.vm.release(ticket, Usage::default(), None, env.now_ms);
        }
        self.phase = Phase::Decided;
        self.record.cause = Some(Cause::Rejected(details));
        self.record.status = reply.status;
        self.record.dropped = reply.dropped_reason();
        Step::Reply { reply, details }
    }

    /// Everything is known of the request: whose it is, where it goes, and as what. `facts`: those of its body, if it was
    /// read.
    fn decide(&mut self, env: &mut Env<'_>, facts: Option<RequestFacts>) -> Step {
        self.phase = Phase::Decided;
        env.vm.refresh_at(env.store, env.now_ms);
        let tenant = match self.know_tenant(env) {
            Ok(tenant) => tenant,
            Err(step) => return step,
        };
        let policy = Rc::clone(env.vm.follower().replica.policy.current());
        let whose = tenant.and_then(|index| policy.tenants.get(index));
        let model = facts.as_ref().map_or("", RequestFacts::model_name);
        // The policy may have begun to split while the body came: what its conversation is cannot be told any more.
        let digested = facts.as_ref().is_some_and(RequestFacts::is_digested);
        let chance = digested.then(|| (env.random)());
        let opening = || {
            let key = || facts.as_ref().map_or(0, RequestFacts::conversation_key);
            chance.unwrap_or_else(key)
        };
        let plan = match plan(&policy, &mut self.head, whose, model, opening, env.random) {
            Ok(plan) => plan,
            Err(no_plan) => {
                let (reply, details) = no_plan.reply();
                return self.refuse(env, reply, details);
            }
        };
        self.record.planned(&plan, &policy);
        if counts_tokens(&policy) {
            self.account = account(env, &policy, tenant, facts.as_ref(), &plan);
            self.record.reserved_tokens = tenant.map(|_| self.account.budget.reserved);
        }
        if let Some(refusal) = self.account.budget.too_large() {
            return self.refuse(env, refusal_reply(&refusal), "warmroute_over_budget");
        }
        match self.ask_for_turn(env, &policy, &plan, facts.as_ref()) {
            None => self.go(env, facts, &policy, plan),
            Some(Admission::Admitted(ticket)) => {
                self.ticket = Some(ticket);
                self.record.flow_outcome =
                    self.record.flow_controlled.then_some(FlowOutcome::Dispatched);
                self.go(env, facts, &policy, plan)
            }
            Some(Admission::Parked(ticket)) => {
                let waiting = Waiting { ticket, facts, plan, policy };
                self.phase = Phase::Waiting(Box::new(waiting));
                Step::Pause
            }
            Some(Admission::Refused(refused)) => self.turned_away(env, &refused),
        }
    }

    /// Whose it is: index of its tenant, if there are tenants; or the answer to nobody. Looked up once, unless the policy
    /// changed since.
    fn know_tenant(&mut self, env: &mut Env<'_>) -> Result<Option<usize>, Step> {
        let slot = &env.vm.follower().replica.policy;
        if slot.revision() == 0 && slot.unreadable() > 0 {
            // There may be tenants in it: nobody gets in unasked.
            self.unknown = true;
            let reply = LocalReply::no_endpoint();
            return Err(self.refuse(env, reply, "warmroute_policy_unreadable"));
        }
        let revision = slot.revision();
        if let Some((at, tenant)) = self.known
            && at == revision
        {
            return Ok(tenant);
        }
        let mut known = identify(env, slot.current(), &self.head);
        if known.is_err() {
            // The key may be newer than what a worker knows that had nothing to do.
            env.vm.refresh(env.store);
            let slot = &env.vm.follower().replica.policy;
            if slot.revision() != revision {
                known = identify(env, slot.current(), &self.head);
            }
        }
        let slot = &env.vm.follower().replica.policy;
        match known {
            Ok(tenant) => {
                self.known = Some((slot.revision(), tenant));
                let whose = tenant.and_then(|index| slot.current().tenants.get(index));
                self.record.tenant = whose.map(|tenant| tenant.name.clone());
                Ok(tenant)
            }
            Err(unknown) => {
                self.unknown = true;
                Err(self.refuse(env, unknown.into(), "warmroute_unknown_key"))
            }
        }
    }

    /// Whether it was let go by flow control or a budget: it may be told to end.
    #[must_use]
    pub fn has_turn(&self) -> bool {
        self.ticket.is_some()
    }

    /// Whether it waits for its turn.
    #[must_use]
    pub fn waits(&self) -> bool {
        matches!(self.phase, Phase::Waiting(_))
    }

    /// It is its turn, after `waited_ms`: the endpoint is picked on the state of this moment.
    pub fn on_grant(&mut self, env: &mut Env<'_>, ticket: Ticket, waited_ms: u64) -> Step {
        let Phase::Waiting(waiting) = core::mem::replace(&mut self.phase, Phase::Decided) else {
            // Nobody waits: what was granted goes back.
            env.vm.release(ticket, Usage::default(), None, env.now_ms);
            return Step::Pause;
        };
        self.ticket = Some(ticket);
        env.vm.refresh_at(env.store, env.now_ms);
        if self.record.flow_controlled {
            self.record.flow_outcome = Some(FlowOutcome::Dispatched);
            self.record.queue_ms = waited_ms;
        }
        let Waiting { facts, plan, policy, .. } = *waiting;
        self.go(env, facts, &policy, plan)
    }

    /// It may not go.
    pub fn on_refused(&mut self, env: &mut Env<'_>, refused: &Refused) -> Step {
        if !self.waits() {
            return Step::Pause;
        }
        self.phase = Phase::Decided;
        self.record.queue_ms = env.now_ms.saturating_sub(self.started_ms);
        self.turned_away(env, refused)
    }

    fn turned_away(&mut self, env: &mut Env<'_>, refused: &Refused) -> Step {
        if self.record.flow_controlled {
            self.record.flow_outcome = Some(match refused {
                Refused::Budget(_) => FlowOutcome::RejectedOther,
                Refused::Queue { reason, .. } => match reason {
                    DropReason::Saturated => FlowOutcome::RejectedCapacity,
                    DropReason::NoEndpoints => FlowOutcome::RejectedNoEndpoints,
                    DropReason::TtlExpired => FlowOutcome::EvictedTTL,
                    DropReason::TtlNoEndpoints => FlowOutcome::EvictedNoEndpoints,
                    DropReason::Cancelled => FlowOutcome::EvictedContextCancelled,
                    _ => FlowOutcome::RejectedOther,
                },
            });
        }
        let (reply, details) = refusal_of(refused);
        self.refuse(env, reply, details)
    }

    /// It goes: picked, changed, sent on.
    fn go(
        &mut self,
        env: &mut Env<'_>,
        facts: Option<RequestFacts>,
        policy: &Policy,
        plan: Plan,
    ) -> Step {
        // What waited for its turn held its body until now.
        self.give_back(env);
        let step = self.pick(env, facts.as_ref(), policy, plan);
        if let Some(facts) = facts {
            // A body that is changed is read whole, and put back.
            let changes = matches!(&step, Step::Forward(forward) if !forward.splices.is_empty());
            env.scratches.give(facts.into_scratch(), changes);
        }
        step
    }

    fn pick(
        &mut self,
        env: &mut Env<'_>,
        facts: Option<&RequestFacts>,
        policy: &Policy,
        plan: Plan,
    ) -> Step {
        let pool = plan.pool.and_then(|index| policy.pools.get(index));
        let only_if_cached = self.head.only_if_cached();
        // What has no body is not for a profile to judge: anybody may answer it.
        let bodiless = self.head.end_of_stream;
        let index = pool.map_or(0, |pool| pool.scheduler);
        let scheduler = policy.schedulers.get(index).filter(|_| !bodiless);
        let ask = Ask {
            pool,
            scheduler,
            subset: plan.control.subset.as_ref(),
            only_if_cached: only_if_cached && facts.is_some(),
            target_model: &plan.target,
            multimodal: facts.is_some_and(RequestFacts::is_multimodal),
            max_output_tokens: facts.and_then(|facts| facts.max_output_tokens),
            headers: &self.head.headers,
        };
        if facts.is_some() && is_shed(env, policy, &ask, plan.priority) {
            return self.refuse(env, refusal::saturated(), "warmroute_shed");
        }
        let now_ms = env.now_ms;
        let cap = scheduler.and_then(|scheduler| scheduler.prefix.max_prefix_tokens);
        let cap = cap.map_or(u64::MAX, |tokens| tokens.saturating_mul(BYTES_PER_TOKEN));
        let limit = usize::try_from(cap).unwrap_or(usize::MAX).min(env.config.max_body_bytes);
        let prompt = |models: &_, room: usize| match facts {
            Some(facts) => prompt::of(facts, &plan.target, models, now_ms / 1000, room.min(limit)),
            None => Prompt::default(),
        };
        let (choice, message) = env.vm.choose(env.store, &ask, prompt, env.now_ms, env.random);
        env.outbox.extend(message);
        let fail_open = match pool {
            Some(pool) => pool.fail_open,
            None => env.config.failure_mode == FailureMode::FailOpen,
        };
        let mut stage_headers = Vec::new();
        let destinations = match choice {
            Choice::Routed(mut routed) => {
                if let Some(ticket) = self.ticket {
                    env.vm.placed(ticket, policy, pool, &routed, now_ms);
                }
                self.record.picked(env.vm, &routed);
                self.record.staged(&routed, scheduler);
                stage_headers = core::mem::take(&mut routed.headers);
                let destinations = routed.destinations.join(",");
                self.routed = Some(routed);
                Some(destinations)
            }
            Choice::NoTable if fail_open => {
                self.record.reason = Some("no_table");
                None
            }
            Choice::NoTable => {
                return self.refuse(env, LocalReply::no_endpoint(), "warmroute_no_table");
            }
            Choice::NoEndpoint => {
                return self.refuse(env, LocalReply::no_endpoint(), "warmroute_no_endpoint");
            }
            Choice::Saturated => {
                return self.refuse(env, refusal::saturated(), "warmroute_saturated");
            }
            Choice::UnknownProfile => {
                return self.refuse(env, refusal::unknown_profile(), "warmroute_unknown_profile");
            }
            Choice::NotCached => {
                return self.refuse(env, refusal::not_cached(), "warmroute_not_cached");
            }
        };
        let mut forward = Forward {
            set_headers: plan.set,
            add_headers: plan.add,
            remove_headers: plan.remove,
            splices: Vec::new(),
        };
        let stages = stage_headers.into_iter().map(|(name, value)| (name.to_owned(), value));
        forward.set_headers.extend(stages);
        if let Some(destinations) = destinations {
            forward.set_headers.push((DESTINATION.into(), destinations));
        }
        if let Some(pool) = pool.filter(|pool| pool.cluster != env.config.pool) {
            forward.set_headers.push((CLUSTER.into(), pool.cluster.clone()));
        }
        let counts = counts_tokens(policy);
        if let Some(facts) = facts
            && counts
        {
            forward.splices = facts.usage_splices(self.account.exact);
            self.hides = Asked::by(facts, self.account.exact);
        }
        if let Some(facts) = facts
            && plan.target != plan.model
        {
            forward.splices.extend(facts.model_splices(&plan.target));
            // Kept until the answer is over, and written into each of its chunks: not if it is no real name.
            self.renamed =
                (plan.model.len() <= MAX_TEXT_BYTES).then_some((plan.target, plan.model));
        }
        if self.renamed.is_some() || (self.read && counts) {
            // What comes back compressed could be neither changed back nor counted.
            forward.remove_headers.push("accept-encoding".into());
        }
        Step::Forward(Box::new(forward))
    }
}
