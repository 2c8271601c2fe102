//! The applier: the one VM of an Envoy that reads the agent's stream and the others' picks, and
//! tells all of them what changed.

use super::publisher::{Publisher, RoleLost};
use super::{Follower, Keys, Message, ROW_SLOTS, Settings, SharedStore};
use crate::inflight::{Row, Totals};
use crate::prefix_table::RecencyList;
use crate::replica::Replica;
use std::collections::{BTreeMap, BTreeSet};
use warmroute_shared_state::checkpoint::SEGMENTS;
use warmroute_shared_state::endpoint::{EndpointId, EndpointRecord};
use warmroute_shared_state::frame::{Column, HASHES_PER_OP, HashList, TableOp};
use warmroute_shared_state::prefix::BLOCK_BYTES;
use warmroute_shared_state::stream::{AgentOp, Page, PageKind, Position};
use warmroute_shared_state::wire::WireError;

/// Rows that nobody wrote lately are looked at this often; those in use at every call.
const FULL_ROW_SCAN_MS: u64 = 100;

/// Totals are written at least this often, so that a reader can tell that they are fresh.
const TOTALS_HEARTBEAT_MS: u64 = 250;

/// KV tokens of an endpoint that does not report its capacity: llm-d's default of 31,250 blocks of 16.
const DEFAULT_KV_TOKENS: u64 = 500_000;

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

/// One endpoint's approximate share of the table.
#[derive(Debug, Default)]
struct Share {
    recency: RecencyList,
}

/// Bytes and tokens seen of one endpoint's prompts, older ones counting less.
#[derive(Debug, Default)]
struct UsageRatio {
    bytes: f64,
    tokens: f64,
    published_milli: u32,
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
    shares: BTreeMap<Column, Share>,
    usage: BTreeMap<EndpointId, UsageRatio>,
    snapshot: Option<PendingSnapshot>,
    settings: Settings,
    active_rows: Vec<usize>,
    scanned_ms: u64,
    totals: Totals,
    refused_endpoints: u64,
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
        let mut stamped: BTreeMap<Column, Vec<(u32, u64)>> = BTreeMap::new();
        for segment in 0..SEGMENTS {
            follower.replica.table.for_each_in_segment(segment, |hash, stamp, columns| {
                for column in columns.iter() {
                    stamped.entry(column).or_default().push((stamp, hash));
                }
            });
        }
        let shares = stamped.into_iter().map(|(column, mut hashes)| {
            hashes.sort_unstable();
            let mut share = Share::default();
            hashes.iter().for_each(|(_, hash)| share.recency.touch(*hash));
            (column, share)
        });
        Self {
            publisher: Publisher::new(store, keys),
            shares: shares.collect(),
            usage: BTreeMap::new(),
            snapshot: None,
            settings,
            active_rows: Vec::new(),
            scanned_ms: 0,
            totals: Totals::default(),
            refused_endpoints: 0,
        }
    }

    /// The sizes in force from now on.
    pub(super) fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Endpoints that were refused because there are too many.
    #[must_use]
    pub(super) fn refused_endpoints(&self) -> u64 {
        self.refused_endpoints
    }

    /// Path of the next request to the agent, which may hold the answer for `wait_ms`.
    #[must_use]
    pub(super) fn poll_path(&self, replica: &Replica, wait_ms: u64) -> String {
        let (position, page) = match &self.snapshot {
            Some(pending) => (pending.position, pending.next_page),
            None => (replica.roster.position().0, 0),
        };
        if position.epoch == 0 {
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
            self.refused_endpoints = self.refused_endpoints.saturating_add(1);
            return;
        };
        if let Some((old, ..)) = old
            && old != column
        {
            self.shares.remove(&old);
        }
        self.shares.entry(column).or_default();
        self.tell(follower, &TableOp::Endpoint { column, since, record: record.clone() });
    }

    fn fresh_column(&self, follower: &mut Follower) -> Option<Column> {
        let replica = &mut follower.replica;
        if let Some(column) = replica.roster.free_column(replica.dead_columns()) {
            return Some(column);
        }
        // Churn outran the sweep: finish it now.
        while replica.needs_sweep() {
            replica.sweep_some();
        }
        replica.roster.free_column(replica.dead_columns())
    }

    fn remove(&mut self, follower: &mut Follower, id: EndpointId) {
        if let Some(known) = follower.replica.roster.get(id) {
            self.shares.remove(&known.column);
            self.usage.remove(&id);
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
                if let Some(share) = self.shares.get_mut(column) {
                    chain.iter().for_each(|hash| share.recency.remove(*hash));
                    self.evict(follower, *column, &chain);
                }
            }
            Message::Usage { endpoint, prompt_bytes, prompt_tokens } => {
                self.learn_ratio(follower, *endpoint, *prompt_bytes, *prompt_tokens);
            }
            Message::Trap => {}
        }
    }

    fn insert(&mut self, follower: &mut Follower, column: Column, chain: &[u64], now_ms: u64) {
        let Some(capacity) = self.capacity(&follower.replica, column) else { return };
        // A column that was empty when the role was taken over has no list yet.
        let share = self.shares.entry(column).or_default();
        // Tail first, as the engine frees them: the head of a prompt is dropped last.
        chain.iter().rev().for_each(|hash| share.recency.touch(*hash));
        let mut dropped = Vec::new();
        while share.recency.len() > capacity {
            dropped.extend(share.recency.pop_oldest());
        }
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

    /// How many byte blocks fit the endpoint's KV cache, at its own bytes per token.
    fn capacity(&self, replica: &Replica, column: Column) -> Option<usize> {
        let endpoint = replica.roster.by_column(column)?;
        let tokens = endpoint.record.kv_tokens().unwrap_or(DEFAULT_KV_TOKENS);
        #[allow(clippy::cast_precision_loss)]
        let bytes = tokens as f64 * f64::from(endpoint.bytes_per_token);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let blocks = (bytes / BLOCK_BYTES as f64) as usize;
        let fair_share = self.settings.max_blocks.checked_div(replica.roster.len())?;
        Some(blocks.min(fair_share).max(1))
    }

    fn learn_ratio(
        &mut self,
        follower: &mut Follower,
        id: EndpointId,
        prompt_bytes: u64,
        prompt_tokens: u32,
    ) {
        // Short prompts are mostly template, which the bytes do not show.
        if prompt_tokens < 64 || follower.replica.roster.get(id).is_none() {
            return;
        }
        let usage = self.usage.entry(id).or_default();
        #[allow(clippy::cast_precision_loss)]
        {
            usage.bytes = usage.bytes * 0.95 + prompt_bytes as f64;
        }
        usage.tokens = usage.tokens * 0.95 + f64::from(prompt_tokens);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let milli = (usage.bytes / usage.tokens * 1000.0) as u32;
        // Told only when it moved by more than 2%.
        if milli.abs_diff(usage.published_milli) > usage.published_milli / 50 {
            usage.published_milli = milli;
            self.tell(follower, &TableOp::BytesPerToken { id, milli });
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

    /// Adds up all fresh rows and writes the sum, if it changed or a heartbeat is due.
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
        let totals = Totals::add_up(now_ms, rows.iter());
        let age = now_ms.saturating_sub(self.totals.at_ms());
        if !totals.same_counts(&self.totals) || age >= TOTALS_HEARTBEAT_MS {
            let _ = store.set(&keys.totals, &totals.encode(), None);
            self.totals = totals;
        }
    }
}
