//! The applier: the one VM of an Envoy that reads the agent's stream and the others' picks, and
//! tells all of them what changed.

use super::expectations::Expectations;
use super::publisher::{Publisher, RoleLost};
use super::shares::{self, Shares};
use super::{Follower, Keys, Message, ROW_SLOTS, Settings, SharedStore};
use crate::inflight::{Row, Totals};
use crate::prefix_table::ColumnMask;
use crate::replica::{Replica, record_ops, revision};
use std::collections::{BTreeMap, BTreeSet};
use warmroute_shared_state::block::{Block, BlockList, Tier};
use warmroute_shared_state::checkpoint::SEGMENTS;
use warmroute_shared_state::endpoint::{EndpointId, EndpointRecord};
use warmroute_shared_state::frame::{
    BLOCKS_PER_OP, Column, Columns, HASHES_PER_OP, HashList, TableOp,
};
use warmroute_shared_state::model::ModelRecord;
use warmroute_shared_state::stream::{AgentOp, Page, PageKind, Position};
use warmroute_shared_state::wire::WireError;

/// Rows that nobody wrote lately are looked at this often; those in use at every call.
const FULL_ROW_SCAN_MS: u64 = 100;

/// Refused endpoints that are remembered.
const REFUSED_KEPT: usize = 4096;

/// Stamps are only told anew when they are older than this (about a minute, in units of 64 ms): they serve to
/// rebuild the order of use when another VM becomes the applier.
const STAMP_FRESH: u32 = 1000;

/// Checkpoints written in one tick at most.
const CHECKPOINTS_A_TICK: usize = 64;

/// What a page of the agent's stream did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageOutcome {
    /// It was applied; ask for what comes next.
    Applied,
    /// It is part of a snapshot; ask for the next page.
    More,
    /// It does not fit where this VM stands; ask again.
    Ignored,
}

#[derive(Debug)]
struct PendingSnapshot {
    position: Position,
    next_page: u32,
    ops: Vec<AgentOp>,
}

/// How expectations ended, since the role was taken.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ExpectationCounts {
    /// Events told what was expected.
    pub confirmed: u64,
    /// They did not.
    pub unconfirmed: u64,
    /// Models that are approximate since.
    pub distrusted: u64,
}

/// State of the role.
#[derive(Debug)]
pub(super) struct Applier {
    publisher: Publisher,
    shares: Shares,
    expectations: Expectations,
    counts: ExpectationCounts,
    snapshot: Option<PendingSnapshot>,
    settings: Settings,
    active_rows: Vec<usize>,
    scanned_ms: u64,
    totals: Totals,
    /// Endpoints for which there was no room.
    refused: BTreeSet<EndpointId>,
}

impl Applier {
    /// Takes the role over from where the ring and this VM's replica stand. The recency of blocks is
    /// rebuilt from their stamps.
    #[must_use]
    pub(super) fn new(
        store: &dyn SharedStore,
        keys: &Keys,
        follower: &Follower,
        settings: Settings,
        now_ms: u64,
    ) -> Self {
        let replica = &follower.replica;
        let guessed =
            |column| replica.roster.by_column(column).is_some_and(|e| e.columns.held == column);
        Self {
            publisher: Publisher::new(store, keys),
            shares: Shares::of(&replica.table, guessed),
            expectations: left_behind(replica, now_ms),
            counts: ExpectationCounts::default(),
            snapshot: None,
            settings,
            active_rows: Vec::new(),
            scanned_ms: 0,
            totals: Totals::default(),
            refused: BTreeSet::new(),
        }
    }

    /// The sizes in force from now on.
    pub(super) fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Endpoints that were refused because there are too many.
    #[must_use]
    pub(super) fn refused_endpoints(&self) -> u64 {
        self.refused.len() as u64
    }

    /// How expectations ended.
    #[must_use]
    pub(super) fn expectation_counts(&self) -> ExpectationCounts {
        self.counts
    }

