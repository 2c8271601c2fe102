//! The response's way back: who served it, its first token, its usage, and the client's name of the model in it.

use super::{Cause, Env, Exchange};
use crate::response::model_name::ModelRestorer;
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
        self.phase = super::Phase::Decided;
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
        if let Some(routed) = &self.routed {
            edit.set_headers = env.vm.session_headers(routed);
        }
        let plain =
            head.content_encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"identity"));
        if let Some((target, model)) = self.renamed.take().filter(|_| plain && !head.end_of_stream)
        {
            self.restorer = ModelRestorer::new(&target, &model);
            edit.changes_length = self.restorer.is_some();
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
        self.read_response(env, slice);
        let restorer = self.restorer.as_mut()?;
        let restored = restorer.feed(slice);
        if !last {
            return restored;
        }
        let held = self.restorer.take().map(|mut restorer| restorer.finish()).unwrap_or_default();
        if held.is_empty() {
            return restored;
        }
        let mut all = restored.unwrap_or_else(|| slice.to_vec());
        all.extend(held);
        Some(all)
    }

    fn read_response(&mut self, env: &mut Env<'_>, slice: &[u8]) {
        self.record.response_bytes = self.record.response_bytes.saturating_add(slice.len() as u64);
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
}
