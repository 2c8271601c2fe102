//! What the access log can say of a request.

use super::plan::Plan;
use crate::response::{Outcome, ResponseReport, Usage};
use crate::routing::DEFAULT_FAIRNESS_ID;
use crate::telemetry::Labels;
use crate::vm::{Routed, VmState};
use std::borrow::Cow;
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::scheduler::{Handler, Scheduler};
use warmroute_shared_state::usage_record::FlowOutcome;
use warmroute_shared_state::usage_record::batch::MAX_TEXT_BYTES;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Answered by the filter itself; the word is also in the response code details.
    Rejected(&'static str),
    /// As the engine's answer says.
    Answered(Outcome),
    /// The client left before an answer began.
    ClientGone,
    /// No answer came.
    NoResponse,
}

impl Cause {
    /// One word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rejected(details) => details,
            Self::Answered(outcome) => outcome.name(),
            Self::ClientGone => "client_gone",
            Self::NoResponse => "no_response",
        }
    }
}

/// Where the stages of a request ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stages {
    /// Type of the handler that decided.
    pub plugin_type: String,
    /// Name of its instance.
    pub plugin_name: String,
    /// `decode-only` and so on.
    pub decision: &'static str,
}

/// One request, for the access log. No prompt and no key is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Model that the client asked for.
    pub model: Option<String>,
    /// Model that the engine is asked for, if that is another one.
    pub target_model: Option<String>,
    /// `namespace/name` of the pool, if there are several.
    pub pool: Option<String>,
    /// Fairness ID.
    pub fairness_id: Option<String>,
    /// Priority.
    pub priority: i32,
    /// `InferenceModelRewrite` that chose the target model.
    pub rewritten_by: Option<String>,
    /// Where its stages ran, if a handler decided on that.
    pub stages: Option<Stages>,
    /// Its pool has flow control.
    pub flow_controlled: bool,
    /// What flow control did with it.
    pub flow_outcome: Option<FlowOutcome>,
    /// How long it waited for its turn, in ms.
    pub queue_ms: u64,
    /// Reason of its refusal, as the client was told.
    pub dropped: Option<&'static str>,
    /// It was ended in favour of another one.
    pub evicted: bool,
    /// How often Envoy tried.
    pub attempts: u32,
    /// Its answer is a stream.
    pub streamed: bool,
    /// Tenant.
    pub tenant: Option<String>,
    /// Tokens reserved of its tenant's budgets.
    pub reserved_tokens: Option<u64>,
    /// Tokens charged in the end.
    pub charged_tokens: Option<u64>,
    /// Status that the client got, as far as the filter knows; 0 if none.
    pub status: u16,
    /// Bytes of the request's body.
    pub request_bytes: u64,
    /// Bytes of the response's body, as the engine sent it.
    pub response_bytes: u64,
    /// `ip:port` of the endpoint that is charged.
    pub endpoint: Option<String>,
    /// Its identity.
    pub endpoint_id: Option<EndpointId>,
    /// `namespace/name` of it.
    pub endpoint_name: Option<String>,
    /// Why it was picked.
    pub reason: Option<&'static str>,
    /// Prompt tokens that it was believed to hold.
    pub matched_tokens: Option<u64>,
    /// How the prompt's bytes were found.
    pub prompt_source: Option<&'static str>,
    /// What that belief rested on.
    pub matched_kind: Option<&'static str>,
    /// From the request's headers to the first token (of a whole answer: to its first byte), in ms.
    pub ttft_ms: Option<u64>,
    /// What the engine counted.
    pub usage: Usage,
    /// How it ended.
    pub cause: Option<Cause>,
}