    /// Path of the next request to the agent, which may hold the answer for `wait_ms`.
    #[must_use]
    pub(super) fn poll_path(&self, replica: &Replica, wait_ms: u64) -> String {
        let (position, page) = match &self.snapshot {
            Some(pending) => (pending.position, pending.next_page),
            None => (replica.roster.position().0, 0),
        };
        // Whoever was refused may fit by now: only a fresh snapshot names it again.
        let room = replica.roster.len() < self.settings.max_endpoints;
        let ask_again = room && !self.refused.is_empty() && self.snapshot.is_none();
        if position.epoch == 0 || ask_again {
            return format!("/v1/stream?wait_ms={wait_ms}");
        }
        let Position { epoch, seq } = position;
        format!("/v1/stream?epoch={epoch}&seq={seq}&page={page}&wait_ms={wait_ms}")
    }

    /// Takes one page of the agent's stream.
    ///
    /// # Errors
    /// If it cannot be read. Nothing of it is applied then.
    pub(super) fn on_page(
        &mut self,
        follower: &mut Follower,
        bytes: &[u8],
        now_ms: u64,
    ) -> Result<PageOutcome, WireError> {
        let page = Page::decode(bytes)?;
        match page.kind {
            PageKind::Delta { from_seq } => {
                let (position, _) = follower.replica.roster.position();
                self.snapshot = None;
                if position != (Position { epoch: page.position.epoch, seq: from_seq }) {
                    return Ok(PageOutcome::Ignored);
                }
                self.apply_ops(follower, &page.ops, page.position, now_ms);
                Ok(PageOutcome::Applied)
            }
            PageKind::Snapshot { page: number, pages } => {
                let mut pending = match self.snapshot.take() {
                    Some(p) if p.position == page.position && p.next_page == number => p,
                    _ if number == 0 => {
                        PendingSnapshot { position: page.position, next_page: 0, ops: Vec::new() }
                    }
                    _ => return Ok(PageOutcome::Ignored),
                };
                pending.ops.extend(page.ops);
                pending.next_page = pending.next_page.saturating_add(1);
                if pending.next_page < pages {
                    self.snapshot = Some(pending);
                    return Ok(PageOutcome::More);
                }
                self.remove_absent(follower, &pending.ops);
                self.apply_ops(follower, &pending.ops, pending.position, now_ms);
                Ok(PageOutcome::Applied)
            }
        }
    }

    /// A snapshot names every endpoint and model: the others are gone.
    fn remove_absent(&mut self, follower: &mut Follower, ops: &[AgentOp]) {
        self.refused.clear();
        let present: BTreeSet<EndpointId> = ops
            .iter()
            .filter_map(|op| match op {
                AgentOp::Endpoint(record) => Some(record.id),
                _ => None,
            })
            .collect();
        let gone: Vec<EndpointId> = follower
            .replica
            .roster
            .iter()
            .map(|e| e.record.id)
            .filter(|id| !present.contains(id))
            .collect();
        for id in gone {
            self.remove(follower, id);
        }
        let present: BTreeSet<&str> = ops
            .iter()
            .filter_map(|op| match op {
                AgentOp::Model(record) => Some(record.name.as_str()),
                _ => None,
            })
            .collect();
        let models = follower.replica.models.iter().map(|model| model.record.name.clone());
        let gone: Vec<String> = models.filter(|name| !present.contains(name.as_str())).collect();
        for name in gone {
            self.tell(follower, &TableOp::RemoveModel(&name));
        }
    }

