//! Records that wait in a VM, and the batch that is under way.

use super::backoff::Backoff;
use std::collections::VecDeque;
use warmroute_shared_state::usage_record::UsageRecord;
use warmroute_shared_state::usage_record::batch::{
    BatchHead, BatchWriter, MAX_BATCH_BYTES, MAX_BATCH_RECORDS,
};

/// Records that wait at most.
const MAX_RECORDS: usize = 16_384;
/// Bytes that they may have.
const MAX_BYTES: usize = 8 << 20;
/// A record waits this long for others, in ms.
const LINGER_MS: u64 = 200;
/// So many records do not wait for others.
const FULL_RECORDS: usize = 512;
/// A batch that nobody answers counts as failed after this, in ms: a root context that goes away takes
/// its calls with it.
const ANSWER_MS: u64 = 10_000;

/// Names a batch under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(u64);

impl Token {
    /// Number of the batch, as the agent's answer has it.
    #[must_use]
    pub fn seq(self) -> u64 {
        self.0
    }
}

/// What an outbox can tell of itself; counts are since the VM's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutboxCounts {
    /// Records that wait or are under way.
    pub waiting: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Records that the agent has.
    pub delivered: u64,
    /// Records that there was no more room for: the oldest go first.
    pub dropped: u64,
    /// Batches that failed.
    pub failed: u64,
}

#[derive(Debug)]
struct Waiting {
    record: Box<[u8]>,
    since_ms: u64,
}

#[derive(Debug)]
struct UnderWay {
    token: Token,
    /// How many of the oldest records it holds that still wait here.
    records: usize,
    since_ms: u64,
}

/// A VM's records until the agent has them. One batch is under way at a time.
#[derive(Debug)]
pub struct Outbox {
    incarnation: u64,
    waiting: VecDeque<Waiting>,
    under_way: Option<UnderWay>,
    last_seq: u64,
    last_number: u64,
    backoff: Backoff,
    counts: OutboxCounts,
}

impl Outbox {
    /// Nothing waits. `incarnation` is no other VM's, now or later.
    #[must_use]
    pub fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            waiting: VecDeque::new(),
            under_way: None,
            last_seq: 0,
            last_number: 0,
            backoff: Backoff::default(),
            counts: OutboxCounts::default(),
        }
    }

    /// An id for the next record: no two have the same.
    pub fn next_id(&mut self) -> (u64, u64) {
        self.last_number = self.last_number.saturating_add(1);
        (self.incarnation, self.last_number)
    }

    /// Takes a record. When there is no room the oldest go, and are counted.
    pub fn push(&mut self, record: &UsageRecord, now_ms: u64) {
        let record = record.encode().into_boxed_slice();
        self.counts.bytes = self.counts.bytes.saturating_add(record.len());
        self.waiting.push_back(Waiting { record, since_ms: now_ms });
        while self.waiting.len() > MAX_RECORDS || self.counts.bytes > MAX_BYTES {
            if !self.remove_oldest() {
                break;
            }
            self.counts.dropped = self.counts.dropped.saturating_add(1);
            // It may be stored all the same, when it is under way; it is not waited for any more.
            if let Some(under_way) = &mut self.under_way {
                under_way.records = under_way.records.saturating_sub(1);
            }
        }
    }

    /// A batch to send now as the body of `POST /v1/records`; `None` if none is due. Tell how it went by
    /// [`acknowledged`](Self::acknowledged) or [`failed`](Self::failed).
    pub fn next_batch(&mut self, now_ms: u64) -> Option<(Token, Vec<u8>)> {
        if let Some(under_way) = &self.under_way {
            if now_ms.saturating_sub(under_way.since_ms) < ANSWER_MS {
                return None;
            }
            let token = under_way.token;
            self.failed(token, now_ms);
        }
        if !self.is_due(now_ms) || !self.backoff.may_try(now_ms) {
            return None;
        }
        self.send(now_ms)
    }

    /// The agent answered 200 with the batch's number: its records are stored. What a batch that is not
    /// under way any more is told is ignored.
    pub fn acknowledged(&mut self, token: Token) {
        let Some(under_way) = self.under_way.take_if(|under_way| under_way.token == token) else {
            return;
        };
        for _ in 0..under_way.records {
            if self.remove_oldest() {
                self.counts.delivered = self.counts.delivered.saturating_add(1);
            }
        }
        self.backoff.succeeded();
    }

    /// No answer, or another one: the records stay, and go again later, perhaps in other company.
    pub fn failed(&mut self, token: Token, now_ms: u64) {
        if self.under_way.take_if(|under_way| under_way.token == token).is_some() {
            self.counts.failed = self.counts.failed.saturating_add(1);
            self.backoff.failed(now_ms, self.incarnation);
        }
    }

    /// Whether the agent has all of them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Figures for the VM's stats.
    #[must_use]
    pub fn counts(&self) -> OutboxCounts {
        OutboxCounts { waiting: self.waiting.len(), ..self.counts }
    }

    fn is_due(&self, now_ms: u64) -> bool {
        let Some(oldest) = self.waiting.front() else { return false };
        self.waiting.len() >= FULL_RECORDS
            || self.counts.bytes >= MAX_BATCH_BYTES / 4
            || now_ms.saturating_sub(oldest.since_ms) >= LINGER_MS
            // The clock was set back.
            || now_ms < oldest.since_ms
    }

    fn send(&mut self, now_ms: u64) -> Option<(Token, Vec<u8>)> {
        self.last_seq = self.last_seq.saturating_add(1);
        let seq = self.last_seq;
        let mut writer = BatchWriter::new(BatchHead { incarnation: self.incarnation, seq });
        for waiting in self.waiting.iter().take(MAX_BATCH_RECORDS) {
            if !writer.push(&waiting.record) {
                break;
            }
        }
        if writer.is_empty() {
            return None;
        }
        let token = Token(seq);
        self.under_way = Some(UnderWay { token, records: writer.len(), since_ms: now_ms });
        Some((token, writer.seal()))
    }

    fn remove_oldest(&mut self) -> bool {
        let Some(oldest) = self.waiting.pop_front() else { return false };
        self.counts.bytes = self.counts.bytes.saturating_sub(oldest.record.len());
        true
    }
}
