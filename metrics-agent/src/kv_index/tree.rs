//! Engine blocks of one endpoint and how they hang together.
//!
//! A block that is gone while blocks that hang on it are held stays as a *ghost*: when it is stored
//! again, they are prefixes again. Ghosts without children are given up, and so are those beyond a
//! limit, with all that hangs on them. Those of a loss stay longer: see `lost`.
//!
//! What is kept of a node's tokens is in its blob: see `kept`.

use super::blobs::Blobs;
use super::byte_blocks::ByteBlocks;
use super::chain::{Cut, Cutter, End, tail_len};
use super::kept;
use super::slab::{DEAD, EMPTY, LOST, Node, NodeId, Slab};
use crate::kv_events::event::BlockHash;
use crate::tokenizer::bytes::TokenBytes;
use hashbrown::HashTable;
use warmroute_shared_state::block::Block;
use warmroute_shared_state::prefix::BLOCK_BYTES;

/// All engine blocks of one endpoint.
#[derive(Default)]
pub(super) struct Tree {
    pub(super) nodes: Slab,
    pub(super) blobs: Blobs,
    pub(super) byte_blocks: ByteBlocks,
    by_name: HashTable<NodeId>,
    /// Those that are not held.
    pub(super) ghosts: usize,
    /// Those of them that stay even without children, for events were lost: see `lost`.
    pub(super) lost: usize,
}

/// A node that is to be made.
pub(super) struct New {
    pub(super) rank: u8,
    pub(super) hash: BlockHash,
    pub(super) parent: Option<NodeId>,
    pub(super) tokens: u32,
    pub(super) flags: u8,
}

/// Engines' hashes are digests, or their low bits: mixed once more, as some might count.
fn mixed(rank: u8, hash: BlockHash) -> u64 {
    let wide = u128::from(hash ^ (u64::from(rank) << 56) ^ 0x9e37_79b9_7f4a_7c15)
        .wrapping_mul(0xd6e8_feb8_6659_fd93);
    (wide as u64) ^ ((wide >> 64) as u64)
}

impl Tree {
    /// The block of that name, held or ghost.
    pub(super) fn find(&self, rank: u8, hash: BlockHash) -> Option<NodeId> {
        let is_it = |id: &NodeId| {
            self.nodes.get(*id).is_some_and(|node| node.hash == hash && node.rank == rank)
        };
        self.by_name.find(mixed(rank, hash), is_it).copied()
    }

    /// Engine blocks that are held.
    pub(super) fn held(&self) -> usize {
        self.nodes.len().saturating_sub(self.ghosts)
    }

    /// Ghosts that stay only for the blocks that hang on them.
    pub(super) fn ghosts(&self) -> usize {
        self.ghosts.saturating_sub(self.lost)
    }

    /// The end of a chain.
    pub(super) fn end(&self, id: NodeId) -> Option<End> {
        self.nodes.get(id).map(|node| End { hash: node.chain, bytes: node.bytes })
    }

    /// Puts the last bytes of a chain ([`tail_len`]) into `tail`. Returns false if the ids that are kept of it have
    /// other bytes in this table.
    pub(super) fn tail(&self, id: NodeId, tail: &mut Vec<u8>, table: &TokenBytes) -> bool {
        tail.clear();
        let Some(node) = self.nodes.get(id).filter(|node| !node.is(DEAD)) else { return false };
        tail.resize(tail_len(node.bytes), 0);
        let mut missing = tail.as_mut_slice();
        let mut own = Vec::with_capacity(256);
        let mut at = Some(node);
        while let Some(node) = at.filter(|_| !missing.is_empty()) {
            own.clear();
            for id in kept::ids(self.blob(node), self.ended(node)) {
                own.extend_from_slice(table.get(id).unwrap_or_default());
            }
            let len = self.own_len(node).min(missing.len());
            let Some(own) = own.len().checked_sub(len).and_then(|from| own.get(from..)) else {
                return false;
            };
            let (before, place) = missing.split_at_mut(missing.len().saturating_sub(len));
            place.copy_from_slice(own);
            missing = before;
            at = node.parent.and_then(|parent| self.nodes.get(parent));
        }
        missing.is_empty()
    }

    fn blob(&self, node: &Node) -> &[u8] {
        node.blob.map(|blob| self.blobs.get(blob)).unwrap_or_default()
    }