    fn apply_ops(
        &mut self,
        follower: &mut Follower,
        ops: &[AgentOp],
        position: Position,
        now_ms: u64,
    ) {
        let mut oldest = u64::MAX;
        for op in ops {
            match op {
                AgentOp::Endpoint(record) => self.upsert(follower, record),
                AgentOp::Remove(id) => self.remove(follower, *id),
                AgentOp::Load { id, age_ms, load } => {
                    let at_ms = now_ms.saturating_sub(u64::from(*age_ms));
                    self.tell(follower, &TableOp::Load { id: *id, at_ms, load: *load });
                }
                AgentOp::Store { id, tier, at_ms, blocks } => {
                    self.store(follower, *id, *tier, blocks);
                    oldest = oldest.min(at_ms.checked_sub(1).map_or(u64::MAX, |_| *at_ms));
                }
                AgentOp::Evict { id, tier, at_ms, hashes } => {
                    if let Some(column) = column_of(&follower.replica, *id, *tier) {
                        self.evict(follower, column, hashes);
                    }
                    oldest = oldest.min(at_ms.checked_sub(1).map_or(u64::MAX, |_| *at_ms));
                }
                AgentOp::Model(record) => self.put_model(follower, record),
                AgentOp::RemoveModel(name) => self.tell(follower, &TableOp::RemoveModel(name)),
            }
        }
        if oldest < u64::MAX {
            self.tell(follower, &TableOp::Told { at_ms: oldest });
        }
        self.tell(follower, &TableOp::Position { position, at_ms: now_ms });
    }

    /// Applies an operation to this VM's replica and to the next frame.
    fn tell(&mut self, follower: &mut Follower, op: &TableOp<'_>) {
        follower.note(op);
        follower.replica.apply(self.publisher.next_seq(), op);
        self.publisher.push(op);
    }

    fn store(&mut self, follower: &mut Follower, id: EndpointId, tier: Tier, blocks: &[Block]) {
        let Some(column) = column_of(&follower.replica, id, tier) else { return };
        for blocks in blocks.chunks(BLOCKS_PER_OP) {
            let blocks = BlockList::Slice(blocks);
            self.tell(follower, &TableOp::Store { column, blocks });
        }
    }

    fn put_model(&mut self, follower: &mut Follower, record: &ModelRecord) {
        let number = revision(record);
        if follower.replica.models.iter().any(|model| model.revision == number) {
            return;
        }
        record_ops(record, |op| self.tell(follower, op));
    }

    fn upsert(&mut self, follower: &mut Follower, record: &EndpointRecord) {
        let roster = &follower.replica.roster;
        let known = roster.get(record.id);
        if known.is_some_and(|known| known.record == *record) {
            return;
        }
        let old = known.map(|known| (known.columns, known.since, known.record.generation));
        let place = match old {
            Some((columns, since, generation)) if generation == record.generation => {
                Some((columns, since))
            }
            None if roster.len() >= self.settings.max_endpoints => None,
            _ => {
                let since = self.publisher.next_seq();
                self.fresh_columns(follower, record).map(|columns| (columns, since))
            }
        };
        let Some((columns, since)) = place else {
            if self.refused.len() < REFUSED_KEPT {
                self.refused.insert(record.id);
            }
            return;
        };
        self.refused.remove(&record.id);
        if let Some((old, ..)) = old
            && old != columns
        {
            self.shares.drop_column(old.held);
        }
        self.tell(follower, &TableOp::Endpoint { columns, since, record: record.clone() });
    }

    /// As many columns as the endpoint needs. If there is no more than one left, it goes without the others.
    fn fresh_columns(&self, follower: &mut Follower, record: &EndpointRecord) -> Option<Columns> {
        let mut taken = ColumnMask::default();
        let mut fresh = |wanted: bool| {
            let column = if wanted { self.fresh_column(follower, &taken)? } else { Column::NONE };
            taken.insert(column);
            Some(column)
        };
        let held = fresh(true)?;
        Some(Columns {
            held,
            expected: fresh(record.precise).unwrap_or(Column::NONE),
            any_tier: fresh(record.lower_tier_percent > 0).unwrap_or(Column::NONE),
        })
    }

    fn fresh_column(&self, follower: &mut Follower, taken: &ColumnMask) -> Option<Column> {
        let replica = &mut follower.replica;
        let from = self.publisher.next_seq();
        let free =
            |replica: &Replica| replica.roster.free_column(from, &replica.dead_columns().or(taken));
        if let Some(column) = free(replica) {
            return Some(column);
        }
        // Churn outran the sweep: finish it now.
        while replica.needs_sweep() {
            replica.sweep_some();
        }
        free(replica)
    }

