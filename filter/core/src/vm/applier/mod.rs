//! The applier: the one VM of an Envoy that reads the agent's stream and the others' picks, and
//! tells all of them what changed.

mod pages;
mod picks;

use super::expectations::Expectations;
use super::publisher::{Publisher, RoleLost};
use super::shares::Shares;
use super::{Follower, Keys, ROW_SLOTS, Settings, SharedStore};
use crate::inflight::{Row, Totals};
use crate::replica::Replica;
use std::collections::BTreeSet;
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::stream::{AgentOp, Position};
use warmroute_shared_state::table_op::TableOp;

/// Rows that nobody wrote lately are looked at this often; those in use at every call.
const FULL_ROW_SCAN_MS: u64 = 100;

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
    /// Slots of the rows that are fresh, by the incarnations that write them.
    live: Vec<(usize, u64)>,
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
        let guessed = |column, tokens| {
            let owner = replica.roster.by_column(column).filter(|e| e.columns.held == column);
            owner.is_some_and(|owner| tokens == 0 || !owner.record.precise)
        };
        Self {
            publisher: Publisher::new(store, keys),
            shares: Shares::of(&replica.table, guessed),
            expectations: picks::left_behind(replica, now_ms),
            counts: ExpectationCounts::default(),
            snapshot: None,
            settings,
            live: Vec::new(),
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

    /// Applies an operation to this VM's replica and to the next frame.
    fn tell(&mut self, follower: &mut Follower, op: &TableOp<'_>) {
        follower.note(op);
        follower.replica.apply(self.publisher.next_seq(), op);
        self.publisher.push(op);
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

    /// Slots and incarnations of the VMs that live, as of the last adding up. It may miss one that is younger than
    /// the last full scan.
    pub(super) fn live(&self) -> &[(usize, u64)] {
        &self.live
    }

    /// Adds up all fresh rows and writes the sum, if it changed.
    pub(super) fn add_up_rows(&mut self, store: &dyn SharedStore, keys: &Keys, now_ms: u64) {
        let full =
            now_ms.saturating_sub(self.scanned_ms) >= FULL_ROW_SCAN_MS || now_ms < self.scanned_ms;
        let live = core::mem::take(&mut self.live);
        let slots: Vec<usize> = if full {
            (0..ROW_SLOTS).collect()
        } else {
            live.into_iter().map(|(slot, _)| slot).collect()
        };
        let mut rows = Vec::new();
        for slot in slots {
            let (bytes, _) = store.get(keys.row(slot)).unwrap_or_default();
            if let Ok(row) = Row::decode(&bytes)
                && row.is_fresh(now_ms)
            {
                self.live.push((slot, row.incarnation));
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