    /// How many of the chain's last bytes are a node's own.
    fn own_len(&self, node: &Node) -> usize {
        if node.is(DEAD) {
            return 0;
        }
        tail_len(node.bytes).min(node.bytes.saturating_sub(self.start(node)) as usize)
    }

    /// Adds a block that nobody holds yet, with the bytes that `cutter` just cut, if it has any.
    pub(super) fn insert(&mut self, new: &New, cut: Option<(Cut, &Cutter)>) -> Option<NodeId> {
        let mut node = Node {
            hash: new.hash,
            chain: 0,
            parent: new.parent,
            first_child: None,
            next: None,
            previous: None,
            bytes: 0,
            tokens: new.tokens,
            blob: None,
            device: 0,
            lower: 0,
            rank: new.rank,
            flags: new.flags,
        };
        if let Some((cut, cutter)) = cut {
            node.chain = cut.end.hash;
            node.bytes = cut.end.bytes;
            let mut blob = Vec::with_capacity(192);
            if cut.dead {
                node.flags |= DEAD;
            }
            kept::write(&mut blob, &cutter.ended, cutter.last_ids(self.own_len(&node)));
            node.blob = self.blobs.put(&blob);
            if node.blob.is_none() {
                node.flags |= DEAD | EMPTY;
            }
        } else {
            node.flags |= DEAD | EMPTY;
        }
        let key = mixed(new.rank, new.hash);
        let id = self.nodes.insert(node)?;
        let nodes = &self.nodes;
        let rehash = |id: &NodeId| nodes.get(*id).map_or(0, |node| mixed(node.rank, node.hash));
        self.by_name.insert_unique(key, id, rehash);
        self.link(id, new.parent);
        self.ghosts = self.ghosts.saturating_add(1);
        Some(id)
    }

    /// One more copy in a tier. Returns whether that was not full.
    pub(super) fn hold(&mut self, id: NodeId, lower: bool) -> bool {
        let Some(node) = self.nodes.get_mut(id) else { return false };
        let was_held = node.is_held();
        let count = if lower { &mut node.lower } else { &mut node.device };
        // Beyond, copies are not counted: the block is taken for gone too early, never too late.
        let Some(more) = count.checked_add(1) else { return false };
        *count = more;
        if !was_held {
            self.ghosts = self.ghosts.saturating_sub(1);
            if node.is(LOST) {
                node.flags &= !LOST;
                self.lost = self.lost.saturating_sub(1);
            }
        }
        if more == 1 {
            self.held_changed(id, lower, !was_held);
        }
        true
    }

    /// One copy less in a tier. Returns whether there was one.
    pub(super) fn release(&mut self, id: NodeId, lower: bool) -> bool {
        let Some(node) = self.nodes.get_mut(id) else { return false };
        let count = if lower { &mut node.lower } else { &mut node.device };
        let Some(less) = count.checked_sub(1) else { return false };
        *count = less;
        let is_held = node.is_held();
        if less == 0 {
            self.held_changed(id, lower, !is_held);
        }
        if !is_held {
            self.ghosts = self.ghosts.saturating_add(1);
            self.prune(id);
        }
        true
    }

    /// Gives up all blocks, and says so in one word.
    pub(super) fn clear(&mut self) {
        self.nodes = Slab::default();
        self.blobs = Blobs::default();
        self.by_name = HashTable::new();
        self.ghosts = 0;
        self.lost = 0;
        self.byte_blocks.clear();
    }

    /// Gives up all blocks of one rank.
    pub(super) fn clear_rank(&mut self, rank: u8) {
        for id in self.nodes.of_rank(rank) {
            // Unless it went with its parent.
            if self.nodes.get(id).is_some_and(|node| node.rank == rank) {
                self.drop_family(id);
            }
        }
    }

    /// Gives up a ghost without children, and ancestors that thereby become such.
    pub(super) fn prune(&mut self, id: NodeId) {
        let mut at = Some(id);
        while let Some(id) = at {
            let Some(node) = self.nodes.get(id) else { return };
            if node.is_held() || node.first_child.is_some() || node.is(LOST) {
                return;
            }
            at = node.parent;
            self.forget(id);
        }
    }

    /// Gives up a block and all that hangs on it.
    pub(super) fn drop_family(&mut self, id: NodeId) {
        let parent = self.nodes.get(id).and_then(|node| node.parent);
        for id in self.family(id).into_iter().rev() {
            self.void(id);
            self.forget(id);
        }
        if let Some(parent) = parent {
            self.prune(parent);
        }
    }

