//! One request's way through the filter: events in, steps out.
//!
//! ```text
//! on_request_headers ─▶ Pause ─▶ on_request_body… ─▶ on_request_end ─▶ Forward | Reply
//!        └▶ Forward | Reply (nothing to read)
//! on_response_headers ─▶ on_response_body… ─▶ on_response_end
//! on_done, always last: whatever is still charged is released
//! ```
//! The host translates its callbacks into these calls and carries the steps out. It may call
//! [`Exchange::on_done`] at any moment, and nothing after it.

mod admission;
mod body_budget;
mod headers;
mod internal_headers;
mod ledger;
mod plan;
mod prompt;
mod record;
mod refusal;
mod request;
mod request_head;
mod response;
mod step;

#[cfg(test)]
mod admission_tests;
#[cfg(test)]
mod encoding_tests;
#[cfg(test)]
mod response_tests;
#[cfg(test)]
mod routing_tests;
#[cfg(test)]
mod tenant_tests;
#[cfg(test)]
mod tests;

pub use admission::refusal_of;
pub use body_budget::BodyBudget;
pub use headers::Headers;
pub use internal_headers::DESTINATION;
pub use record::{Cause, Record, Stages};
pub use request_head::RequestHead;
pub use response::{Ending, ResponseEdit, ResponseHead};
pub use step::{Forward, Step};

use crate::config::PluginConfig;
use crate::flow_control::protocol::Usage;
use crate::flow_control::worker::Ticket;
use crate::ledger::Outbox;
use crate::quota::{Charged, Estimate, settlement};
use crate::request::{BodyScan, ScratchPool};
use crate::response::model_name::ModelRestorer;
use crate::response::usage_shape::{Asked, UsageShaper};
use crate::response::{End, ResponseReader, ResponseReport};
use crate::vm::{Routed, SharedStore, VmState};
use admission::{Account, Waiting};
use warmroute_shared_state::usage_record::FlowOutcome;

/// What an exchange works with: passed in at every event.
pub struct Env<'a> {
    /// The VM's state.
    pub vm: &'a mut VmState,
    /// Envoy's shared data.
    pub store: &'a dyn SharedStore,
    /// The configuration in force.
    pub config: &'a PluginConfig,
    /// Envoy's clock, in ms.
    pub now_ms: u64,
    /// Any `u64`, another one at each call.
    pub random: &'a mut dyn FnMut() -> u64,
    /// What bodies on their way hold.
    pub bodies: &'a mut BodyBudget,
    /// Buffers of former requests.
    pub scratches: &'a mut ScratchPool,
    /// Number of the stream, for what it is told later.
    pub context: u32,
    /// What `jwt_authn` left of the request's token in its metadata: a property by its path below `jwt_payload`.
    pub jwt_claim: &'a dyn Fn(&[&str]) -> Option<Vec<u8>>,
    /// Records for the ledger.
    pub ledger: &'a mut Outbox,
    /// What to send to the applier, in this order. Filled here, emptied by the host.
    pub outbox: &'a mut Vec<Vec<u8>>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Head,
    Body(Box<BodyScan>),
    /// It waits for its turn.
    Waiting(Box<Waiting>),
    /// Sent on, or answered by us.
    Decided,
}

/// One request and its response.
#[derive(Default)]
pub struct Exchange {
    phase: Phase,
    head: RequestHead,
    started_ms: u64,
    /// Its record was written.
    in_ledger: bool,
    /// Bytes taken from the budget.
    held: usize,
    /// The body was read, so the answer is of a form that is read too.
    read: bool,
    routed: Option<Box<Routed>>,
    account: Account,
    /// It was let go: to be released when it is over.
    ticket: Option<Ticket>,
    charged: Option<Charged>,
    /// What of the usage that was asked for must not reach the client.
    hides: Option<Asked>,
    shaper: Option<UsageShaper>,
    client_gone: bool,
    /// It is nobody's: no key, or a wrong one.
    unknown: bool,
    /// Whose it is by the policy of this revision: index of its tenant.
    known: Option<(u64, Option<usize>)>,
    /// What the engine was asked for instead of the client's model name, and that name.
    renamed: Option<(String, String)>,
    restorer: Option<ModelRestorer>,
    reader: Option<ResponseReader>,
    record: Record,
}

impl Exchange {
    /// The response is complete (or known to be cut off).
    pub fn on_response_end(&mut self, env: &mut Env<'_>, end: End) {
        let report = self.reader.take().map(|reader| reader.finish(end));
        self.settle(env, report);
    }

    /// The exchange is over, however. Releases whatever is still charged. `client_gone`: the client left, as far
    /// as the host knows.
    pub fn on_done(&mut self, env: &mut Env<'_>, client_gone: bool) {
        // Never asked about: a page of the filter's own.
        if matches!(self.phase, Phase::Head) {
            return;
        }
        self.give_back(env);
        self.client_gone = client_gone;
        self.leave_queue(env);
        let end = if client_gone { End::ClientGone } else { End::Broken };
        self.on_response_end(env, end);
        if self.record.cause.is_none() {
            let cause = if client_gone { Cause::ClientGone } else { Cause::NoResponse };
            self.record.cause = Some(cause);
        }
        self.write_to_ledger(env);
    }

    /// It is decided on, and waits no longer, whatever it was about to do.
    fn leave_queue(&mut self, env: &mut Env<'_>) {
        if let Phase::Waiting(waiting) = core::mem::replace(&mut self.phase, Phase::Decided) {
            env.vm.cancel(waiting.ticket, env.now_ms);
            self.record.flow_outcome = Some(FlowOutcome::EvictedContextCancelled);
            self.record.queue_ms = env.now_ms.saturating_sub(self.started_ms);
        }
    }

    fn give_back(&mut self, env: &mut Env<'_>) {
        env.bodies.give(core::mem::take(&mut self.held));
    }

    fn settle(&mut self, env: &mut Env<'_>, report: Option<ResponseReport>) {
        if let Some(report) = &report {
            self.record.answered(report);
        }
        if let Some(routed) = &self.routed
            && (report.is_some() || self.client_gone)
        {
            let belief = &routed.belief;
            let estimate = Estimate { input: belief.prompt_tokens, cached: belief.tokens };
            let charged = settlement(report.as_ref(), &estimate);
            self.record.charged_tokens = self.record.tenant.as_ref().map(|_| charged.tokens());
            self.charged = Some(charged);
        }
        if let Some(ticket) = self.ticket.take() {
            let of =
                |charged: &Charged| Usage { prompt: charged.input, completion: charged.output };
            let usage = self.charged.as_ref().map(of).unwrap_or_default();
            let charged = self.charged.as_ref().map(Charged::tokens);
            env.vm.release(ticket, usage, charged, env.now_ms);
        }
        if let Some(routed) = self.routed.take() {
            let tokens = report.and_then(|report| report.facts.usage.prompt_tokens);
            let tokens = tokens.and_then(|tokens| u32::try_from(tokens).ok());
            let message = env.vm.finish(env.store, *routed, tokens, env.now_ms);
            env.outbox.extend(message);
        }
    }

    /// What is known of it, for the access log.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }
}
