//! What one VM knows: the endpoints, their loads and the prefix table, kept current by applying
//! the applier's operations in order.

mod models;
mod parts;
mod policy;
mod roster;

pub use models::{Model, Models, Rendering, record_ops, revision};
pub use policy::{PolicySlot, policy_ops, policy_revision};
pub(crate) use roster::DEFAULT_BYTES_PER_TOKEN;
pub use roster::{EndpointState, Roster};

use crate::prefix_table::{ColumnMask, PrefixMatch, PrefixTable};
use warmroute_shared_state::checkpoint::SEGMENTS;
use warmroute_shared_state::table_op::{Column, TableOp};

/// Segments swept of dead columns at each call of [`Replica::sweep_some`].
const SWEEP_STEP: usize = 64;

/// One VM's copy of everything that a pick needs.
#[derive(Debug, Default)]
pub struct Replica {
    /// Endpoints and loads.
    pub roster: Roster,
    /// Who holds which block.
    pub table: PrefixTable,
    /// Models whose prompts can be told byte for byte.
    pub models: Models,
    /// The compiled configuration.
    pub policy: PolicySlot,
    /// Columns whose endpoint is gone and whose entries still stand in some segments.
    dead: ColumnMask,
    /// Next segment to sweep; a sweep is over when it comes round to where it began.
    sweep_at: usize,
    sweep_left: usize,
}

impl Replica {
    /// Applies one operation of frame `seq`. Doing it twice, or on top of a later checkpoint, is
    /// harmless as long as every frame up to the newest follows.
    pub fn apply(&mut self, seq: u64, op: &TableOp<'_>) {
        match op {
            TableOp::Endpoint { columns, since, record } => {
                let freed = self.roster.upsert(*columns, *since, record);
                freed.into_iter().for_each(|column| self.bury(column));
                let again = |column| {
                    self.dead.contains(column) && self.roster.since(column) == Some(*since)
                };
                if columns.iter().any(again) {
                    // The column is in use again: nothing of its former owner may be left.
                    self.finish_sweep();
                }
            }
            TableOp::Remove(id) => {
                let freed = self.roster.remove(*id);
                freed.into_iter().for_each(|column| self.bury(column));
            }
            TableOp::Load { id, at_ms, load } => self.roster.set_load(*id, *at_ms, *load),
            TableOp::Insert { column, stamp, hashes } => {
                // A column that got its endpoint later than this frame: these were its former owner's.
                if self.roster.since(*column).is_some_and(|since| since <= seq) {
                    hashes.for_each(|hash| self.table.insert(*column, *stamp, hash));
                }
            }
            TableOp::Store { column, blocks } => {
                if self.roster.since(*column).is_some_and(|since| since <= seq) {
                    blocks.for_each(|block| self.table.store(*column, block));
                }
            }
            TableOp::Evict { column, hashes } => {
                hashes.for_each(|hash| self.table.remove(*column, hash));
            }
            TableOp::Position { position, at_ms } => self.roster.set_position(*position, *at_ms),
            TableOp::BytesPerToken { id, milli } => self.roster.set_bytes_per_token(*id, *milli),
            TableOp::ModelPart { revision, part, parts, bytes } => {
                self.models.part(*revision, *part, *parts, bytes);
            }
            TableOp::RemoveModel(name) => self.models.remove(name),
            TableOp::PolicyPart { revision, part, parts, bytes } => {
                self.policy.part(*revision, *part, *parts, bytes);
            }
            TableOp::Signals { id, signals } => self.roster.set_signals(*id, signals),
            TableOp::Distrust { stream } => self.models.distrust(*stream),
            // For whoever measures, and for the scheduler's plugins.
            TableOp::Told { .. } | TableOp::Session { .. } => {}
        }
    }

    /// How far each endpoint holds the chain, by each of its columns.
    #[must_use]
    pub fn walk(&self, chain: &[u64]) -> Vec<PrefixMatch> {
        let heir = |column| match self.roster.by_column(column) {
            Some(endpoint) if endpoint.columns.held == column => endpoint.columns.expected,
            _ => Column::NONE,
        };
        self.table.walk(chain, self.roster.live(), heir)
    }

