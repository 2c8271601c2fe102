//! The table that the stream publishes, and the log of what changed in it.
//!
//! Endpoints and models that come, change or go, and what precise endpoints store and evict, are
//! numbered and logged. Loads and slow signals are not: a reader wants only
//! the newest of each endpoint, so a row remembers the numbers of its last ones, and a delta picks
//! the rows with a number that the reader has not seen: the log is not filled by scrapes.

use super::held::{BLOCKS_PER_OPERATION, Following, Held, Period, effective};
use crate::scrape::health::Measured;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use warmroute_shared_state::block::{Block, Tier};
use warmroute_shared_state::endpoint::{EndpointId, EndpointRecord};
use warmroute_shared_state::model::ModelRecord;
use warmroute_shared_state::signals::Signals;
use warmroute_shared_state::stream::{AgentOp, PAGE_BYTES, Page, PageKind, Position};

/// Changes that the log holds at most.
pub const LOG_CHANGES: usize = 1 << 16;
/// Bytes that the log's changes may have together.
pub const LOG_BYTES: usize = 16 << 20;

/// An operation of a snapshot. A load's age is that of the moment its page is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// The newest load of an endpoint.
    Load(EndpointId, Measured),
    /// Anything else, as the stream tells it.
    Told(AgentOp),
}

impl Operation {
    /// As it goes over the wire at `now`.
    #[must_use]
    pub fn at(&self, now: Instant) -> AgentOp {
        match self {
            Self::Load(id, measured) => load_op(*id, *measured, now),
            Self::Told(op) => op.clone(),
        }
    }
}

fn load_op(id: EndpointId, measured: Measured, now: Instant) -> AgentOp {
    let age = now.saturating_duration_since(measured.at).as_millis();
    let age_ms = u32::try_from(age).unwrap_or(u32::MAX);
    AgentOp::Load { id, age_ms, load: measured.load }
}

#[derive(Debug, Clone)]
struct Row {
    record: EndpointRecord,
    load: Option<(u64, Measured)>,
    signals: (u64, Arc<Signals>),
}

