//! Keeping a replica current: frames from the ring, or a rebuild from the checkpoints.

use super::{Keys, SharedStore};
use crate::flow_control::protocol::PoolKey;
use crate::replica::Replica;
use warmroute_shared_state::checkpoint::{SEGMENTS, SegmentEntry, SegmentReader, decode_roster};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::frame::{Frame, Head};
use warmroute_shared_state::table_op::TableOp;
use warmroute_shared_state::wire::WireError;

/// The applier may write on while a rebuild reads; after so many tries the next call goes on.
const REBUILD_TRIES: usize = 3;

/// Times of events kept for whoever measures.
const TOLD_KEPT: usize = 256;

/// Sessions that are kept until this VM's scheduler takes them: at its next request or tick.
const SESSIONS_KEPT: usize = 65_536;

/// What a call of [`Follower::sync`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncOutcome {
    /// There was nothing new.
    Current,
    /// So many frames were applied.
    Applied(u64),
    /// The replica was built anew.
    Rebuilt,
    /// The ring moved faster than it could be read; the replica is as it was.
    Behind,
}

/// A replica, and how far it has come.
#[derive(Debug, Default)]
pub struct Follower {
    /// What this VM knows.
    pub replica: Replica,
    applied: u64,
    must_rebuild: bool,
    scrapes: Vec<(EndpointId, u64)>,
    told_ms: Vec<u64>,
    sessions: Vec<SessionTold>,
}

/// A session that another worker bound or used.
#[derive(Debug)]
pub(super) struct SessionTold {
    pub(super) pool: PoolKey,
    /// The plugin that keeps it.
    pub(super) plugin: String,
    /// Its hash.
    pub(super) session: u64,
    pub(super) endpoint: EndpointId,
}

impl Follower {
    /// Number of the last frame that the replica includes.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// The replica holds something that was never published: build it anew at the next call.
    pub(super) fn distrust(&mut self) {
        self.must_rebuild = true;
    }

    pub(super) fn set_applied(&mut self, seq: u64) {
        self.applied = seq;
    }

    /// Scrapes seen since the last call: whose, and when they were started.
    pub(super) fn take_scrapes(&mut self) -> Vec<(EndpointId, u64)> {
        core::mem::take(&mut self.scrapes)
    }

    /// Sessions told since the last call.
    pub(super) fn take_sessions(&mut self) -> Vec<SessionTold> {
        core::mem::take(&mut self.sessions)
    }

    /// When the events happened that were applied since the last call, the oldest of each page, in ms since 1970.
    pub(super) fn take_told(&mut self) -> Vec<u64> {
        core::mem::take(&mut self.told_ms)
    }

    pub(super) fn note(&mut self, op: &TableOp<'_>) {
        match op {
            TableOp::Load { id, at_ms, .. } => self.scrapes.push((*id, *at_ms)),
            TableOp::Told { at_ms } if self.told_ms.len() < TOLD_KEPT => self.told_ms.push(*at_ms),
            TableOp::Session { pool, plugin, session, endpoint }
                if self.sessions.len() < SESSIONS_KEPT =>
            {
                self.sessions.push(SessionTold {
                    pool: PoolKey(*pool),
                    plugin: (*plugin).to_owned(),
                    session: *session,
                    endpoint: *endpoint,
                });
            }
            _ => {}
        }
    }

    /// Reads the head and applies what is new.
    pub(super) fn sync(&mut self, store: &dyn SharedStore, keys: &Keys) -> SyncOutcome {
        let head = read_head(store, keys);
        if head.seq == self.applied && !self.must_rebuild {
            return SyncOutcome::Current;
        }
        let missed = head.seq.checked_sub(self.applied);
        let in_ring = missed.is_some_and(|missed| missed < keys.ring_slots());
        if in_ring && !self.must_rebuild && self.apply_frames(store, keys, head.seq).is_ok() {
            return SyncOutcome::Applied(missed.unwrap_or(0));
        }
        self.rebuild(store, keys)
    }

    fn apply_frames(
        &mut self,
        store: &dyn SharedStore,
        keys: &Keys,
        up_to: u64,
    ) -> Result<(), WireError> {
        while self.applied < up_to {
            let seq = self.applied.saturating_add(1);
            let (bytes, _) = store.get(keys.frame(seq)).unwrap_or_default();
            let mut frame = Frame::open(&bytes)?;
            if frame.seq != seq {
                return Err(WireError::Checksum);
            }
            while let Some(op) = frame.next_op()? {
                self.note(&op);
                self.replica.apply(seq, &op);
            }
            self.applied = seq;
        }
        Ok(())
    }

    fn rebuild(&mut self, store: &dyn SharedStore, keys: &Keys) -> SyncOutcome {
        for _ in 0..REBUILD_TRIES {
            let head = read_head(store, keys);
            let mut fresh = Self { applied: head.floor, ..Self::default() };
            let loaded = fresh
                .load_checkpoints(store, keys)
                .and_then(|()| fresh.apply_frames(store, keys, head.seq));
            if loaded.is_ok() {
                fresh.replica.roster.succeed(&self.replica.roster);
                *self = fresh;
                return SyncOutcome::Rebuilt;
            }
        }
        SyncOutcome::Behind
    }

    fn load_checkpoints(&mut self, store: &dyn SharedStore, keys: &Keys) -> Result<(), WireError> {
        let (bytes, _) = store.get(&keys.roster).unwrap_or_default();
        if !bytes.is_empty() {
            let (seq, ops) = decode_roster(&bytes)?;
            for op in ops {
                self.note(&op);
                self.replica.apply(seq, &op);
            }
        }
        for segment in 0..SEGMENTS {
            let (bytes, _) = store.get(keys.segment(segment)).unwrap_or_default();
            if bytes.is_empty() {
                continue;
            }
            let mut reader = SegmentReader::open(&bytes)?;
            while let Some(entry) = reader.next_entry()? {
                for column in entry.columns {
                    // A column that got its endpoint after the chunk was written starts empty.
                    let since = self.replica.roster.since(column);
                    if since.is_some_and(|since| since <= reader.seq) {
                        let SegmentEntry { hash, stamp, tokens, .. } = entry;
                        self.replica.table.restore(column, stamp, tokens, hash);
                    }
                }
            }
        }
        Ok(())
    }
}

pub(super) fn read_head(store: &dyn SharedStore, keys: &Keys) -> Head {
    store.get(&keys.head).and_then(|(bytes, _)| Head::decode(&bytes).ok()).unwrap_or_default()
}
