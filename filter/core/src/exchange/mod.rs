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

mod body_budget;
mod internal_headers;
mod prompt;
mod record;
mod request_head;

#[cfg(test)]
mod tests;

pub use body_budget::BodyBudget;
pub use internal_headers::{DESTINATION, is_internal};
pub use record::{Cause, Record};
pub use request_head::RequestHead;

use crate::config::{FailureMode, PluginConfig};
use crate::replica::Models;
use crate::request::{BodyScan, LocalReply, PathClass, Scratch};
use crate::response::{End, ResponseReader, ResponseReport};
use crate::vm::{Choice, Prompt, Routed, SharedStore, VmState};

/// Buffers kept for the next requests of a VM.
const SCRATCHES_KEPT: usize = 16;

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
    pub scratches: &'a mut Vec<Scratch>,
    /// What to send to the applier, in this order. Filled here, emptied by the host.
    pub outbox: &'a mut Vec<Vec<u8>>,
}

/// What the host is to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Hold it and let the body come.
    Pause,
    /// Send it on. `destinations` goes into the destination header; without it Envoy's fallback policy chooses.
    Forward {
        /// `ip:port`, comma-separated, best first.
        destinations: Option<String>,
    },
    /// Answer it here.
    Reply {
        /// The answer.
        reply: LocalReply,
        /// One word for the access log's response code details.
        details: &'static str,
    },
}

#[derive(Default)]
enum Phase {
    #[default]
    Head,
    Body(Box<BodyScan>),
    /// Sent on, or answered by us.
    Decided,
}

/// One request and its response.
#[derive(Default)]
pub struct Exchange {
    phase: Phase,
    started_ms: u64,
    /// Bytes taken from the budget.
    held: usize,
    /// The body was read, so the answer is of a form that is read too.
    read: bool,
    routed: Option<Box<Routed>>,
    reader: Option<ResponseReader>,
    record: Record,
}

impl Exchange {
    /// The request's headers are there. Internal headers must have been taken off by the host
    /// ([`is_internal`]).
    pub fn on_request_headers(&mut self, env: &mut Env<'_>, head: &RequestHead<'_>) -> Step {
        self.started_ms = env.now_ms;
        let class = head.class();
        if class == PathClass::Other || head.end_of_stream {
            if class != PathClass::Other {
                return self.refuse(env, empty_body(), "warmroute_bad_request");
            }
            return self.route(env, |_, _| Prompt::default());
        }
        if let Some(encoding) = head.foreign_encoding() {
            return self.refuse(env, LocalReply::compressed(encoding), "warmroute_compressed");
        }
        if head.content_length.is_some_and(|length| length > env.config.max_body_bytes as u64) {
            return self.too_large(env);
        }
        let scratch = env.scratches.pop().unwrap_or_default();
        self.read = true;
        self.phase = Phase::Body(Box::new(BodyScan::new(class, scratch)));
        Step::Pause
    }

