//! From the engine to its publisher: numbers batches, and never makes the engine wait.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::batch::Event;
use super::evictions::{Evictions, Lack};
use super::faults::{EventFaults, Fate};
use crate::engine::blocks::BlockHash;
use crate::replica::{lock, unix_now};

/// Batches that wait to be published, as in vLLM (`max_queue_size`).
pub const QUEUE: usize = 100_000;

/// A batch on its way.
pub(super) struct Emission {
    pub(super) seq: u64,
    /// Unix time in seconds.
    pub(super) at: f64,
    /// When it is to be sent.
    pub(super) due: Instant,
    pub(super) fate: Fate,
    pub(super) events: Vec<Event>,
}

struct Numbered {
    next: u64,
    faults: EventFaults,
    evictions: Evictions,
    delay: Duration,
    to: mpsc::Sender<Emission>,
}

/// One engine process's way to its publisher. Sequence numbers start at 0 with each new line.
#[derive(Clone)]
pub struct Line(Arc<Mutex<Numbered>>);

impl Line {
    /// `delay`: how much later than it happened a batch is sent.
    pub(super) fn new(delay: Duration) -> (Self, mpsc::Receiver<Emission>) {
        let (to, from) = mpsc::channel(QUEUE);
        let numbered = Numbered {
            next: 0,
            faults: EventFaults::default(),
            evictions: Evictions::default(),
            delay,
            to,
        };
        (Self(Arc::new(Mutex::new(numbered))), from)
    }

    /// Hands over what one step did. Where the queue is full the batch is lost, its number too.
    pub fn publish(&self, events: Vec<Event>) {
        let mut numbered = lock(&self.0);
        let seq = numbered.next;
        numbered.next += 1;
        let fate = numbered.faults.take();
        let made = Instant::now();
        let due = made + numbered.delay;
        numbered.evictions.publish(due);
        let emission = Emission { seq, at: unix_now(), due, fate, events };
        // A publisher that was closed has no listeners either.
        let _ = numbered.to.try_send(emission);
    }

    /// Remembers what the engine evicted, before the step that did it ends.
    pub(super) fn removed(&self, hash: BlockHash) {
        lock(&self.0).evictions.removed(hash);
    }

    /// Forgets the eviction of what is held again.
    pub(super) fn stored(&self, hashes: &[BlockHash]) {
        lock(&self.0).evictions.stored(hashes);
    }

    /// Why a block that is not held is not.
    pub fn lack(&self, hash: BlockHash) -> Lack {
        lock(&self.0).evictions.lack(hash, Instant::now())
    }

    /// Batches numbered so far.
    pub fn published(&self) -> u64 {
        lock(&self.0).next
    }

    /// Faults in force.
    pub fn faults(&self) -> EventFaults {
        lock(&self.0).faults
    }

    /// Changes the faults in force.
    pub fn set_faults(&self, change: impl FnOnce(&mut EventFaults)) {
        change(&mut lock(&self.0).faults);
    }
}

/// The latest batches as they were encoded, for replay.
#[derive(Debug)]
pub(super) struct Kept {
    batches: VecDeque<(u64, Bytes)>,
    limit: usize,
}

impl Kept {
    pub(super) fn new(limit: usize) -> Self {
        Self { batches: VecDeque::new(), limit }
    }

    pub(super) fn push(&mut self, seq: u64, payload: Bytes) {
        self.batches.push_back((seq, payload));
        while self.batches.len() > self.limit {
            self.batches.pop_front();
        }
    }

    /// Batches from number `start` on.
    pub(super) fn since(&self, start: u64) -> Vec<(u64, Bytes)> {
        let from = self.batches.partition_point(|(seq, _)| *seq < start);
        self.batches.range(from..).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_whatever_becomes_of_a_batch() {
        let (line, mut from) = Line::new(Duration::ZERO);
        line.set_faults(|faults| (faults.drop, faults.lose) = (1, 2));
        for _ in 0..5 {
            line.publish(vec![Event::Cleared]);
        }
        let mut seen = Vec::new();
        while let Ok(emission) = from.try_recv() {
            seen.push((emission.seq, emission.fate));
        }
        assert_eq!(
            seen,
            [
                (0, Fate::Dropped),
                (1, Fate::Lost),
                (2, Fate::Lost),
                (3, Fate::Sent),
                (4, Fate::Sent)
            ]
        );
        assert_eq!((line.published(), line.faults()), (5, EventFaults::default()));
    }

    #[test]
    fn a_replay_begins_where_asked_or_where_the_buffer_does() {
        let mut kept = Kept::new(3);
        for seq in [0, 1, 2, 4, 5] {
            kept.push(seq, Bytes::new());
        }
        let since = |start| kept.since(start).iter().map(|(seq, _)| *seq).collect::<Vec<_>>();
        assert_eq!(since(0), [2, 4, 5]);
        assert_eq!(since(3), [4, 5]);
        assert_eq!(since(6), [] as [u64; 0]);
    }
}