    fn remove(&mut self, follower: &mut Follower, id: EndpointId) {
        self.refused.remove(&id);
        if let Some(known) = follower.replica.roster.get(id) {
            self.shares.drop_endpoint(id, known.columns.held);
            self.tell(follower, &TableOp::Remove(id));
        }
    }

    /// Takes a message of another VM, or of this one.
    pub(super) fn on_message(
        &mut self,
        follower: &mut Follower,
        message: &Message<'_>,
        now_ms: u64,
    ) {
        match message {
            Message::Picked { column, chain } => {
                self.insert(follower, *column, &chain.to_vec(), now_ms);
            }
            Message::Unpicked { column, chain } => {
                let chain = chain.to_vec();
                if let (Some(expected), Some(last)) =
                    (expected_beside(&follower.replica, *column), chain.last())
                {
                    let unused = self.expectations.forget(expected, *last);
                    self.evict(follower, expected, &unused);
                }
                if self.shares.forget(*column, &chain) {
                    self.evict(follower, *column, &chain);
                }
            }
            Message::Expected { column, stream, chain } => {
                self.expect(follower, *column, *stream, &chain.to_vec(), now_ms);
            }
            Message::Settled { column, last, answered } => {
                if let Some(expected) = expected_beside(&follower.replica, *column) {
                    self.expectations.settle(expected, *last, *answered, now_ms);
                }
            }
            Message::Usage { endpoint, prompt_bytes, prompt_tokens } => {
                let id = *endpoint;
                let ratio = follower.replica.roster.get(id).map(|known| known.bytes_per_token);
                let learned = ratio
                    .and_then(|ratio| self.shares.learn(id, ratio, *prompt_bytes, *prompt_tokens));
                if let Some(milli) = learned {
                    self.tell(follower, &TableOp::BytesPerToken { id, milli });
                }
            }
            Message::Trap => {}
        }
    }

    fn expect(
        &mut self,
        follower: &mut Follower,
        column: Column,
        stream: u64,
        chain: &[u64],
        now_ms: u64,
    ) {
        let Some(endpoint) = follower.replica.roster.by_column(column) else { return };
        let columns = endpoint.columns;
        if columns.held != column || columns.expected == Column::NONE {
            return;
        }
        let news = self.expectations.expect(columns, stream, chain, now_ms);
        for hashes in news.chunks(HASHES_PER_OP) {
            let hashes = HashList::Slice(hashes);
            let op = TableOp::Insert { column: columns.expected, stamp: 0, hashes };
            self.tell(follower, &op);
        }
    }

    /// Takes out what was expected long enough. At every tick.
    pub(super) fn settle_expectations(&mut self, follower: &mut Follower, now_ms: u64) {
        let replica = &follower.replica;
        let live = |column| replica.roster.live().contains(column);
        let settled = self.expectations.due(now_ms, &replica.table, live);
        for (column, hashes) in settled.evict {
            self.evict(follower, column, &hashes);
        }
        self.counts.confirmed = self.counts.confirmed.saturating_add(settled.confirmed);
        self.counts.unconfirmed = self.counts.unconfirmed.saturating_add(settled.unconfirmed);
        for stream in settled.distrust {
            if follower.replica.models.by_stream(stream).is_some_and(|model| !model.distrusted) {
                self.counts.distrusted = self.counts.distrusted.saturating_add(1);
                self.tell(follower, &TableOp::Distrust { stream });
            }
        }
    }

