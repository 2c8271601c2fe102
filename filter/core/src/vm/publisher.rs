//! The applier's side of the ring: frames, head, and checkpoints that keep pace with them.

use super::follower::read_head;
use super::{Follower, Keys, Lease, SharedStore};
use crate::replica::Replica;
use std::collections::VecDeque;
use warmroute_shared_state::checkpoint::{SEGMENTS, SegmentWriter, encode_roster, segment_of};
use warmroute_shared_state::frame::{FrameBuilder, Head, seal_frame};
use warmroute_shared_state::table_op::TableOp;

/// The lease went to another VM, or the head was written by another: the role is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RoleLost;

/// Collects operations and publishes them.
#[derive(Debug)]
pub(super) struct Publisher {
    builder: FrameBuilder,
    head: Head,
    /// For each segment: the first frame that its checkpoint may lack; 0 = it lacks none.
    dirty_since: Vec<u64>,
    /// Dirty segments, the longest dirty first.
    dirty: VecDeque<usize>,
    roster_dirty_since: u64,
    /// Frames are being written: what is checkpointed now may already hold what later ones say.
    publishing: bool,
}

impl Publisher {
    /// Goes on from where the ring stands. Checkpoints of a former applier are not trusted to be
    /// complete: all of them count as lacking everything after the floor.
    #[must_use]
    pub(super) fn new(store: &dyn SharedStore, keys: &Keys) -> Self {
        let head = read_head(store, keys);
        let since = head.floor.saturating_add(1);
        Self {
            builder: FrameBuilder::default(),
            head,
            dirty_since: vec![since; SEGMENTS],
            dirty: (0..SEGMENTS).collect(),
            roster_dirty_since: since,
            publishing: false,
        }
    }

    /// Number that the next frame will have.
    #[must_use]
    pub(super) fn next_seq(&self) -> u64 {
        self.head.seq.saturating_add(1)
    }

    /// Adds an operation to the next frame. The replica must have applied it already.
    pub(super) fn push(&mut self, op: &TableOp<'_>) {
        match op {
            TableOp::Insert { hashes, .. } | TableOp::Evict { hashes, .. } => {
                hashes.for_each(|hash| self.mark_dirty(segment_of(hash)));
            }
            TableOp::Store { blocks, .. } => {
                blocks.for_each(|block| self.mark_dirty(segment_of(block.hash)));
            }
            TableOp::Told { .. } => {}
            _ => {
                if self.roster_dirty_since == 0 {
                    self.roster_dirty_since = self.next_seq();
                }
            }
        }
        self.builder.push(op);
    }

    fn mark_dirty(&mut self, segment: usize) {
        let next = self.next_seq();
        if let Some(since) = self.dirty_since.get_mut(segment)
            && *since == 0
        {
            *since = next;
            self.dirty.push_back(segment);
        }
    }

    /// Whether something waits to be published.
    #[must_use]
    pub(super) fn has_news(&self) -> bool {
        !self.builder.is_empty()
    }

    fn lags(&self) -> bool {
        self.publishing || self.has_news()
    }

    /// Writes what was collected: frames first, the head last.
    ///
    /// # Errors
    /// If another VM has the role by now. Then the replica holds what was never published.
    pub(super) fn publish(
        &mut self,
        store: &dyn SharedStore,
        keys: &Keys,
        incarnation: u64,
        follower: &mut Follower,
    ) -> Result<(), RoleLost> {
        if !self.has_news() {
            return Ok(());
        }
        self.publishing = true;
        let outcome = self.publish_frames(store, keys, incarnation, follower);
        self.publishing = false;
        outcome
    }

    fn publish_frames(
        &mut self,
        store: &dyn SharedStore,
        keys: &Keys,
        incarnation: u64,
        follower: &mut Follower,
    ) -> Result<(), RoleLost> {
        for body in self.builder.take() {
            let seq = self.next_seq();
            while seq.saturating_sub(self.floor()) >= keys.ring_slots() {
                self.checkpoint_oldest(store, keys, &follower.replica);
            }
            let (_, slot_cas) = store.get(keys.frame(seq)).unwrap_or_default();
            let (head_bytes, head_cas) = store.get(&keys.head).unwrap_or_default();
            let current = Head::decode(&head_bytes).unwrap_or_default();
            if Lease::read(store, keys).holder != incarnation || current.seq != self.head.seq {
                return Err(RoleLost);
            }
            let frame = seal_frame(seq, incarnation, &body);
            store.set(keys.frame(seq), &frame, Some(slot_cas)).map_err(|_| RoleLost)?;
            let head = Head { seq, writer: incarnation, floor: self.floor() };
            store.set(&keys.head, &head.encode(), Some(head_cas)).map_err(|_| RoleLost)?;
            self.head = head;
            follower.set_applied(seq);
        }
        Ok(())
    }

    /// Checkpoints with everything after this frame give the whole table.
    #[must_use]
    pub(super) fn floor(&self) -> u64 {
        let segment = self.dirty.front().and_then(|s| self.dirty_since.get(*s)).copied();
        let roster = (self.roster_dirty_since != 0).then_some(self.roster_dirty_since);
        match segment.into_iter().chain(roster).min() {
            Some(first_lacking) => first_lacking.saturating_sub(1),
            None => self.head.seq,
        }
    }

    /// Writes at most `limit` checkpoints that lag behind by a quarter of the ring. For ticks.
    pub(super) fn checkpoint_some(
        &mut self,
        store: &dyn SharedStore,
        keys: &Keys,
        replica: &Replica,
        limit: usize,
    ) {
        let quarter = keys.ring_slots() / 4;
        for _ in 0..limit {
            if self.head.seq.saturating_sub(self.floor()) < quarter {
                return;
            }
            self.checkpoint_oldest(store, keys, replica);
        }
    }

    fn checkpoint_oldest(&mut self, store: &dyn SharedStore, keys: &Keys, replica: &Replica) {
        let oldest = self.dirty.front().copied();
        let since = oldest.and_then(|s| self.dirty_since.get(s)).copied().unwrap_or(u64::MAX);
        if self.roster_dirty_since != 0 && self.roster_dirty_since <= since {
            let chunk = encode_roster(self.head.seq, |each| replica.for_each_op(each));
            let _ = store.set(&keys.roster, &chunk, None);
            self.roster_dirty_since = if self.lags() { self.next_seq() } else { 0 };
            return;
        }
        let Some(segment) = self.dirty.pop_front() else { return };
        let mut writer = SegmentWriter::new(self.head.seq);
        replica.table.for_each_in_segment(segment, |entry| {
            let live = entry.columns.and(replica.roster.live());
            if !live.is_empty() {
                let columns: Vec<_> = live.iter().collect();
                writer.push(entry.hash, entry.stamp, entry.tokens, columns.into_iter());
            }
        });
        let _ = store.set(keys.segment(segment), &writer.finish(), None);
        if let Some(since) = self.dirty_since.get_mut(segment) {
            *since = 0;
        }
        if self.lags() {
            // Operations not yet published may concern it: stay on the safe side.
            self.mark_dirty(segment);
        }
    }
}
