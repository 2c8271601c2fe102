//! Events in, changes out.

use super::chain::{Cutter, End, tail_len};
use super::changes::Changes;
use super::counters::{Counters, bump};
use super::decode_check::{self, Verdict};
use super::scope::{Salt, is_plain, salt};
use super::slab::{DEAD, DECODED, NodeId};
use super::tree::{New, Tree};
use super::{ModelContext, byte_blocks};
use crate::kv_events::event::{Event, GroupKind, Medium, Removed, Stored};
use warmroute_shared_state::prefix::ChainScope;

/// What an index holds at most: events could make it grow without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Engine blocks, ghosts included. Blocks beyond are not taken in.
    pub blocks: usize,
    /// Blocks that are gone while blocks that hang on them are held. Beyond, those are given up too.
    pub ghosts: usize,
    /// Blocks that stay known when events are lost. They count as [`blocks`](Self::blocks) too, and
    /// go first when those are too many.
    pub lost: usize,
}

impl Default for Limits {
    /// A million blocks: 16 million tokens of 16 to a block, about 110 MB. 65,536 stay after a
    /// loss: more than most engines have, 7 MB.
    fn default() -> Self {
        Self { blocks: 1 << 20, ghosts: 1 << 16, lost: 1 << 16 }
    }
}

/// Most data-parallel ranks of an endpoint.
const MAX_RANKS: usize = 255;

/// One data-parallel rank: its blocks are its own.
struct Rank {
    number: u32,
    /// The KV cache group that is followed: the first with full attention.
    group: Option<u32>,
    /// Groups known to be something else. At most [`MAX_OTHER_GROUPS`].
    others: Vec<u32>,
}

const MAX_OTHER_GROUPS: usize = 256;

/// What one endpoint holds.
#[derive(Default)]
pub struct Index {
    limits: Limits,
    tree: Tree,
    ranks: Vec<Rank>,
    /// The last bytes of the chain at hand.
    tail: Vec<u8>,
    /// The block that they end with, while one event is read.
    tail_of: Option<NodeId>,
    cutter: Cutter,
    counters: Counters,
    check: decode_check::Scratch,
}

impl Index {
    /// An index that holds nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes in one event of a rank (0 if the engine has one). What it changes is told by [`drain`](Self::drain), which
    /// may be called after several events.
    pub fn apply(&mut self, rank: u32, event: &Event, model: &ModelContext<'_>) {
        let Some(rank) = self.rank(rank) else { return };
        match event {
            Event::Stored(stored) => self.store(rank, stored, model),
            Event::Removed(removed) => self.remove(rank, removed),
            Event::Cleared => self.clear_slot(rank),
        }
    }

    /// Voids what a rank holds: events of its engine were lost. Blocks stay known, at most
    /// [`Limits::lost`], and count as held again when they are stored, or when something is stored that hangs on
    /// them.
    pub fn lose(&mut self, rank: u32) {
        if let Some(rank) = self.rank(rank) {
            let only = self.ranks.len() <= 1;
            bump(&mut self.counters.over_limit, self.tree.lose(rank, only, self.limits.lost));
        }
    }

    /// Voids what a rank holds and forgets its names: its engine restarted, or may be another.
    pub fn clear_rank(&mut self, rank: u32) {
        if let Some(slot) = self.rank(rank) {
            self.clear_slot(slot);
            if let Some(rank) = self.ranks.get_mut(usize::from(slot)) {
                // Another engine may count its groups otherwise.
                *rank = Rank { number: rank.number, group: None, others: Vec::new() };
            }
        }
    }

    /// Writes what changed since the last call into `changes`, whose content is replaced.
    pub fn drain(&mut self, changes: &mut Changes) {
        self.tree.byte_blocks.drain(changes);
    }

    /// Makes the next [`drain`](Self::drain) tell all that is covered, as if nothing had been told.
    pub fn tell_anew(&mut self) {
        self.tree.byte_blocks.tell_anew();
    }

    /// Whether a block in a slower tier has ever been told of. From then on tier `Any` is told too.
    #[must_use]
    pub fn has_lower_tier(&self) -> bool {
        self.tree.byte_blocks.tells_any()
    }

