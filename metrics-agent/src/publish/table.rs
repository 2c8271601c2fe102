//! The table that the stream publishes, and the log of what changed in it.
//!
//! Endpoints that come, change or go are numbered and logged. Loads are not: a reader wants only
//! the newest of each endpoint, so a row remembers the number of its last load, and a delta picks
//! the rows with a number that the reader has not seen. That bounds the log by what operators and
//! faults do, not by the rate of scrapes.

use crate::scrape::health::Measured;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;
use warmroute_shared_state::endpoint::{EndpointId, EndpointRecord};
use warmroute_shared_state::stream::{AgentOp, PAGE_BYTES, Page, PageKind, Position};

/// Changes that the log holds at most.
pub const LOG_CHANGES: usize = 4096;
/// Bytes that the log's changes may have together.
pub const LOG_BYTES: usize = 8 << 20;

/// An operation before its age is known: that is the page's, when it is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// An endpoint exists.
    Endpoint(EndpointRecord),
    /// An endpoint is gone.
    Remove(EndpointId),
    /// The newest load of an endpoint.
    Load(EndpointId, Measured),
}

impl Operation {
    /// As it goes over the wire at `now`.
    #[must_use]
    pub fn at(&self, now: Instant) -> AgentOp {
        match self {
            Self::Endpoint(record) => AgentOp::Endpoint(record.clone()),
            Self::Remove(id) => AgentOp::Remove(*id),
            Self::Load(id, measured) => {
                let age = now.saturating_duration_since(measured.at).as_millis();
                let age_ms = u32::try_from(age).unwrap_or(u32::MAX);
                AgentOp::Load { id: *id, age_ms, load: measured.load }
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Row {
    record: EndpointRecord,
    load: Option<(u64, Measured)>,
}

#[derive(Debug)]
struct Entry {
    seq: u64,
    size: usize,
    change: Operation,
}

/// What a reader gets who asks for everything after a position.
#[derive(Debug, PartialEq)]
pub enum Delta {
    /// The reader is up to date.
    Nothing,
    /// What it missed.
    Page(Page),
    /// The log no longer reaches back so far, or the position is not one of ours.
    OutOfReach,
}

/// Endpoints and their loads, with the log.
#[derive(Debug)]
pub struct Table {
    epoch: u64,
    seq: u64,
    /// Number of the newest change that the log has lost.
    floor: u64,
    /// Number of the newest change of the log, 0 if there was none.
    last_change: u64,
    rows: BTreeMap<EndpointId, Row>,
    log: VecDeque<Entry>,
    log_bytes: usize,
}

impl Table {
    /// An empty table of a new epoch.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        Self {
            epoch,
            seq: 0,
            floor: 0,
            last_change: 0,
            rows: BTreeMap::new(),
            log: VecDeque::new(),
            log_bytes: 0,
        }
    }

    /// Where a reader stands who knows everything.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { epoch: self.epoch, seq: self.seq }
    }

    /// Endpoints and their last loads, by identity.
    pub fn rows(&self) -> impl Iterator<Item = (&EndpointRecord, Option<Measured>)> {
        self.rows.values().map(|row| (&row.record, row.load.map(|(_, measured)| measured)))
    }

    /// Adds an endpoint or replaces its fields. An endpoint that is told as it is changes nothing.
    pub fn put(&mut self, record: EndpointRecord) {
        match self.rows.get_mut(&record.id) {
            Some(row) if row.record == record => return,
            Some(row) => row.record = record.clone(),
            None => {
                self.rows.insert(record.id, Row { record: record.clone(), load: None });
            }
        }
        self.push(Operation::Endpoint(record));
    }

    /// Takes an endpoint out.
    pub fn remove(&mut self, id: EndpointId) {
        if self.rows.remove(&id).is_some() {
            self.push(Operation::Remove(id));
        }
    }

    /// Sets an endpoint's load; nothing happens if there is no such endpoint or nothing is new.
    pub fn set_load(&mut self, id: EndpointId, measured: Measured) {
        if let Some(row) = self.rows.get_mut(&id)
            && row.load.is_none_or(|(_, known)| known != measured)
        {
            self.seq = self.seq.saturating_add(1);
            row.load = Some((self.seq, measured));
        }
    }

    fn push(&mut self, change: Operation) {
        self.seq = self.seq.saturating_add(1);
        self.last_change = self.seq;
        // The age does not matter here: it has a fixed size, and changes have none.
        let size = change.at(Instant::now()).size_hint();
        self.log_bytes = self.log_bytes.saturating_add(size);
        self.log.push_back(Entry { seq: self.seq, size, change });
        while self.log.len() > LOG_CHANGES || self.log_bytes > LOG_BYTES {
            let Some(lost) = self.log.pop_front() else { break };
            self.floor = lost.seq;
            self.log_bytes = self.log_bytes.saturating_sub(lost.size);
        }
    }

    /// Whether an endpoint came, changed or went after `seq`: news that should not wait.
    #[must_use]
    pub fn changed_since(&self, seq: u64) -> bool {
        self.last_change > seq
    }

    /// Whether a reader who stands at `position` can go on by a delta.
    #[must_use]
    pub fn reaches(&self, position: Position) -> bool {
        position.epoch == self.epoch && (self.floor..=self.seq).contains(&position.seq)
    }

    /// Everything after `from`, or as much of it as a page holds.
    #[must_use]
    pub fn delta(&self, from: Position, now: Instant) -> Delta {
        if !self.reaches(from) {
            return Delta::OutOfReach;
        }
        if from.seq == self.seq {
            return Delta::Nothing;
        }
        let mut ops = Vec::new();
        let mut bytes = 0usize;
        let mut until = self.seq;
        let first = self.log.partition_point(|entry| entry.seq <= from.seq);
        for entry in self.log.iter().skip(first) {
            if bytes.saturating_add(entry.size) > PAGE_BYTES && !ops.is_empty() {
                // The rest is for the next page, and so are loads that came after it.
                until = entry.seq.saturating_sub(1);
                break;
            }
            bytes = bytes.saturating_add(entry.size);
            ops.push(entry.change.at(now));
        }
        for row in self.rows.values() {
            if let Some((seq, measured)) = row.load
                && seq > from.seq
                && seq <= until
            {
                ops.push(Operation::Load(row.record.id, measured).at(now));
            }
        }
        let position = Position { epoch: self.epoch, seq: until };
        Delta::Page(Page { position, kind: PageKind::Delta { from_seq: from.seq }, ops })
    }

    /// Everything there is, endpoint by endpoint, each followed by its load.
    #[must_use]
    pub fn everything(&self) -> Vec<Operation> {
        let mut all = Vec::with_capacity(self.rows.len().saturating_mul(2));
        for row in self.rows.values() {
            all.push(Operation::Endpoint(row.record.clone()));
            if let Some((_, measured)) = row.load {
                all.push(Operation::Load(row.record.id, measured));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
