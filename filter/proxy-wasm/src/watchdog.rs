//! Notices that Envoy never shows a body.
//!
//! Without `allow_on_headers_stop_iteration: true` Envoy turns the filter's pause at the headers into one that
//! also holds the body back: every request would hang until the client gives up. The filter cannot see the
//! setting. But if no VM of this Envoy has ever been shown a body, and a request has waited for its body
//! for seconds, that is why; it is answered with an error that says so.

use crate::host::{self, HostStore};
use log::error;
use std::collections::BTreeMap;
use warmroute_core::request::LocalReply;
use warmroute_core::vm::SharedStore;

/// How long a client may take to begin its body before the setting is suspected.
const PATIENCE_MS: u64 = 3000;

/// Requests watched at once, until the first body is seen.
const WATCHED: usize = 4096;

/// Written once any VM has been shown a body.
const KEY: &str = "warmroute.body_seen";

const ADVICE: &str = "Envoy shows no request body to the filter: set allow_on_headers_stop_iteration: true \
                      in the wasm filter's configuration (Envoy 1.35 or newer).";

/// Streams that wait for their body, and since when.
#[derive(Default)]
pub(crate) struct Watchdog {
    body_seen: bool,
    waiting: BTreeMap<u32, u64>,
}

impl Watchdog {
    /// A stream waits for its body from now on.
    pub(crate) fn watch(&mut self, context_id: u32, now_ms: u64) {
        if !self.body_seen && self.waiting.len() < WATCHED {
            self.waiting.insert(context_id, now_ms);
        }
    }

    /// It waits no longer; `body_came`, or it is over.
    pub(crate) fn forget(&mut self, context_id: u32, body_came: bool) {
        if self.body_seen {
            return;
        }
        self.waiting.remove(&context_id);
        if body_came {
            self.body_seen = true;
            self.waiting.clear();
            if HostStore.get(KEY).is_none() {
                let _ = HostStore.set(KEY, b"1", None);
            }
        }
    }

    /// Answers those that waited in vain.
    pub(crate) fn check(&mut self, now_ms: u64) {
        if self.waiting.is_empty() {
            return;
        }
        if HostStore.get(KEY).is_some() {
            self.body_seen = true;
            self.waiting.clear();
            return;
        }
        let late = |since: &u64| now_ms.saturating_sub(*since) >= PATIENCE_MS;
        let stuck: Vec<u32> =
            self.waiting.iter().filter(|(_, since)| late(since)).map(|(id, _)| *id).collect();
        for context_id in stuck {
            self.waiting.remove(&context_id);
            error!("{ADVICE}");
            if host::act_on(context_id) {
                let reply = LocalReply::misconfigured(ADVICE);
                host::reply(
                    reply.status,
                    &reply.header_pairs(),
                    &reply.body,
                    "warmroute_misconfigured",
                );
            }
        }
    }
}