    /// Bytes of the body that this exchange has read: the host hands over only what comes after.
    #[must_use]
    pub fn body_taken(&self) -> usize {
        match &self.phase {
            Phase::Body(scan) => scan.taken(),
            Phase::Head | Phase::Decided => 0,
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
            return Step::Forward { destinations: None };
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
        let _ = scan.feed(slice);
        Step::Pause
    }

    /// The body is complete: the last bytes or the trailers came.
    pub fn on_request_end(&mut self, env: &mut Env<'_>) -> Step {
        self.give_back(env);
        let Phase::Body(scan) = core::mem::take(&mut self.phase) else {
            self.phase = Phase::Decided;
            return Step::Forward { destinations: None };
        };
        match scan.finish() {
            Ok(facts) => {
                let (limit, now_ms) = (env.config.max_body_bytes, env.now_ms);
                let step = self.route(env, |models, room| {
                    prompt::of(&facts, models, now_ms / 1000, room.min(limit))
                });
                recycle(env, facts.into_scratch());
                step
            }
            Err(error) => self.refuse(env, LocalReply::from(&error), "warmroute_bad_request"),
        }
    }

    fn too_large(&mut self, env: &mut Env<'_>) -> Step {
        let reply = LocalReply::too_large(env.config.max_body_bytes);
        self.refuse(env, reply, "warmroute_too_large")
    }

    fn give_back(&mut self, env: &mut Env<'_>) {
        env.bodies.give(core::mem::take(&mut self.held));
    }

    fn refuse(&mut self, env: &mut Env<'_>, reply: LocalReply, details: &'static str) -> Step {
        self.give_back(env);
        self.phase = Phase::Decided;
        self.record.cause = Some(Cause::Rejected(details));
        Step::Reply { reply, details }
    }

    fn route(&mut self, env: &mut Env<'_>, prompt: impl FnOnce(&Models, usize) -> Prompt) -> Step {
        self.phase = Phase::Decided;
        let (choice, message) = env.vm.choose(env.store, prompt, env.now_ms, env.random);
        env.outbox.extend(message);
        match choice {
            Choice::Routed(routed) => {
                self.record.picked(env.vm, &routed);
                let destinations = Some(routed.destinations.join(","));
                self.routed = Some(routed);
                Step::Forward { destinations }
            }
            Choice::NoTable if env.config.failure_mode == FailureMode::FailOpen => {
                self.record.reason = Some("no_table");
                Step::Forward { destinations: None }
            }
            Choice::NoTable => self.refuse(env, LocalReply::no_endpoint(), "warmroute_no_table"),
            Choice::NoEndpoint => {
                self.refuse(env, LocalReply::no_endpoint(), "warmroute_no_endpoint")
            }
        }
    }

    /// The response's headers are there. `attempts` is how often Envoy tried; only if it was more than
    /// once, `served_by` is asked for the address that answered.
    pub fn on_response_headers(
        &mut self,
        env: &mut Env<'_>,
        head: &ResponseHead<'_>,
        served_by: impl FnOnce() -> Option<String>,
    ) {
        self.give_back(env);
        self.phase = Phase::Decided;
        if matches!(self.record.cause, Some(Cause::Rejected(_))) {
            return;
        }
        if head.attempts > 1
            && let Some(routed) = self.routed.take()
        {
            self.routed = Some(match served_by() {
                Some(address) => {
                    let now_ms = env.now_ms;
                    let (routed, messages) = env.vm.served_by(env.store, *routed, &address, now_ms);
                    env.outbox.extend(messages);
                    Box::new(routed)
                }
                None => routed,
            });
            if let Some(routed) = &self.routed {
                self.record.moved(env.vm, routed);
            }
        }
        if head.status >= 400
            && let Some(routed) = &mut self.routed
        {
            env.outbox.extend(env.vm.refused(env.store, routed, env.now_ms));
        }
        if !head.from_engine {
            // Envoy's own answer: nobody served the request.
            self.record.cause = Some(Cause::NoResponse);
            return;
        }
        self.reader = Some(if self.read {
            ResponseReader::for_headers(head.status, head.content_type, head.content_encoding)
        } else {
            ResponseReader::opaque(head.status)
        });
        if head.end_of_stream {
            self.on_response_end(env, End::Clean);
        }
    }

    /// The next bytes of the response.
    pub fn on_response_body(&mut self, env: &mut Env<'_>, slice: &[u8]) {
        let Some(reader) = &mut self.reader else { return };
        if slice.is_empty() {
            return;
        }
        let streams = reader.is_stream();
        // Comments (`: keep-alive`) come while the request still waits in the engine's queue.
        let computed = reader.feed(slice).first_token || !streams;
        if !computed {
            return;
        }
        if let Some(routed) = &mut self.routed {
            env.outbox.extend(env.vm.answered(env.store, routed, env.now_ms));
        }
        if self.record.ttft_ms.is_none() {
            self.record.ttft_ms = Some(env.now_ms.saturating_sub(self.started_ms));
        }
    }

    /// The response is complete (or known to be cut off).
    pub fn on_response_end(&mut self, env: &mut Env<'_>, end: End) {
        let report = self.reader.take().map(|reader| reader.finish(end));
        self.settle(env, report);
    }

    /// The exchange is over, however. Releases whatever is still charged. `client_gone`: the client left, as far
    /// as the host knows.
    pub fn on_done(&mut self, env: &mut Env<'_>, client_gone: bool) {
        self.give_back(env);
        self.phase = Phase::Decided;
        let end = if client_gone { End::ClientGone } else { End::Broken };
        self.on_response_end(env, end);
        if self.record.cause.is_none() {
            let cause = if client_gone { Cause::ClientGone } else { Cause::NoResponse };
            self.record.cause = Some(cause);
        }
    }

    fn settle(&mut self, env: &mut Env<'_>, report: Option<ResponseReport>) {
        if let Some(report) = &report {
            self.record.answered(report);
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

/// What the response's headers say.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'a> {
    /// Status.
    pub status: u16,
    /// `content-type`.
    pub content_type: Option<&'a [u8]>,
    /// `content-encoding`.
    pub content_encoding: Option<&'a [u8]>,
    /// It is the engine's, and not Envoy's own.
    pub from_engine: bool,
    /// `x-envoy-attempt-count`; 1 if absent.
    pub attempts: u32,
    /// There is no body.
    pub end_of_stream: bool,
}

fn empty_body() -> LocalReply {
    LocalReply::error(400, "The request has no body: a JSON object was expected.", None)
}

fn recycle(env: &mut Env<'_>, mut scratch: Scratch) {
    if env.scratches.len() < SCRATCHES_KEPT {
        scratch.recycle();
        env.scratches.push(scratch);
    }
}
