//! The agent's stream: snapshots and deltas become operations.

use super::{Applier, PageOutcome, PendingSnapshot};
use crate::prefix_table::ColumnMask;
use crate::replica::{Replica, policy_ops, policy_revision, record_ops, revision};
use crate::vm::Follower;
use std::collections::BTreeSet;
use warmroute_shared_state::block::{Block, BlockList, Tier};
use warmroute_shared_state::endpoint::{EndpointId, EndpointRecord};
use warmroute_shared_state::model::ModelRecord;
use warmroute_shared_state::signals::Signals;
use warmroute_shared_state::stream::{AgentOp, Page, PageKind, Position};
use warmroute_shared_state::table_op::{BLOCKS_PER_OP, Column, Columns, TableOp};
use warmroute_shared_state::wire::WireError;

/// Pages of a snapshot at most: a thousand megabytes.
const MAX_PAGES: u32 = 1024;

/// Refused endpoints that are remembered.
const REFUSED_KEPT: usize = 4096;

impl Applier {
    /// Takes one page of the agent's stream.
    ///
    /// # Errors
    /// If it cannot be read. Nothing of it is applied then.
    pub(in crate::vm) fn on_page(
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
                self.apply_ops(follower, &page.ops, page.position, now_ms, false);
                Ok(PageOutcome::Applied)
            }
            PageKind::Snapshot { pages, .. } if pages > MAX_PAGES => Ok(PageOutcome::Ignored),
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
                self.apply_ops(follower, &pending.ops, pending.position, now_ms, true);
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
        whole: bool,
    ) {
        let mut oldest: Option<u64> = None;
        // 0 stands for long ago: nothing to measure.
        let mut happened = |at_ms: u64| {
            if at_ms > 0 {
                oldest = Some(oldest.map_or(at_ms, |oldest| oldest.min(at_ms)));
            }
        };
        for op in ops {
            match op {
                AgentOp::Endpoint(record) => self.upsert(follower, record, whole),
                AgentOp::Remove(id) => self.remove(follower, *id),
                AgentOp::Load { id, age_ms, load } => {
                    let at_ms = now_ms.saturating_sub(u64::from(*age_ms));
                    self.tell(follower, &TableOp::Load { id: *id, at_ms, load: *load });
                }
                AgentOp::Store { id, tier, at_ms, blocks } => {
                    self.store(follower, *id, *tier, blocks, now_ms);
                    happened(*at_ms);
                }
                AgentOp::Evict { id, tier, at_ms, hashes } => {
                    if let Some(column) = column_of(&follower.replica, *id, *tier) {
                        self.evict(follower, column, hashes);
                    }
                    happened(*at_ms);
                }
                AgentOp::Model(record) => self.put_model(follower, record),
                AgentOp::RemoveModel(name) => self.tell(follower, &TableOp::RemoveModel(name)),
                AgentOp::Signals { id, signals } => self.put_signals(follower, *id, signals),
                AgentOp::Policy(json) => self.put_policy(follower, json),
            }
        }
        if let Some(at_ms) = oldest {
            self.tell(follower, &TableOp::Told { at_ms });
        }
        self.tell(follower, &TableOp::Position { position, at_ms: now_ms });
    }

    fn store(
        &mut self,
        follower: &mut Follower,
        id: EndpointId,
        tier: Tier,
        blocks: &[Block],
        now_ms: u64,
    ) {
        let Some(column) = column_of(&follower.replica, id, tier) else { return };
        for blocks in blocks.chunks(BLOCKS_PER_OP) {
            let blocks = BlockList::Slice(blocks);
            self.tell(follower, &TableOp::Store { column, blocks });
        }
        let expected = follower.replica.roster.get(id).map(|e| e.columns.expected);
        if let Some(expected) = expected
            && tier == Tier::Device
        {
            let hashes = blocks.iter().map(|block| block.hash);
            let told = self.expectations.heard(expected, hashes, now_ms);
            self.evict(follower, expected, &told);
        }
    }

    fn put_model(&mut self, follower: &mut Follower, record: &ModelRecord) {
        let number = revision(record);
        if follower.replica.models.iter().any(|model| model.revision == number) {
            return;
        }
        record_ops(record, |op| self.tell(follower, op));
    }

    fn put_signals(&mut self, follower: &mut Follower, id: EndpointId, signals: &Signals) {
        if follower.replica.roster.get(id).is_some_and(|known| known.signals != *signals) {
            self.tell(follower, &TableOp::Signals { id, signals: signals.clone() });
        }
    }

    fn put_policy(&mut self, follower: &mut Follower, json: &[u8]) {
        if follower.replica.policy.revision() != policy_revision(json) {
            policy_ops(json, |op| self.tell(follower, op));
        }
    }

    /// `whole`: all that a precise endpoint holds follows. What it held before is void then: it may have been evicted
    /// while this Envoy was cut off, or by another life of the agent.
    fn upsert(&mut self, follower: &mut Follower, record: &EndpointRecord, whole: bool) {
        let roster = &follower.replica.roster;
        let known = roster.get(record.id);
        let retold = whole && record.precise;
        if !retold && known.is_some_and(|known| known.record == *record) {
            return;
        }
        let old = known.map(|known| (known.columns, known.since, known.record.generation));
        let place = match old {
            Some((columns, since, generation)) if generation == record.generation && !retold => {
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
