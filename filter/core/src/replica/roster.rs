//! The endpoints that a VM knows, with their loads.

use crate::prefix_table::{ColumnMask, MAX_COLUMNS};
use hashbrown::HashMap;
use warmroute_shared_state::endpoint::{Availability, EndpointId, EndpointRecord, Load};
use warmroute_shared_state::policy::routing::Pool;
use warmroute_shared_state::signals::Signals;
use warmroute_shared_state::stream::Position;
use warmroute_shared_state::table_op::{Column, Columns, TableOp};

/// Bytes of prompt a token stands for until usage says better.
pub(crate) const DEFAULT_BYTES_PER_TOKEN: f32 = 4.0;

/// Scrapes can be out of order by less than this; what is further back was taken after Envoy's clock was set back.
const OUT_OF_ORDER_MS: u64 = 10_000;

/// An endpoint as this VM knows it.
#[derive(Debug, Clone)]
pub struct EndpointState {
    /// What the agent says.
    pub record: EndpointRecord,
    /// Its shares of the prefix table.
    pub columns: Columns,
    /// Frame that gave it the columns.
    pub since: u64,
    /// Its last scrape.
    pub load: Load,
    /// When that scrape was started, by Envoy's clock, in ms; 0 = none yet.
    pub load_at_ms: u64,
    /// Learned bytes per token.
    pub bytes_per_token: f32,
    /// Adapters and attributes.
    pub signals: Signals,
}

impl EndpointState {
    /// Whether its events will tell of a prompt of this byte stream.
    #[must_use]
    pub fn tells(&self, stream: u64) -> bool {
        stream != 0 && self.columns.expected != Column::NONE
    }

    /// May it be picked?
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.record.availability == Availability::Ready
    }

    /// Is it in the pool? Without pools all are in the only one.
    #[must_use]
    pub fn is_in(&self, pool: Option<&Pool>) -> bool {
        pool.is_none_or(|pool| self.record.pools.contains(&pool.name))
    }
}

/// All endpoints, in a stable order.
#[derive(Debug, Default)]
pub struct Roster {
    endpoints: Vec<EndpointState>,
    by_id: HashMap<EndpointId, usize, id_hasher::BuildIdHasher>,
    by_column: Vec<Option<EndpointId>>,
    live: ColumnMask,
    position: Position,
    position_at_ms: u64,
    revision: u64,
}

/// Endpoint identities are hashes already: no second hashing.
mod id_hasher {
    use core::hash::{BuildHasher, Hasher};

    #[derive(Debug, Default, Clone, Copy)]
    pub(crate) struct BuildIdHasher;

    #[derive(Debug, Default)]
    pub(crate) struct IdHasher(u64);

    impl BuildHasher for BuildIdHasher {
        type Hasher = IdHasher;
        fn build_hasher(&self) -> IdHasher {
            IdHasher(0)
        }
    }

    impl Hasher for IdHasher {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            self.0 = xxhash_rust::xxh3::xxh3_64_with_seed(bytes, self.0);
        }
        fn write_u64(&mut self, id: u64) {
            self.0 = id;
        }
    }
}