    fn insert(&mut self, follower: &mut Follower, column: Column, chain: &[u64], now_ms: u64) {
        let roster = &follower.replica.roster;
        let Some(endpoint) = roster.by_column(column) else { return };
        let capacity = shares::capacity(endpoint, roster.len(), self.settings.max_blocks);
        if chain.len() > capacity {
            // It does not fit, so the engine refuses it: nothing may be forgotten for its sake.
            return;
        }
        let requests = self.totals.counts(endpoint.record.id).requests;
        let open = self.shares.open_part(endpoint, requests);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let capacity = ((capacity as f64 * open) as usize).max(chain.len());
        let dropped = self.shares.touch(column, chain, capacity);
        #[allow(clippy::cast_possible_truncation)]
        let stamp = (now_ms >> 6) as u32;
        // What every VM knows already is not told again: of a conversation's next turn only the new blocks.
        let table = &follower.replica.table;
        let news: Vec<u64> = chain
            .iter()
            .copied()
            .filter(|hash| !table.holds_since(column, stamp, STAMP_FRESH, *hash))
            .collect();
        for hashes in news.chunks(HASHES_PER_OP) {
            let hashes = HashList::Slice(hashes);
            self.tell(follower, &TableOp::Insert { column, stamp, hashes });
        }
        self.evict(follower, column, &dropped);
    }

    fn evict(&mut self, follower: &mut Follower, column: Column, hashes: &[u64]) {
        for hashes in hashes.chunks(HASHES_PER_OP) {
            let hashes = HashList::Slice(hashes);
            self.tell(follower, &TableOp::Evict { column, hashes });
        }
    }

    /// Publishes what was collected and lets checkpoints follow.
    ///
    /// # Errors
    /// If the role is lost; the replica must then be built anew.
    pub(super) fn publish(
        &mut self,
        store: &dyn SharedStore,
        keys: &Keys,
        incarnation: u64,
        follower: &mut Follower,
    ) -> Result<(), RoleLost> {
        self.publisher.publish(store, keys, incarnation, follower)?;
        self.publisher.checkpoint_some(store, keys, &follower.replica, CHECKPOINTS_A_TICK);
        Ok(())
    }

    /// Adds up all fresh rows and writes the sum, if it changed.
    pub(super) fn add_up_rows(&mut self, store: &dyn SharedStore, keys: &Keys, now_ms: u64) {
        let full =
            now_ms.saturating_sub(self.scanned_ms) >= FULL_ROW_SCAN_MS || now_ms < self.scanned_ms;
        let slots =
            if full { (0..ROW_SLOTS).collect() } else { core::mem::take(&mut self.active_rows) };
        let mut rows = Vec::new();
        self.active_rows.clear();
        for slot in slots {
            let (bytes, _) = store.get(keys.row(slot)).unwrap_or_default();
            if let Ok(row) = Row::decode(&bytes)
                && row.is_fresh(now_ms)
            {
                self.active_rows.push(slot);
                rows.push(row);
            }
        }
        if full {
            self.scanned_ms = now_ms;
        }
        let totals = Totals::add_up(rows.iter());
        if totals != self.totals {
            let _ = store.set(&keys.totals, &totals.encode(), None);
            self.totals = totals;
        }
    }
}

/// The column of an endpoint's tier.
fn column_of(replica: &Replica, id: EndpointId, tier: Tier) -> Option<Column> {
    let columns = replica.roster.get(id)?.columns;
    let column = match tier {
        Tier::Device => columns.held,
        Tier::Any => columns.any_tier,
    };
    (column != Column::NONE).then_some(column)
}

/// The expected column of the endpoint that holds this one.
fn expected_beside(replica: &Replica, held: Column) -> Option<Column> {
    let columns = replica.roster.by_column(held)?.columns;
    (columns.held == held && columns.expected != Column::NONE).then_some(columns.expected)
}

/// What a former applier's endpoints are still expected to hold.
fn left_behind(replica: &Replica, now_ms: u64) -> Expectations {
    let mut chains: BTreeMap<Column, Vec<u64>> = BTreeMap::new();
    for segment in 0..SEGMENTS {
        replica.table.for_each_in_segment(segment, |entry| {
            for column in entry.columns.iter() {
                let owner = replica.roster.by_column(column);
                if owner.is_some_and(|owner| owner.columns.expected == column) {
                    chains.entry(column).or_default().push(entry.hash);
                }
            }
        });
    }
    let mut expectations = Expectations::default();
    for (column, chain) in chains {
        if let Some(endpoint) = replica.roster.by_column(column) {
            expectations.adopt(endpoint.columns, &chain, now_ms);
        }
    }
    expectations
}