#[derive(Debug)]
struct Entry {
    seq: u64,
    size: usize,
    change: AgentOp,
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
    /// What precise endpoints hold, also of those that are not announced yet.
    held: BTreeMap<EndpointId, Held>,
    periods: u64,
    models: BTreeMap<String, Arc<ModelRecord>>,
    policy: Option<Arc<[u8]>>,
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
            held: BTreeMap::new(),
            periods: 0,
            models: BTreeMap::new(),
            policy: None,
            log: VecDeque::new(),
            log_bytes: 0,
        }
    }

    /// Where a reader stands who knows everything.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { epoch: self.epoch, seq: self.seq }
    }

    /// Endpoints as the stream tells them and their last loads, by identity.
    pub fn rows(&self) -> impl Iterator<Item = (EndpointRecord, Option<Measured>)> {
        self.rows.values().map(|row| {
            let held = self.held.get(&row.record.id);
            (effective(&row.record, held), row.load.map(|(_, measured)| measured))
        })
    }

    /// Adds an endpoint or replaces its fields. An endpoint that is told as it is changes nothing. With another
    /// generation than before, what it held is forgotten until a new period begins.
    pub fn put(&mut self, record: EndpointRecord) {
        let id = record.id;
        let fresh = match self.rows.get_mut(&id) {
            Some(row) if row.record == record => return,
            Some(row) => {
                if row.record.generation != record.generation {
                    self.held.remove(&id);
                }
                row.record = record;
                false
            }
            None => {
                self.rows.insert(id, Row { record, load: None, signals: (0, Arc::default()) });
                true
            }
        };
        self.tell_endpoint(id);
        if fresh {
            let held = self.held.get(&id).map(|held| held.operations(id)).unwrap_or_default();
            held.into_iter().for_each(|operation| self.push(operation));
        }
    }

    fn tell_endpoint(&mut self, id: EndpointId) {
        if let Some(row) = self.rows.get(&id) {
            let told = effective(&row.record, self.held.get(&id));
            self.push(AgentOp::Endpoint(told));
        }
    }

    /// Takes an endpoint out, with what it held.
    pub fn remove(&mut self, id: EndpointId) {
        self.held.remove(&id);
        if self.rows.remove(&id).is_some() {
            self.push(AgentOp::Remove(id));
        }
    }

    /// From now on the endpoint's events are followed like this, and all that was told of it before is void.
    /// The endpoint need not be announced yet.
    pub fn begin(&mut self, id: EndpointId, following: Following) -> Period {
        self.periods = self.periods.saturating_add(1);
        let period = Period(self.periods);
        self.held.insert(id, Held::new(period, following));
        self.tell_endpoint(id);
        period
    }

    /// As [`begin`](Self::begin), but what the endpoint was told to hold in `period` stays, and is told again.
    pub fn resume(&mut self, id: EndpointId, period: Period, following: Following) -> Period {
        let before = self.held.remove(&id).filter(|held| held.period == period);
        let period = self.begin(id, following);
        if let Some(before) = before {
            let held = before.resumed(period, following);
            if self.rows.contains_key(&id) {
                held.operations(id).into_iter().for_each(|operation| self.push(operation));
            }
            self.held.insert(id, held);
        }
        period
    }

    /// The endpoint's events are not followed any more, and all that was told of it is void.
    pub fn end(&mut self, id: EndpointId) {
        if self.held.remove(&id).is_some() {
            self.tell_endpoint(id);
        }
    }

    /// The endpoint told in this period that it holds these blocks.
    pub fn store(
        &mut self,
        id: EndpointId,
        period: Period,
        tier: Tier,
        at_ms: u64,
        blocks: &[Block],
    ) {
        let Some(held) = self.held.get_mut(&id).filter(|held| held.period == period) else {
            return;
        };
        held.store(tier, blocks);
        if self.rows.contains_key(&id) {
            for blocks in blocks.chunks(BLOCKS_PER_OPERATION) {
                self.push(AgentOp::Store { id, tier, at_ms, blocks: blocks.into() });
            }
        }
    }

    /// The endpoint told in this period that these blocks are gone.
    pub fn evict(
        &mut self,
        id: EndpointId,
        period: Period,
        tier: Tier,
        at_ms: u64,
        hashes: &[u64],
    ) {
        let Some(held) = self.held.get_mut(&id).filter(|held| held.period == period) else {
            return;
        };
        held.evict(tier, hashes);
        if self.rows.contains_key(&id) {
            for hashes in hashes.chunks(BLOCKS_PER_OPERATION) {
                self.push(AgentOp::Evict { id, tier, at_ms, hashes: hashes.into() });
            }
        }
    }

    /// Whether the endpoint is followed without a gap, and how many blocks its device holds.
    #[must_use]
    pub fn held(&self, id: EndpointId) -> (bool, usize) {
        self.held.get(&id).map_or((false, 0), |held| (held.is_precise(), held.len()))
    }

    /// These models exist, and no others.
    pub fn set_models(&mut self, models: Vec<ModelRecord>) {
        let mut before = std::mem::take(&mut self.models);
        for model in models {
            let name = model.name.clone();
            let model = Arc::new(model);
            if before.remove(&name).as_ref() != Some(&model) {
                self.push(AgentOp::Model(Arc::clone(&model)));
            }
            self.models.insert(name, model);
        }
        for name in before.into_keys() {
            self.push(AgentOp::RemoveModel(name));
        }
    }

    /// The compiled configuration, as JSON.
    pub fn set_policy(&mut self, json: &[u8]) {
        if self.policy.as_deref() != Some(json) {
            let json: Arc<[u8]> = json.into();
            self.policy = Some(Arc::clone(&json));
            self.push(AgentOp::Policy(json));
        }
    }

    /// Sets an endpoint's slow signals; nothing happens if there is no such endpoint or nothing is new.
    pub fn set_signals(&mut self, id: EndpointId, signals: &Arc<Signals>) {
        if let Some(row) = self.rows.get_mut(&id)
            && row.signals.1 != *signals
        {
            self.seq = self.seq.saturating_add(1);
            row.signals = (self.seq, Arc::clone(signals));
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

    fn push(&mut self, change: AgentOp) {
        self.seq = self.seq.saturating_add(1);
        self.last_change = self.seq;
        let size = change.size_hint();
        // Room first, so that the full log's memory is not doubled for one more.
        while self.log.len() >= LOG_CHANGES || self.log_bytes.saturating_add(size) > LOG_BYTES {
            let Some(lost) = self.log.pop_front() else { break };
            self.floor = lost.seq;
            self.log_bytes = self.log_bytes.saturating_sub(lost.size);
        }
        self.log_bytes = self.log_bytes.saturating_add(size);
        self.log.push_back(Entry { seq: self.seq, size, change });
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
        for (seq, size, change) in self.changes_after(from.seq) {
            if bytes.saturating_add(size) > PAGE_BYTES && !ops.is_empty() {
                // The rest is for the next page, and so are loads that came after it.
                until = seq.saturating_sub(1);
                break;
            }
            bytes = bytes.saturating_add(size);
            ops.push(change);
        }
        for row in self.rows.values() {
            if let Some((seq, measured)) = row.load
                && seq > from.seq
                && seq <= until
            {
                ops.push(load_op(row.record.id, measured, now));
            }
        }
        let position = Position { epoch: self.epoch, seq: until };
        Delta::Page(Page { position, kind: PageKind::Delta { from_seq: from.seq }, ops })
    }

    /// Logged changes and newest signals after `seq`, by number, each with its size.
    fn changes_after(&self, seq: u64) -> impl Iterator<Item = (u64, usize, AgentOp)> {
        let mut signals: Vec<_> = self
            .rows
            .values()
            .filter(|row| row.signals.0 > seq)
            .map(|row| (row.signals.0, row.record.id, &row.signals.1))
            .collect();
        signals.sort_unstable_by_key(|(seq, ..)| *seq);
        let mut signals = signals.into_iter().peekable();
        let first = self.log.partition_point(|entry| entry.seq <= seq);
        let mut logged = self.log.range(first..).peekable();
        core::iter::from_fn(move || {
            let next = logged.peek().map_or(u64::MAX, |entry| entry.seq);
            if let Some((seq, id, signals)) = signals.next_if(|(seq, ..)| *seq < next) {
                let change = AgentOp::Signals { id, signals: Arc::clone(signals) };
                return Some((seq, change.size_hint(), change));
            }
            logged.next().map(|entry| (entry.seq, entry.size, entry.change.clone()))
        })
    }

    /// Everything there is: models, then endpoint by endpoint, each followed by its load and its blocks.
    #[must_use]
    pub fn everything(&self) -> Vec<Operation> {
        let mut all = Vec::with_capacity(self.rows.len().saturating_mul(2));
        all.extend(
            self.policy.iter().map(|json| Operation::Told(AgentOp::Policy(Arc::clone(json)))),
        );
        let models = self.models.values();
        all.extend(models.map(|model| Operation::Told(AgentOp::Model(Arc::clone(model)))));
        for row in self.rows.values() {
            let id = row.record.id;
            let held = self.held.get(&id);
            all.push(Operation::Told(AgentOp::Endpoint(effective(&row.record, held))));
            if let Some((_, measured)) = row.load {
                all.push(Operation::Load(id, measured));
            }
            // Also if there are none: the reader may know some of earlier.
            let signals = Arc::clone(&row.signals.1);
            all.push(Operation::Told(AgentOp::Signals { id, signals }));
            all.extend(held.into_iter().flat_map(|held| held.operations(id)).map(Operation::Told));
        }
        all
    }
}

#[cfg(test)]
mod tests;
