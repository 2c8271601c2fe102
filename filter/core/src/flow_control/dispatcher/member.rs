//! A worker as the dispatcher knows it.

use super::gate::Held;
use crate::flow_control::protocol::{HeldTicket, ParkedTicket, Request};
use crate::quota::Level;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Without a sign of life for so long, a worker is gone.
const SILENCE_MS: u64 = 1500;

/// An announcement that has not come by then is asked for again.
const ASK_AGAIN_MS: u64 = 200;

/// Tickets that one worker may announce: more would not be a worker of this version.
const MAX_TICKETS: usize = 200_000;

/// What an announcement said so far.
#[derive(Debug, Default)]
pub(super) struct Announcement {
    pub(super) held: Vec<HeldTicket>,
    pub(super) parked: Vec<ParkedTicket>,
    pub(super) levels: Vec<(Level, u64)>,
}

/// An announcement that was asked for.
#[derive(Debug)]
struct Asked {
    nonce: u64,
    at_ms: u64,
    said: Announcement,
}

/// One worker.
#[derive(Debug, Default)]
pub(super) struct Member {
    heard_ms: u64,
    /// Number of its last message.
    received: u64,
    /// Number of the last message to it, and what that was at its last heartbeat.
    sent: u64,
    sent_before: u64,
    asked: Option<Asked>,
    /// It has announced itself to this dispatcher at least once.
    pub(super) known: bool,
    pub(super) held: BTreeMap<u64, Held>,
    /// In its pool's queue.
    pub(super) waiting: BTreeMap<u64, Rc<Request>>,
    /// Out of the queue until it announces what it has. Their budgets stay taken.
    pub(super) suspended: BTreeMap<u64, Rc<Request>>,
}

impl Member {
    pub(super) fn new(now_ms: u64) -> Self {
        Self { heard_ms: now_ms, ..Self::default() }
    }

    /// It said something. Whether a message before this one is missing.
    pub(super) fn heard(&mut self, sequence: u64, now_ms: u64) -> bool {
        self.heard_ms = self.heard_ms.max(now_ms);
        let gap = sequence != self.received.wrapping_add(1);
        self.received = sequence;
        gap
    }

    /// It has heard the dispatcher up to this number. Whether messages to it are missing: those that had been sent by
    /// its last heartbeat must have come.
    pub(super) fn has_received(&mut self, received: u64) -> bool {
        let missing = received < self.sent_before;
        self.sent_before = self.sent;
        missing
    }

    /// The number of the next message to it.
    pub(super) fn next_sequence(&mut self) -> u64 {
        self.sent = self.sent.wrapping_add(1);
        self.sent
    }

    /// The dispatcher itself stood still for so long: nobody can be blamed.
    pub(super) fn forgive(&mut self, ms: u64) {
        self.heard_ms = self.heard_ms.saturating_add(ms);
    }

    /// The clock was set back: no moment before lies in the future.
    pub(super) fn not_heard_after(&mut self, now_ms: u64) {
        self.heard_ms = self.heard_ms.min(now_ms);
    }

    pub(super) fn is_silent(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.heard_ms) >= SILENCE_MS
    }

    /// What it has is not known at present.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// It was asked too long ago.
    pub(super) fn is_late(&self, now_ms: u64) -> bool {
        let late = |asked: &Asked| now_ms.abs_diff(asked.at_ms) >= ASK_AGAIN_MS;
        self.asked.as_ref().is_some_and(late)
    }

    pub(super) fn ask(&mut self, nonce: u64, now_ms: u64) {
        self.sent_before = 0;
        self.asked = Some(Asked { nonce, at_ms: now_ms, said: Announcement::default() });
    }

    /// A part of an announcement; returns it once it is whole.
    pub(super) fn announced(
        &mut self,
        nonce: u64,
        part: Announcement,
        last: bool,
    ) -> Option<Announcement> {
        let asked = self.asked.as_mut().filter(|asked| asked.nonce == nonce)?;
        let said = &mut asked.said;
        said.held.extend(part.held);
        said.parked.extend(part.parked);
        said.levels.extend(part.levels);
        said.held.truncate(MAX_TICKETS);
        said.parked.truncate(MAX_TICKETS);
        said.levels.truncate(MAX_TICKETS);
        if !last {
            return None;
        }
        self.asked.take().map(|asked| asked.said)
    }
}