    /// Calls `each` with the operations that rebuild everything but the table.
    pub fn for_each_op(&self, each: &mut dyn FnMut(&TableOp<'_>)) {
        self.policy.for_each_op(&mut *each);
        self.models.for_each_op(&mut *each);
        self.roster.to_ops().for_each(|op| each(&op));
    }

    fn bury(&mut self, column: Column) {
        self.dead.insert(column);
        self.sweep_left = SEGMENTS;
    }

    /// Whether entries of dead columns may be left.
    #[must_use]
    pub fn needs_sweep(&self) -> bool {
        self.sweep_left > 0
    }

    /// Columns that may not be given away yet.
    #[must_use]
    pub fn dead_columns(&self) -> &ColumnMask {
        &self.dead
    }

    /// Sweeps a few segments of dead columns; for ticks, so that no request pays for churn.
    pub fn sweep_some(&mut self) {
        for _ in 0..SWEEP_STEP.min(self.sweep_left) {
            self.table.sweep_segment(self.sweep_at, &self.dead);
            self.sweep_at = self.sweep_at.wrapping_add(1) % SEGMENTS;
            self.sweep_left = self.sweep_left.saturating_sub(1);
        }
        if self.sweep_left == 0 {
            self.dead = ColumnMask::default();
        }
    }

    fn finish_sweep(&mut self) {
        while self.needs_sweep() {
            self.sweep_some();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use warmroute_shared_state::block::{Block, BlockList};
    use warmroute_shared_state::endpoint::{Availability, EndpointId, EndpointRecord, Load};
    use warmroute_shared_state::table_op::{Columns, HashList};

    pub(crate) fn record(n: u16) -> EndpointRecord {
        let address = format!("127.0.0.1:{}", 9000 + n);
        EndpointRecord {
            id: EndpointId::new("default", &format!("r{n}"), &address),
            generation: 1,
            name: format!("default/r{n}"),
            address,
            availability: Availability::Ready,
            block_tokens: 16,
            kv_blocks: 10_000,
            precise: false,
            lower_tier_percent: 0,
            labels: vec![],
            pools: vec![],
        }
    }

    fn endpoint(n: u16, column: u16, since: u64) -> TableOp<'static> {
        TableOp::Endpoint { columns: Columns::only(Column(column)), since, record: record(n) }
    }

    fn insert(column: u16, hashes: &[u64]) -> TableOp<'_> {
        TableOp::Insert { column: Column(column), stamp: 0, hashes: HashList::Slice(hashes) }
    }

    fn matched(replica: &Replica, chain: &[u64]) -> Vec<(u16, usize)> {
        replica.walk(chain).iter().map(|m| (m.column.0, m.blocks)).collect()
    }

    crate::tests! {
        fn a_fresh_column_starts_cold() {
            let mut replica = Replica::default();
            replica.apply(9, &endpoint(1, 0, 1));
            replica.apply(9, &insert(0, &[10, 20]));
            assert_eq!(matched(&replica, &[10, 20]), [(0, 2)]);
            replica.apply(9, &endpoint(1, 7, 5));
            assert_eq!(matched(&replica, &[10, 20]), []);
        }

        fn a_column_given_to_another_endpoint_carries_nothing_over() {
            let mut replica = Replica::default();
            replica.apply(9, &endpoint(1, 0, 1));
            replica.apply(9, &insert(0, &[10, 20]));
            replica.apply(9, &TableOp::Remove(record(1).id));
            assert!(replica.needs_sweep());
            replica.apply(9, &endpoint(2, 0, 9));
            assert_eq!(matched(&replica, &[10, 20]), []);
            assert!(replica.table.is_empty());
        }

        fn sweeping_in_steps_ends_with_an_empty_table() {
            let mut replica = Replica::default();
            replica.apply(9, &endpoint(1, 0, 1));
            let hashes: Vec<u64> = (1..2000u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
            replica.apply(9, &insert(0, &hashes));
            replica.apply(9, &TableOp::Remove(record(1).id));
            let mut steps = 0;
            while replica.needs_sweep() {
                replica.sweep_some();
                steps += 1;
            }
            assert!(replica.table.is_empty() && steps == SEGMENTS / SWEEP_STEP);
        }

        fn an_insert_older_than_the_columns_owner_is_dropped() {
            let mut replica = Replica::default();
            replica.apply(30, &endpoint(1, 0, 30));
            replica.apply(29, &insert(0, &[10]));
            assert!(replica.table.is_empty());
            replica.apply(31, &insert(0, &[10]));
            assert_eq!(replica.table.len(), 1);
        }

        fn an_insert_for_a_column_without_endpoint_is_dropped() {
            let mut replica = Replica::default();
            replica.apply(9, &insert(3, &[10]));
            assert!(replica.table.is_empty());
        }

        fn all_columns_of_an_endpoint_go_with_it() {
            let columns = Columns { held: Column(0), expected: Column(1), any_tier: Column(2) };
            let mut replica = Replica::default();
            replica.apply(1, &TableOp::Endpoint { columns, since: 1, record: record(1) });
            let blocks = [Block { hash: 10, tokens: 30 }];
            for column in [0, 2] {
                let blocks = BlockList::Slice(&blocks);
                replica.apply(2, &TableOp::Store { column: Column(column), blocks });
            }
            replica.apply(2, &insert(1, &[20, 30]));
            assert_eq!(matched(&replica, &[10, 20, 30]), [(0, 1), (2, 1), (1, 3)]);
            // A new generation: nothing of it counts any more.
            let columns = Columns { held: Column(3), expected: Column(4), any_tier: Column::NONE };
            replica.apply(3, &TableOp::Endpoint { columns, since: 3, record: record(1) });
            assert_eq!(matched(&replica, &[10, 20, 30]), []);
            while replica.needs_sweep() {
                replica.sweep_some();
            }
            assert!(replica.table.is_empty());
            replica.apply(4, &insert(4, &[10]));
            assert_eq!(matched(&replica, &[10]), [(4, 1)]);
            replica.apply(5, &TableOp::Remove(record(1).id));
            assert_eq!(matched(&replica, &[10]), []);
        }

        fn applying_the_same_operations_again_changes_nothing() {
            let id = record(1).id;
            let load = Load { waiting: Some(2.0), ..Load::default() };
            let ops = [endpoint(1, 0, 1), insert(0, &[10, 20]), TableOp::Load { id, at_ms: 5, load }];
            let mut replica = Replica::default();
            for op in ops.iter().chain(&ops) {
                replica.apply(9, op);
            }
            assert_eq!(matched(&replica, &[10, 20]), [(0, 2)]);
            assert_eq!(replica.table.len(), 2);
            assert_eq!(replica.roster.get(id).map(|e| e.load), Some(load));
        }
    }
}