impl Record {
    pub(super) fn planned(&mut self, plan: &Plan, policy: &Policy) {
        // A client may send megabytes as a name: nothing that outlives the pick needs more than the ledger keeps.
        let named = |name: &str| {
            let kept = name.get(..name.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default();
            (!kept.is_empty()).then(|| kept.to_owned())
        };
        self.model = named(&plan.model);
        self.target_model = named(&plan.target).filter(|_| plan.target != plan.model);
        self.pool = plan.pool.and_then(|pool| policy.pools.get(pool)).map(|pool| pool.name.clone());
        self.fairness_id.clone_from(&plan.control.fairness_id);
        self.priority = plan.priority;
        self.rewritten_by.clone_from(&plan.rewritten_by);
    }

    pub(super) fn staged(&mut self, routed: &Routed, scheduler: Option<&Scheduler>) {
        if let Some(disaggregation) = routed.disaggregation
            && let Some(Handler::Disagg(handler)) = scheduler.map(|s| &s.handler)
        {
            self.stages = Some(Stages {
                plugin_type: handler.plugin_type.clone(),
                plugin_name: handler.name.clone(),
                decision: disaggregation.as_str(),
            });
        }
    }

    pub(super) fn picked(&mut self, vm: &VmState, routed: &Routed) {
        self.reason = Some(routed.reason.as_str());
        self.prompt_source = Some(routed.prompt_source().as_str());
        self.charged(vm, routed);
    }

    pub(super) fn moved(&mut self, vm: &VmState, routed: &Routed) {
        let before = self.endpoint.take();
        self.charged(vm, routed);
        if self.endpoint != before {
            self.reason = Some("retried_elsewhere");
        }
    }

    fn charged(&mut self, vm: &VmState, routed: &Routed) {
        let endpoint = vm.follower().replica.roster.get(routed.endpoint());
        self.endpoint = endpoint.map(|endpoint| endpoint.record.address.clone());
        self.endpoint_id = endpoint.map(|endpoint| endpoint.record.id);
        self.endpoint_name = endpoint.map(|endpoint| endpoint.record.name.clone());
        self.matched_tokens = Some(routed.belief.tokens);
        self.matched_kind = Some(routed.belief.kind.as_str());
    }

    pub(super) fn answered(&mut self, report: &ResponseReport) {
        self.usage = report.facts.usage;
        self.cause = Some(Cause::Answered(report.outcome));
    }

    /// The labels of its metrics, before they are bounded.
    #[must_use]
    pub fn labels(&self) -> Labels<'_> {
        let model = self.model.as_deref().unwrap_or_default();
        Labels {
            model: model.into(),
            target_model: self.target_model.as_deref().unwrap_or(model).into(),
            fairness_id: self.fairness_id.as_deref().unwrap_or(DEFAULT_FAIRNESS_ID).into(),
            priority: self.priority,
        }
    }

    /// Properties of the stream, and the values of those that are known.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        let word = |value: Option<&'static str>| value.map(Cow::Borrowed);
        let number = |value: Option<u64>| value.map(|v| Cow::Owned(v.to_string()));
        [
            ("warmroute.model", self.model.as_deref().map(Cow::Borrowed)),
            ("warmroute.target_model", self.target_model.as_deref().map(Cow::Borrowed)),
            ("warmroute.pool", self.pool.as_deref().map(Cow::Borrowed)),
            ("warmroute.tenant", self.tenant.as_deref().map(Cow::Borrowed)),
            ("warmroute.fairness_id", self.fairness_id.as_deref().map(Cow::Borrowed)),
            ("warmroute.queue_ms", number(self.flow_outcome.map(|_| self.queue_ms))),
            ("warmroute.reserved_tokens", number(self.reserved_tokens)),
            ("warmroute.charged_tokens", number(self.charged_tokens)),
            ("warmroute.dropped", word(self.dropped)),
            ("warmroute.priority", (self.priority != 0).then(|| self.priority.to_string().into())),
            ("warmroute.endpoint", self.endpoint.as_deref().map(Cow::Borrowed)),
            ("warmroute.stages", word(self.stages.as_ref().map(|stages| stages.decision))),
            ("warmroute.reason", word(self.reason)),
            ("warmroute.matched_tokens", number(self.matched_tokens)),
            ("warmroute.prompt_source", word(self.prompt_source)),
            ("warmroute.matched_kind", word(self.matched_kind)),
            ("warmroute.ttft_ms", number(self.ttft_ms)),
            ("warmroute.prompt_tokens", number(self.usage.prompt_tokens)),
            ("warmroute.cached_tokens", number(self.usage.cached_tokens)),
            ("warmroute.completion_tokens", number(self.usage.completion_tokens)),
            ("warmroute.cause", word(self.cause.map(Cause::name))),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}