    /// What was seen so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Engine blocks that are held now.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.tree.held()
    }

    /// Engine blocks that are not held, but known: others hang on them, or events were lost.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.tree.ghosts
    }

    /// Byte blocks that are covered now.
    #[must_use]
    pub fn byte_blocks(&self) -> usize {
        self.tree.byte_blocks.len()
    }

    /// Engine blocks that are known, ghosts included.
    #[cfg(test)]
    pub(super) fn nodes(&self) -> usize {
        self.tree.nodes.len()
    }

    fn rank(&mut self, number: u32) -> Option<u8> {
        if let Some(slot) = self.ranks.iter().position(|rank| rank.number == number) {
            return u8::try_from(slot).ok();
        }
        if self.ranks.len() >= MAX_RANKS {
            bump(&mut self.counters.over_limit, 1);
            return None;
        }
        self.ranks.push(Rank { number, group: None, others: Vec::new() });
        u8::try_from(self.ranks.len().saturating_sub(1)).ok()
    }

    fn clear_slot(&mut self, rank: u8) {
        if self.ranks.len() <= 1 {
            self.tree.clear();
        } else {
            self.tree.clear_rank(rank);
        }
    }

    /// Whether blocks of this group are prefixes, and the rank's only ones.
    fn follows(&mut self, rank: u8, group: u32, kind: GroupKind) -> bool {
        let Some(rank) = self.ranks.get_mut(usize::from(rank)) else { return false };
        if kind == GroupKind::Other {
            let others = &mut rank.others;
            if !others.contains(&group) && others.len() < MAX_OTHER_GROUPS {
                others.push(group);
            }
            return false;
        }
        if kind == GroupKind::Unsaid && rank.others.contains(&group) {
            return false;
        }
        *rank.group.get_or_insert(group) == group
    }

    fn remove(&mut self, rank: u8, removed: &Removed) {
        let followed = self.ranks.get(usize::from(rank)).and_then(|rank| rank.group);
        if followed != Some(removed.group) {
            return;
        }
        let lower = removed.medium == Medium::Lower;
        for hash in &removed.hashes {
            let known = self.tree.find(rank, *hash);
            if known.is_some_and(|id| self.tree.release(id, lower)) {
                bump(&mut self.counters.removed, 1);
            } else {
                bump(&mut self.counters.unknown_removals, 1);
                if let Some(id) = known.filter(|_| !lower) {
                    self.tree.remove_ghost(id);
                }
            }
            if let Some(id) = known.filter(|_| self.tree.ghosts() > self.limits.ghosts) {
                let before = self.tree.held();
                self.tree.drop_family(id);
                let lost = before.saturating_sub(self.tree.held());
                bump(&mut self.counters.over_limit, lost);
            }
        }
    }

    fn store(&mut self, rank: u8, stored: &Stored, model: &ModelContext<'_>) {
        let count = stored.hashes.len();
        let lower = stored.medium == Medium::Lower;
        if !self.follows(rank, stored.group, stored.kind) {
            bump(&mut self.counters.other_groups, count);
            return;
        }
        if lower {
            self.tree.byte_blocks.tell_any();
        }
        // Offload connectors name blocks without their tokens.
        if lower && stored.tokens.is_empty() {
            for hash in &stored.hashes {
                match self.tree.find(rank, *hash) {
                    Some(id) => self.hold(id, true),
                    None => bump(&mut self.counters.unknown_copies, 1),
                }
            }
            return;
        }
        let size = stored.block_size as usize;
        if size == 0
            || size > usize::from(u16::MAX)
            || count.checked_mul(size) != Some(stored.tokens.len())
        {
            bump(&mut self.counters.malformed, 1);
            return;
        }
        // Before anything is looked up, for it may go.
        if self.tree.lost > 0 && self.tree.nodes.len().saturating_add(count) > self.limits.blocks {
            bump(&mut self.counters.over_limit, self.tree.give_up_lost());
        }
        self.tail_of = None;
        let mut parent = None;
        if let Some(hash) = stored.parent {
            parent = self.tree.find(rank, hash);
            let Some(parent) = parent else {
                bump(&mut self.counters.orphans, count);
                return;
            };
            // A copy to a slower tier may be made when the prefix is gone.
            if !lower && (self.tree.ghosts > 0 || self.has_lower_tier()) {
                // Not for each block of an answer: a prompt's cost is already that of its length.
                bump(&mut self.counters.revived, self.tree.revive(parent, count > 1));
            }
        }
        for (position, (hash, ids)) in
            stored.hashes.iter().zip(stored.tokens.chunks_exact(size)).enumerate()
        {
            let id = match self.tree.find(rank, *hash) {
                Some(id) => Some(id),
                None if self.tree.nodes.len() >= self.limits.blocks => None,
                None => self.insert(rank, stored, position, *hash, parent, ids, model),
            };
            let Some(id) = id else {
                bump(&mut self.counters.over_limit, count.saturating_sub(position));
                return;
            };
            self.hold(id, lower);
            parent = Some(id);
        }
    }

    fn hold(&mut self, id: NodeId, lower: bool) {
        bump(&mut self.counters.stored, 1);
        if !self.tree.hold(id, lower) {
            bump(&mut self.counters.over_limit, 1);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a block's place in its event and in the tree")]
    fn insert(
        &mut self,
        rank: u8,
        stored: &Stored,
        position: usize,
        hash: u64,
        parent: Option<NodeId>,
        ids: &[u32],
        model: &ModelContext<'_>,
    ) -> Option<NodeId> {
        let before = parent.and_then(|id| self.tree.nodes.get(id)).map_or(0, |node| node.tokens);
        let tokens = before.saturating_add(stored.block_size);
        let mut new = New { rank, hash, parent, tokens, flags: 0 };
        let Some(start) = self.start(stored, position, parent, tokens, model) else {
            return self.tree.insert(&new, None);
        };
        if parent.is_none() {
            self.tail.clear();
        } else if self.tail_of != parent
            && !parent.is_some_and(|id| self.tree.tail(id, &mut self.tail, model.tokens))
        {
            // Ids of another tokenizer.
            bump(&mut self.counters.unknown_ids, 1);
            return self.tree.insert(&new, None);
        }
        self.tail_of = None;
        if stored.hashes.len() == 1 {
            new.flags = DECODED;
            let verdict = decode_check::check(&mut self.check, start.bytes, &self.tail, ids, model);
            if verdict == Verdict::Same {
                bump(&mut self.counters.checked, 1);
            } else {
                bump(&mut self.counters.differing, 1);
                let decoded = |id: &NodeId| self.tree.nodes.get(*id).is_some_and(|n| n.is(DECODED));
                if let Some(parent) = parent.filter(decoded)
                    && verdict == Verdict::BeforeDiffers
                {
                    self.tree.kill(parent);
                }
                return self.tree.insert(&new, None);
            }
        }
        let cut = self.cutter.cut(start, &self.tail, ids, model.tokens);
        if cut.dead {
            bump(&mut self.counters.unknown_ids, 1);
        }
        let id = self.tree.insert(&new, Some((cut, &self.cutter)));
        self.tail.clear();
        self.tail.extend_from_slice(self.cutter.last(tail_len(cut.end.bytes)));
        self.tail_of = id;
        id
    }

    /// Where the bytes of a block begin; `None` if it has no known ones.
    fn start(
        &mut self,
        stored: &Stored,
        position: usize,
        parent: Option<NodeId>,
        tokens: u32,
        model: &ModelContext<'_>,
    ) -> Option<End> {
        if tokens > byte_blocks::MAX_TOKENS {
            return None;
        }
        if let Some(parent) = parent {
            if self.tree.nodes.get(parent)?.is(DEAD) {
                return None;
            }
            if !is_plain(stored, position) {
                bump(&mut self.counters.opaque_keys, 1);
                return None;
            }
            return self.tree.end(parent);
        }
        let cache_salt = match salt(stored, position) {
            Salt::None => None,
            Salt::Text(text) => Some(text),
            Salt::Unknown => {
                bump(&mut self.counters.opaque_keys, 1);
                return None;
            }
        };
        let model_name = stored.adapter.as_deref().unwrap_or(model.model);
        let scope =
            ChainScope { stream: model.stream, model: model_name, adapter: None, cache_salt };
        Some(End { hash: scope.root(), bytes: 0 })
    }
}
