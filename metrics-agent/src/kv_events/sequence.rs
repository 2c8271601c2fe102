//! What becomes of numbered batches: which are applied, when a replay is asked for, and when all
//! that is held of a publisher is void.
//!
//! Publishers number their batches from 0 and keep the newest for replays, but they say neither
//! who they are nor when they started: a restarted engine begins at 0 again, and may have passed
//! our number before we hear of it. So a replay begins one batch *before* the first that is
//! missing, and only if that one is the very batch that was applied (it carries its time) does
//! what follows continue ours.
//!
//! No sockets and no clock: [`Sequence`] is told what happened and answers with [`Effect`]s.

use bytes::Bytes;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// A replay that is silent for so long has failed.
pub const REPLAY_IDLE: Duration = Duration::from_secs(2);
/// A replay that takes longer has failed.
pub const REPLAY_TOTAL: Duration = Duration::from_secs(30);
/// Replays of one recovery at most: a publisher that keeps 10,000 batches may drop all after the
/// first 1,000 of each answer.
const ROUNDS: u32 = 16;
/// Live batches that wait for the end of a replay at most.
const WAITING_BATCHES: usize = 4096;
/// Bytes that they may have together.
const WAITING_BYTES: usize = 8 << 20;

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// This payload is the next.
    Apply(Bytes),
    /// Ask for the batches from this number on; an earlier replay is abandoned.
    AskReplay {
        /// The first number.
        from: u64,
    },
    /// Everything held of this publisher is void; what is applied next begins cold.
    Void {
        /// Why.
        cause: Cause,
        /// Whether what is applied next is surely of the same process as what was: then the
        /// names of its blocks still mean what they meant.
        same_engine: bool,
    },
    /// Something to count.
    Count(Note),
}

/// Why everything became void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The engine started anew.
    Restarted,
    /// Batches are missing, and the publisher offers no replay.
    Gap,
    /// There was a new connection, and without replays nothing shows that nothing was missed.
    Reconnected,
    /// The publisher no longer had what was missing.
    ReplayTooLate,
    /// Batches were missing inside the replay, twice.
    ReplayHole,
    /// There was no replay, or it did not end in time, twice.
    ReplayFailed,
}

/// What happened that changes nothing by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Note {
    /// A live batch came too early.
    Gap,
    /// A batch came again and was dropped.
    Duplicate,
    /// More live batches came during a replay than can wait; they are asked for again.
    Overflow,
    /// A replay ended well.
    Replayed,
    /// A replay ended badly and is tried again.
    Retried,
}

#[derive(Debug)]
struct Replay {
    /// The first number asked for.
    from: u64,
    /// Fingerprint that the batch `from` must have before anything else counts.
    proof: Option<u64>,
    /// Whether this replay brought anything.
    progress: bool,
    began: Instant,
    heard: Instant,
}

/// State of one publisher.
#[derive(Debug)]
pub struct Sequence {
    /// Whether there is somebody to ask for replays.
    replays: bool,
    /// Number that continues what was applied; `None` if any number may begin.
    next: Option<u64>,
    /// Fingerprint of the batch before `next`, if it was applied.
    last: Option<u64>,
    /// Whether what was applied is surely of the engine that is connected.
    same_engine: bool,
    /// Whether names of before a void may be known, of the same engine as what was applied since.
    named: bool,
    /// Newest live number of this connection.
    last_live: Option<u64>,
    replay: Option<Replay>,
    /// Replays since the sequence was last whole, and those of them in a row that brought nothing.
    rounds: u32,
    fruitless: u32,
    waiting: VecDeque<(u64, Bytes)>,
    waiting_bytes: usize,
}

impl Sequence {
    /// Nothing heard yet. `replays`: whether the publisher offers them.
    #[must_use]
    pub fn new(replays: bool) -> Self {
        Self {
            replays,
            next: None,
            last: None,
            same_engine: false,
            named: false,
            last_live: None,
            replay: None,
            rounds: 0,
            fruitless: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// Whether nothing is known to be missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.replay.is_none()
    }

    /// When [`Self::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let replay = self.replay.as_ref()?;
        Some((replay.heard + REPLAY_IDLE).min(replay.began + REPLAY_TOTAL))
    }

    /// There is a new connection; nothing of the old one comes any more.
    pub fn connected(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.disconnected();
        // Until something shows that it is: a batch that is known, or one without anything before it.
        self.same_engine = false;
        if !self.replays || self.last.is_none() {
            self.void(Cause::Reconnected, out);
        }
        if self.replays {
            self.ask(now, out);
        }
    }

    /// The connection is gone.
    pub fn disconnected(&mut self) {
        self.last_live = None;
        self.settle();
        self.forget_waiting();
    }

    /// A batch came from the live stream.
    pub fn live(&mut self, seq: u64, payload: Bytes, now: Instant, out: &mut Vec<Effect>) {
        match self.last_live {
            Some(last) if seq == last => return out.push(Effect::Count(Note::Duplicate)),
            Some(last) if seq < last => self.restarted(now, out),
            _ => {}
        }
        self.last_live = Some(seq);
        if self.replay.is_none() {
            return self.in_order(seq, payload, now, out);
        }
        if self.waiting.len() >= WAITING_BATCHES
            || self.waiting_bytes.saturating_add(payload.len()) > WAITING_BYTES
        {
            self.forget_waiting();
            out.push(Effect::Count(Note::Overflow));
        }
        self.waiting_bytes = self.waiting_bytes.saturating_add(payload.len());
        self.waiting.push_back((seq, payload));
    }