impl Roster {
    /// Every endpoint.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &EndpointState> {
        self.endpoints.iter()
    }

    /// How many endpoints there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// One endpoint.
    #[must_use]
    pub fn get(&self, id: EndpointId) -> Option<&EndpointState> {
        self.endpoints.get(*self.by_id.get(&id)?)
    }

    /// The endpoint at this `ip:port`.
    #[must_use]
    pub fn by_address(&self, address: &str) -> Option<&EndpointState> {
        self.endpoints.iter().find(|endpoint| endpoint.record.address == address)
    }

    /// The endpoint that a column belongs to.
    #[must_use]
    pub fn by_column(&self, column: Column) -> Option<&EndpointState> {
        self.get((*self.by_column.get(usize::from(column.0))?)?)
    }

    /// Columns of all endpoints.
    #[must_use]
    pub fn live(&self) -> &ColumnMask {
        &self.live
    }

    /// A column that neither belongs to an endpoint nor is in `blocked`, looked for from `from` on: going round
    /// gives every VM time to sweep one before it is used again.
    #[must_use]
    pub fn free_column(&self, from: u64, blocked: &ColumnMask) -> Option<Column> {
        let from = from.checked_rem(u64::from(MAX_COLUMNS)).unwrap_or(0);
        let from = u16::try_from(from).unwrap_or(0);
        (from..MAX_COLUMNS)
            .chain(0..from)
            .map(Column)
            .find(|column| !self.live.contains(*column) && !blocked.contains(*column))
    }

    /// How far the agent's stream has been applied, and when it last answered (ms). Epoch 0: never.
    #[must_use]
    pub fn position(&self) -> (Position, u64) {
        (self.position, self.position_at_ms)
    }

    /// Another one after each change of an endpoint's record or load.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// It takes the place of `former`, which may be another one in any way: its revision is one that `former` never had.
    pub(crate) fn succeed(&mut self, former: &Self) {
        self.revision = self.revision.max(former.revision).wrapping_add(1);
    }

    /// Whether there ever was a table from the agent.
    #[must_use]
    pub fn ever_filled(&self) -> bool {
        self.position.epoch != 0
    }

    /// Since which frame a column belongs to its endpoint.
    #[must_use]
    pub fn since(&self, column: Column) -> Option<u64> {
        self.by_column(column).map(|endpoint| endpoint.since)
    }

    /// Adds or changes an endpoint. Returns the columns that it no longer uses, if it moved.
    pub(super) fn upsert(
        &mut self,
        columns: Columns,
        since: u64,
        record: &EndpointRecord,
    ) -> Vec<Column> {
        if columns.iter().any(|column| column.0 >= MAX_COLUMNS) {
            return Vec::new();
        }
        self.revision = self.revision.wrapping_add(1);
        let mut freed = Vec::new();
        match self.by_id.get(&record.id).and_then(|at| self.endpoints.get_mut(*at)) {
            Some(known) => {
                let kept = |column: &Column| columns.iter().any(|other| other == *column);
                freed.extend(known.columns.iter().filter(|column| !kept(column)));
                known.columns = columns;
                known.since = since;
                known.record = record.clone();
            }
            None => {
                self.by_id.insert(record.id, self.endpoints.len());
                self.endpoints.push(EndpointState {
                    record: record.clone(),
                    columns,
                    since,
                    load: Load::default(),
                    load_at_ms: 0,
                    bytes_per_token: DEFAULT_BYTES_PER_TOKEN,
                    signals: Signals::default(),
                });
            }
        }
        for column in &freed {
            self.set_owner(*column, None);
        }
        for column in columns.iter() {
            self.set_owner(column, Some(record.id));
        }
        freed
    }

    /// Removes an endpoint and returns its columns.
    pub(super) fn remove(&mut self, id: EndpointId) -> Vec<Column> {
        let Some(at) = self.by_id.remove(&id).filter(|at| *at < self.endpoints.len()) else {
            return Vec::new();
        };
        self.revision = self.revision.wrapping_add(1);
        let gone = self.endpoints.swap_remove(at);
        if let Some(moved) = self.endpoints.get(at) {
            self.by_id.insert(moved.record.id, at);
        }
        for column in gone.columns.iter() {
            self.set_owner(column, None);
        }
        gone.columns.iter().collect()
    }

    fn set_owner(&mut self, column: Column, owner: Option<EndpointId>) {
        let at = usize::from(column.0);
        if self.by_column.len() <= at {
            self.by_column.resize(at.saturating_add(1), None);
        }
        if let Some(place) = self.by_column.get_mut(at) {
            *place = owner;
        }
        match owner {
            Some(_) => self.live.insert(column),
            None => self.live.remove(column),
        }
    }

    pub(super) fn set_load(&mut self, id: EndpointId, at_ms: u64, load: Load) {
        let Some(endpoint) = self.get_mut(id) else { return };
        let late_ms = endpoint.load_at_ms.saturating_sub(at_ms);
        if late_ms == 0 || late_ms > OUT_OF_ORDER_MS {
            endpoint.load = load;
            endpoint.load_at_ms = at_ms;
            self.revision = self.revision.wrapping_add(1);
        }
    }

    pub(super) fn set_position(&mut self, position: Position, at_ms: u64) {
        self.position = position;
        self.position_at_ms = at_ms;
    }

    pub(super) fn set_bytes_per_token(&mut self, id: EndpointId, milli: u32) {
        // 3 decimals of a small number: exact enough in f32.
        #[allow(clippy::cast_precision_loss)]
        let value = milli as f32 / 1000.0;
        if let Some(endpoint) = self.get_mut(id) {
            endpoint.bytes_per_token = value.clamp(0.25, 64.0);
        }
    }

    pub(super) fn set_signals(&mut self, id: EndpointId, signals: &Signals) {
        if let Some(endpoint) = self.get_mut(id) {
            endpoint.signals = signals.clone();
        }
    }

    fn get_mut(&mut self, id: EndpointId) -> Option<&mut EndpointState> {
        self.endpoints.get_mut(*self.by_id.get(&id)?)
    }

    /// The whole roster as operations, for the checkpoint.
    pub fn to_ops(&self) -> impl Iterator<Item = TableOp<'static>> + '_ {
        let position = TableOp::Position { position: self.position, at_ms: self.position_at_ms };
        let endpoints = self.endpoints.iter().flat_map(|e| {
            let id = e.record.id;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let milli = (e.bytes_per_token * 1000.0) as u32;
            [
                TableOp::Endpoint { columns: e.columns, since: e.since, record: e.record.clone() },
                TableOp::Load { id, at_ms: e.load_at_ms, load: e.load },
                TableOp::BytesPerToken { id, milli },
                TableOp::Signals { id, signals: e.signals.clone() },
            ]
        });
        endpoints.chain(core::iter::once(position))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Replica, tests::record};
    use super::*;

    crate::tests! {
        fn removing_one_endpoint_leaves_the_others_reachable() {
            let mut roster = Roster::default();
            for n in 0..5 {
                roster.upsert(Columns::only(Column(n)), 1, &record(n));
            }
            assert_eq!(roster.remove(record(1).id), [Column(1)]);
            assert_eq!(roster.remove(record(1).id), []);
            for n in [0, 2, 3, 4] {
                assert_eq!(roster.get(record(n).id).map(|e| e.columns.held), Some(Column(n)));
                assert_eq!(roster.by_column(Column(n)).map(|e| e.record.id), Some(record(n).id));
            }
            assert_eq!(roster.len(), 4);
            let free = |from| roster.free_column(from, &ColumnMask::default());
            assert_eq!((free(0), free(7), free(1024 + 2)), (Some(Column(1)), Some(Column(7)), Some(Column(5))));
        }

        fn an_older_scrape_does_not_replace_a_newer_one() {
            let mut roster = Roster::default();
            roster.upsert(Columns::only(Column(0)), 1, &record(0));
            let load = |waiting| Load { waiting: Some(waiting), ..Load::default() };
            roster.set_load(record(0).id, 100, load(1.0));
            roster.set_load(record(0).id, 50, load(9.0));
            assert_eq!(roster.get(record(0).id).map(|e| e.load), Some(load(1.0)));
        }

        fn a_clock_that_was_set_back_does_not_freeze_the_loads() {
            let mut roster = Roster::default();
            roster.upsert(Columns::only(Column(0)), 1, &record(0));
            let load = |waiting| Load { waiting: Some(waiting), ..Load::default() };
            roster.set_load(record(0).id, 3_600_000, load(9.0));
            roster.set_load(record(0).id, 1000, load(0.0));
            assert_eq!(roster.get(record(0).id).map(|e| e.load), Some(load(0.0)));
        }

        fn its_revision_tells_of_records_and_loads() {
            let mut replica = Replica::default();
            let id = record(0).id;
            let endpoint = TableOp::Endpoint { columns: Columns::only(Column(0)), since: 1, record: record(0) };
            let load = |at_ms| TableOp::Load { id, at_ms, load: Load::default() };
            let unknown = TableOp::Load { id: record(1).id, at_ms: 9, load: Load::default() };
            let position = Position { epoch: 3, seq: 8 };
            for (op, changes) in [
                (endpoint, true),
                (load(100), true),
                (load(50), false),
                (unknown, false),
                (TableOp::BytesPerToken { id, milli: 2500 }, false),
                (TableOp::Position { position, at_ms: 90 }, false),
                (TableOp::Remove(id), true),
                (TableOp::Remove(id), false),
            ] {
                let before = replica.roster.revision();
                replica.apply(9, &op);
                assert_eq!(replica.roster.revision() != before, changes, "{op:?}");
            }
        }

        fn its_operations_rebuild_it() {
            let mut replica = Replica::default();
            for n in 0..3 {
                replica.apply(9, &TableOp::Endpoint { columns: Columns::only(Column(n)), since: 4, record: record(n) });
            }
            let id = record(1).id;
            let load = Load { kv_usage: Some(0.5), ..Load::default() };
            replica.apply(9, &TableOp::Load { id, at_ms: 70, load });
            replica.apply(9, &TableOp::BytesPerToken { id, milli: 2500 });
            let position = Position { epoch: 3, seq: 8 };
            replica.apply(9, &TableOp::Position { position, at_ms: 90 });
            let mut copy = Replica::default();
            replica.roster.to_ops().for_each(|op| copy.apply(9, &op));
            let known = copy.roster.get(id).unwrap();
            assert_eq!((known.load, known.load_at_ms, known.since), (load, 70, 4));
            assert!((known.bytes_per_token - 2.5).abs() < 1e-6);
            assert_eq!(copy.roster.position(), (position, 90));
            assert_eq!(copy.roster.len(), 3);
        }
    }
}
