//! The response's way back: who served it, its first token, its usage, and the client's name of the model in it.

use super::admission::refusal_of;
use super::{Cause, Env, Exchange};
use crate::content_encoding;
use crate::flow_control::protocol::{DropReason, Refused};
use crate::quota::rate_limit_headers;
use crate::request::LocalReply;
use crate::response::model_name::ModelRestorer;
use crate::response::reader::is_event_stream;
use crate::response::usage_shape::UsageShaper;
use crate::response::{End, ResponseReader};

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

/// What is changed of a response's headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseEdit {
    /// Headers to set.
    pub set_headers: Vec<(String, String)>,
    /// Its body will be of another length.
    pub changes_length: bool,
}

/// How a request in flight is ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// By an answer.
    Reply {
        /// The answer.
        reply: LocalReply,
        /// One word for the access log's response code details.
        details: &'static str,
    },
    /// By a reset: its answer has begun.
    Reset,
}

/// Sends what a former step made of `slice` (`None`: it is unchanged) through the next one.
fn pass<T>(
    slice: &[u8],
    changed: Option<Vec<u8>>,
    last: bool,
    step: &mut T,
    feed: fn(&mut T, &[u8]) -> Option<Vec<u8>>,
    finish: fn(&mut T) -> Vec<u8>,
) -> Option<Vec<u8>> {
    let next = feed(step, changed.as_deref().unwrap_or(slice)).or(changed);
    let held = if last { finish(step) } else { Vec::new() };
    if held.is_empty() {
        return next;
    }
    let mut all = next.unwrap_or_else(|| slice.to_vec());
    all.extend(held);
    Some(all)
}

impl Exchange {
    /// The response's headers are there. Only if Envoy tried more than once, `served_by` is asked for the address
    /// that answered.
    pub fn on_response_headers(
        &mut self,
        env: &mut Env<'_>,
        head: &ResponseHead<'_>,
        served_by: impl FnOnce() -> Option<String>,
    ) -> ResponseEdit {
        self.give_back(env);
        self.leave_queue(env);
        self.record.status = head.status;
        let mut edit = ResponseEdit::default();
        if matches!(self.record.cause, Some(Cause::Rejected(_))) {
            return edit;
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
            return edit;
        }
        self.record.attempts = head.attempts;
        if let Some(routed) = &self.routed {
            edit.set_headers = env.vm.session_headers(routed);
        }
        let levels = env.vm.budget_levels(&self.account.budget.asks);
        let limits = rate_limit_headers(&levels).into_iter();
        edit.set_headers.extend(limits.map(|(name, value)| (name.to_owned(), value)));
        let plain = content_encoding::foreign(head.content_encoding).is_none();
        if let Some((target, model)) = self.renamed.take().filter(|_| plain && !head.end_of_stream)
        {
            self.restorer = ModelRestorer::new(&target, &model);
            edit.changes_length = self.restorer.is_some();
        }
        let streams = is_event_stream(head.content_type);
        self.record.streamed = streams;
        if let Some(asked) = self.hides.take().filter(|_| plain && streams && !head.end_of_stream) {
            self.shaper = Some(UsageShaper::new(asked));
            edit.changes_length = true;
        }
        self.reader = Some(if self.read {
            ResponseReader::for_headers(head.status, head.content_type, head.content_encoding)
        } else {
            ResponseReader::opaque(head.status)
        });
        if head.end_of_stream {
            self.on_response_end(env, End::Clean);
        }
        edit
    }

    /// The next bytes of the response; `last`: its body is complete with them. Returns what to send instead, if that
    /// is something else.
    pub fn on_response_body(
        &mut self,
        env: &mut Env<'_>,
        slice: &[u8],
        last: bool,
    ) -> Option<Vec<u8>> {
        if self.read_response(slice) {
            self.computed(env);
        }
        self.change_response(slice, last)
    }

    /// More of the body of a response that [has begun](Self::has_begun_to_answer), and not the last of it: the same as
    /// [`on_response_body`](Self::on_response_body), but nothing comes of it for anybody else.
    pub fn on_more_response_body(&mut self, slice: &[u8]) -> Option<Vec<u8>> {
        self.read_response(slice);
        self.change_response(slice, false)
    }

    /// So many more bytes of one that has begun and is not read.
    pub fn on_more_unread_response_body(&mut self, size: usize) {
        self.count_response(size);
    }

    fn change_response(&mut self, slice: &[u8], last: bool) -> Option<Vec<u8>> {
        let mut changed = None;
        if let Some(restorer) = &mut self.restorer {
            changed =
                pass(slice, changed, last, restorer, ModelRestorer::feed, ModelRestorer::finish);
        }
        if let Some(shaper) = &mut self.shaper {
            changed = pass(slice, changed, last, shaper, UsageShaper::feed, UsageShaper::finish);
        }
        if last {
            (self.restorer, self.shaper) = (None, None);
        }
        changed
    }

    /// It was chosen to end in favour of a request of higher priority.
    pub fn on_evicted(&mut self, response_began: bool) -> Ending {
        self.record.evicted = true;
        self.record.dropped = DropReason::Evicted.header();
        if response_began {
            return Ending::Reset;
        }
        let refused = Refused::Queue { reason: DropReason::Evicted, retry_after_ms: 1000 };
        let (reply, details) = refusal_of(&refused);
        self.record.status = reply.status;
        Ending::Reply { reply, details }
    }

    /// Whether the bytes of the response's body are of interest, or only how many there are.
    #[must_use]
    pub fn reads_response(&self) -> bool {
        self.restorer.is_some()
            || self.shaper.is_some()
            || self.reader.as_ref().is_some_and(ResponseReader::reads)
    }

    /// Whether its first token (of a whole answer: its first byte) has come.
    #[must_use]
    pub fn has_begun_to_answer(&self) -> bool {
        self.record.ttft_ms.is_some()
    }

    /// So many more bytes of a response that is not read; in place of [`on_response_body`](Self::on_response_body).
    pub fn on_unread_response_body(&mut self, env: &mut Env<'_>, size: usize) {
        self.count_response(size);
        if size > 0 && self.reader.is_some() {
            self.computed(env);
        }
    }

    /// Whether the prompt is computed by now.
    fn read_response(&mut self, slice: &[u8]) -> bool {
        self.count_response(slice.len());
        let Some(reader) = &mut self.reader else { return false };
        if slice.is_empty() {
            return false;
        }
        let streams = reader.is_stream();
        // Comments (`: keep-alive`) come while the request still waits in the engine's queue.
        reader.feed(slice).first_token || !streams
    }

    fn count_response(&mut self, size: usize) {
        self.record.response_bytes = self.record.response_bytes.saturating_add(size as u64);
    }

    /// The prompt is computed. Known once, whatever comes after.
    fn computed(&mut self, env: &mut Env<'_>) {
        if self.record.ttft_ms.is_some() {
            return;
        }
        if let Some(routed) = &mut self.routed {
            env.outbox.extend(env.vm.answered(env.store, routed, env.now_ms));
        }
        self.record.ttft_ms = Some(env.now_ms.saturating_sub(self.started_ms));
    }
}
