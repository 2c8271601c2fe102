//! The applier: the one VM of an Envoy that reads the agent's stream and the others' picks, and
//! tells all of them what changed.

use super::publisher::{Publisher, RoleLost};
use super::shares::{self, Shares};
use super::{Follower, Keys, Message, ROW_SLOTS, Settings, SharedStore};
use crate::inflight::{Row, Totals};
use crate::replica::Replica;
use std::collections::BTreeSet;
use warmroute_shared_state::endpoint::{EndpointId, EndpointRecord};
use warmroute_shared_state::frame::{Column, HASHES_PER_OP, HashList, TableOp};
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

/// State of the role.
#[derive(Debug)]
pub(super) struct Applier {
    publisher: Publisher,
    shares: Shares,
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
    ) -> Self {
        Self {
            publisher: Publisher::new(store, keys),
            shares: Shares::of(&follower.replica.table),
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

    /// A snapshot names every endpoint: the others are gone.
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
    }

    fn apply_ops(
        &mut self,
        follower: &mut Follower,
        ops: &[AgentOp],
        position: Position,
        now_ms: u64,
    ) {
        for op in ops {
            match op {
                AgentOp::Endpoint(record) => self.upsert(follower, record),
                AgentOp::Remove(id) => self.remove(follower, *id),
                AgentOp::Load { id, age_ms, load } => {
                    let at_ms = now_ms.saturating_sub(u64::from(*age_ms));
                    self.tell(follower, &TableOp::Load { id: *id, at_ms, load: *load });
                }
            }
        }
        self.tell(follower, &TableOp::Position { position, at_ms: now_ms });
    }

    /// Applies an operation to this VM's replica and to the next frame.
    fn tell(&mut self, follower: &mut Follower, op: &TableOp<'_>) {
        follower.note_scrape(op);
        follower.replica.apply(self.publisher.next_seq(), op);
        self.publisher.push(op);
    }

    fn upsert(&mut self, follower: &mut Follower, record: &EndpointRecord) {
        let roster = &follower.replica.roster;
        let known = roster.get(record.id);
        if known.is_some_and(|known| known.record == *record) {
            return;
        }
        let old = known.map(|known| (known.column, known.since, known.record.generation));
        let place = match old {
            Some((column, since, generation)) if generation == record.generation => {
                Some((column, since))
            }
            None if roster.len() >= self.settings.max_endpoints => None,
            _ => self.fresh_column(follower).map(|column| (column, self.publisher.next_seq())),
        };
        let Some((column, since)) = place else {
            if self.refused.len() < REFUSED_KEPT {
                self.refused.insert(record.id);
            }
            return;
        };
        self.refused.remove(&record.id);
        if let Some((old, ..)) = old
            && old != column
        {
            self.shares.drop_column(old);
        }
        self.tell(follower, &TableOp::Endpoint { column, since, record: record.clone() });
    }

    fn fresh_column(&self, follower: &mut Follower) -> Option<Column> {
        let replica = &mut follower.replica;
        let from = self.publisher.next_seq();
        if let Some(column) = replica.roster.free_column(from, replica.dead_columns()) {
            return Some(column);
        }
        // Churn outran the sweep: finish it now.
        while replica.needs_sweep() {
            replica.sweep_some();
        }
        replica.roster.free_column(from, replica.dead_columns())
    }

    fn remove(&mut self, follower: &mut Follower, id: EndpointId) {
        self.refused.remove(&id);
        if let Some(known) = follower.replica.roster.get(id) {
            self.shares.drop_endpoint(id, known.column);
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
                if self.shares.forget(*column, &chain) {
                    self.evict(follower, *column, &chain);
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