    /// A batch came with the replay that was asked for last.
    pub fn replayed(&mut self, seq: u64, payload: Bytes, now: Instant, out: &mut Vec<Effect>) {
        let Some(replay) = &mut self.replay else { return };
        replay.heard = now;
        if let Some(proof) = replay.proof {
            if seq < replay.from {
                return out.push(Effect::Count(Note::Duplicate));
            }
            if seq == replay.from {
                replay.proof = None;
                if xxh3_64(&payload) == proof {
                    self.same_engine = true;
                } else {
                    self.restarted(now, out);
                }
                return;
            }
            replay.proof = None;
            self.void(Cause::ReplayTooLate, out);
        }
        match self.next {
            Some(next) if seq < next => out.push(Effect::Count(Note::Duplicate)),
            // Where nothing is held, nothing is missed by starting late.
            Some(next) if seq > next && self.last.is_some() => {
                if self.may_retry() {
                    out.push(Effect::Count(Note::Retried));
                    self.ask(now, out);
                } else {
                    self.void(Cause::ReplayHole, out);
                    self.brought(seq, payload, out);
                }
            }
            _ => self.brought(seq, payload, out),
        }
    }

    /// The replay came to its end.
    pub fn replay_ended(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let Some(replay) = &self.replay else { return };
        if replay.proof.is_some() {
            // It has not even the batch that we know: a younger engine.
            return self.restarted(now, out);
        }
        self.note_progress();
        out.push(Effect::Count(Note::Replayed));
        // After the replay of a publisher that has told nothing yet, its first batch is number 0.
        self.next = self.next.or(Some(0));
        self.replay = None;
        if self.waiting.is_empty() {
            self.settle();
        }
        self.drain(now, out);
    }

    /// The replay cannot be had, or broke off.
    pub fn replay_failed(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.replay.is_none() {
            return;
        }
        if self.may_retry() {
            out.push(Effect::Count(Note::Retried));
            return self.ask(now, out);
        }
        self.void(Cause::ReplayFailed, out);
        self.settle();
        self.drain(now, out);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.replay_failed(now, out);
        }
    }

    /// The replay brought the next batch.
    fn brought(&mut self, seq: u64, payload: Bytes, out: &mut Vec<Effect>) {
        if let Some(replay) = &mut self.replay {
            replay.progress = true;
        }
        self.apply(seq, payload, out);
    }

    /// A live batch while no replay is under way.
    fn in_order(&mut self, seq: u64, payload: Bytes, now: Instant, out: &mut Vec<Effect>) {
        match self.next {
            Some(next) if seq < next => out.push(Effect::Count(Note::Duplicate)),
            Some(next) if seq > next => {
                out.push(Effect::Count(Note::Gap));
                if self.replays && self.may_retry() {
                    self.waiting_bytes = self.waiting_bytes.saturating_add(payload.len());
                    self.waiting.push_front((seq, payload));
                    self.ask(now, out);
                } else {
                    let cause = if self.replays { Cause::ReplayTooLate } else { Cause::Gap };
                    self.void(cause, out);
                    self.settle();
                    self.apply(seq, payload, out);
                }
            }
            _ => {
                self.settle();
                self.apply(seq, payload, out);
            }
        }
    }

    /// Live batches that waited for the replay, until one is missing again.
    fn drain(&mut self, now: Instant, out: &mut Vec<Effect>) {
        while self.replay.is_none() {
            let Some((seq, payload)) = self.waiting.pop_front() else { break };
            self.waiting_bytes = self.waiting_bytes.saturating_sub(payload.len());
            self.in_order(seq, payload, now, out);
        }
    }

    /// The engine is another than the one whose batches were applied.
    fn restarted(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.same_engine = false;
        self.void(Cause::Restarted, out);
        // What waited may be the old engine's.
        self.forget_waiting();
        self.settle();
        if self.replays {
            self.ask(now, out);
        }
    }

    fn ask(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.rounds = self.rounds.saturating_add(1);
        self.fruitless = self.fruitless.saturating_add(1);
        let next = self.next.unwrap_or(0);
        let from = if self.last.is_some() { next.saturating_sub(1) } else { next };
        let (began, heard) = (now, now);
        self.replay = Some(Replay { from, proof: self.last, progress: false, began, heard });
        out.push(Effect::AskReplay { from });
    }

    /// Whether one more replay may help: the first without fruit is tried again.
    fn may_retry(&mut self) -> bool {
        self.note_progress();
        self.fruitless < 2 && self.rounds < ROUNDS
    }

    fn note_progress(&mut self) {
        if self.replay.as_ref().is_some_and(|replay| replay.progress) {
            self.fruitless = 0;
        }
    }

    /// The sequence is whole, or given up and begun anew.
    fn settle(&mut self) {
        self.replay = None;
        self.rounds = 0;
        self.fruitless = 0;
    }

    fn apply(&mut self, seq: u64, payload: Bytes, out: &mut Vec<Effect>) {
        self.next = Some(seq.saturating_add(1));
        self.last = Some(xxh3_64(&payload));
        self.same_engine = true;
        out.push(Effect::Apply(payload));
    }

    fn void(&mut self, cause: Cause, out: &mut Vec<Effect>) {
        let same_engine = self.same_engine;
        let held = self.last.take().is_some();
        if held || self.named && !same_engine {
            out.push(Effect::Void { cause, same_engine });
        }
        self.named = same_engine && (held || self.named);
        self.next = None;
    }

    fn forget_waiting(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }
}

#[cfg(test)]
mod tests;