    /// Nothing of a block and of what hangs on it is covered from now on. They stay known.
    pub(super) fn kill(&mut self, id: NodeId) {
        for id in self.family(id).into_iter().rev() {
            self.uncover(id);
            let Some(node) = self.nodes.get(id) else { continue };
            let len = kept::len(self.blob(node), self.ended(node));
            let blob = node.blob;
            if let Some(node) = self.nodes.get_mut(id) {
                node.flags |= DEAD | EMPTY;
                node.blob = None;
            }
            if let Some(blob) = blob {
                self.blobs.free(blob, len);
            }
        }
    }

    /// A block and all that hangs on it, parents before children.
    fn family(&self, id: NodeId) -> Vec<NodeId> {
        let mut family = vec![id];
        let mut at = 0;
        while let Some(id) = family.get(at) {
            let children = self.children(*id);
            family.extend(children);
            at = at.saturating_add(1);
        }
        family
    }

    pub(super) fn children(&self, id: NodeId) -> Vec<NodeId> {
        let mut children = Vec::new();
        let mut at = self.nodes.get(id).and_then(|node| node.first_child);
        while let Some(id) = at {
            children.push(id);
            at = self.nodes.get(id).and_then(|node| node.next);
        }
        children
    }

    /// Takes a block's copies away without looking at what hangs on it.
    pub(super) fn void(&mut self, id: NodeId) {
        self.uncover(id);
        if let Some(node) = self.nodes.get_mut(id)
            && node.is_held()
        {
            node.device = 0;
            node.lower = 0;
            self.ghosts = self.ghosts.saturating_add(1);
        }
    }

    /// Takes a ghost without children out.
    pub(super) fn forget(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(id).cloned() else { return };
        if let Some(blob) = node.blob {
            let len = kept::len(self.blobs.get(blob), self.ended(&node));
            self.blobs.free(blob, len);
        }
        self.unlink(&node);
        let is_it = |other: &NodeId| *other == id;
        if let Ok(entry) = self.by_name.find_entry(mixed(node.rank, node.hash), is_it) {
            entry.remove();
        }
        self.nodes.remove(id);
        self.ghosts = self.ghosts.saturating_sub(1);
        if node.is(LOST) {
            self.lost = self.lost.saturating_sub(1);
        }
    }

    fn link(&mut self, id: NodeId, parent: Option<NodeId>) {
        let Some(parent) = parent.and_then(|parent| self.nodes.get_mut(parent)) else { return };
        let next = parent.first_child.replace(id);
        if let Some(next) = next.and_then(|next| self.nodes.get_mut(next)) {
            next.previous = Some(id);
        }
        if let Some(node) = self.nodes.get_mut(id) {
            node.next = next;
        }
    }

    fn unlink(&mut self, node: &Node) {
        if let Some(next) = node.next.and_then(|next| self.nodes.get_mut(next)) {
            next.previous = node.previous;
        }
        if let Some(previous) = node.previous {
            if let Some(previous) = self.nodes.get_mut(previous) {
                previous.next = node.next;
            }
        } else if let Some(parent) = node.parent.and_then(|parent| self.nodes.get_mut(parent)) {
            parent.first_child = node.next;
        }
    }

    /// Bytes before a node.
    pub(super) fn start(&self, node: &Node) -> u32 {
        node.parent.and_then(|parent| self.nodes.get(parent)).map_or(0, |parent| parent.bytes)
    }

    /// How many byte blocks it ends.
    pub(super) fn ended(&self, node: &Node) -> usize {
        if node.is(EMPTY) {
            return 0;
        }
        let start = self.start(node) as usize;
        (node.bytes as usize / BLOCK_BYTES).saturating_sub(start / BLOCK_BYTES)
    }

    /// The byte block that a node ends as its `position`-th.
    pub(super) fn ended_block(&self, node: &Node, position: usize) -> Option<Block> {
        let (hash, tokens) = kept::ended(self.blob(node), self.ended(node), position)?;
        let parent = node.parent.and_then(|parent| self.nodes.get(parent));
        let before = parent.map_or(0, |parent| parent.tokens);
        // The last one's is where the chain stands.
        Some(Block {
            hash: hash.unwrap_or(node.chain),
            tokens: before.saturating_add(tokens.into()),
        })
    }
}
