//! Memory of engine blocks: nodes of 48 bytes in chunks, named by 32-bit numbers.
//!
//! Chunks, because a vector that doubles would waste a third of what 256 endpoints hold.

use super::blobs::BlobId;
use std::num::NonZeroU32;

const CHUNK: usize = 256;

/// Number of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeId(NonZeroU32);

impl NodeId {
    fn from_index(index: usize) -> Option<Self> {
        NonZeroU32::new(u32::try_from(index.checked_add(1)?).ok()?).map(Self)
    }

    fn index(self) -> usize {
        (self.0.get() as usize).saturating_sub(1)
    }
}

/// Its tokens' bytes are not known from some point on: neither are its children's.
pub(super) const DEAD: u8 = 1;
/// Nothing of it is covered, whatever is held.
pub(super) const EMPTY: u8 = 2;
/// It may have come from decode.
pub(super) const DECODED: u8 = 4;
/// Its first byte block, which begins in an ancestor, is counted for the device.
pub(super) const OVERLAP_DEVICE: u8 = 8;
/// The same for any tier.
pub(super) const OVERLAP_ANY: u8 = 16;
/// Events were lost since it was last known to be held: it may still be.
pub(super) const LOST: u8 = 64;
/// Its place is free.
const FREE: u8 = 32;

/// One engine block of one rank.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// The engine's name for it.
    pub(super) hash: u64,
    /// Chain hash after the last byte block that it completes (or that an ancestor did).
    pub(super) chain: u64,
    pub(super) parent: Option<NodeId>,
    pub(super) first_child: Option<NodeId>,
    pub(super) next: Option<NodeId>,
    pub(super) previous: Option<NodeId>,
    /// Bytes up to its end.
    pub(super) bytes: u32,
    /// Tokens up to its end.
    pub(super) tokens: u32,
    /// What does not fit here: see `tree`.
    pub(super) blob: Option<BlobId>,
    /// Copies in the device's memory.
    pub(super) device: u8,
    /// Copies in slower tiers.
    pub(super) lower: u8,
    /// Which of the index's ranks.
    pub(super) rank: u8,
    pub(super) flags: u8,
}

const _: () = assert!(size_of::<Node>() == 48);

impl Node {
    pub(super) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether the engine holds it anywhere.
    pub(super) fn is_held(&self) -> bool {
        self.device > 0 || self.lower > 0
    }
}

/// All nodes of one endpoint.
#[derive(Default)]
pub(super) struct Slab {
    chunks: Vec<Vec<Node>>,
    /// First free place; the next ones hang on `next`.
    free: Option<NodeId>,
    used: usize,
}

impl Slab {
    pub(super) fn len(&self) -> usize {
        self.used
    }

    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        let node = self.chunks.get(id.index() / CHUNK)?.get(id.index() % CHUNK)?;
        (!node.is(FREE)).then_some(node)
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.place(id).filter(|node| !node.is(FREE))
    }

    fn place(&mut self, id: NodeId) -> Option<&mut Node> {
        self.chunks.get_mut(id.index() / CHUNK)?.get_mut(id.index() % CHUNK)
    }

    /// `None` if there are 2³² of them.
    pub(super) fn insert(&mut self, node: Node) -> Option<NodeId> {
        if let Some(id) = self.free {
            let place = self.place(id)?;
            let next = place.next;
            *place = node;
            self.free = next;
            self.used = self.used.saturating_add(1);
            return Some(id);
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = self.chunks.len().saturating_sub(1).checked_mul(CHUNK)?;
        let chunk = self.chunks.last_mut()?;
        let id = NodeId::from_index(before.checked_add(chunk.len())?)?;
        chunk.push(node);
        self.used = self.used.saturating_add(1);
        Some(id)
    }

    pub(super) fn remove(&mut self, id: NodeId) {
        let free = self.free;
        if let Some(node) = self.get_mut(id) {
            node.flags = FREE;
            node.next = free;
            self.free = Some(id);
            self.used = self.used.saturating_sub(1);
        }
    }

    /// Numbers of all nodes of a rank.
    pub(super) fn of_rank(&self, rank: u8) -> Vec<NodeId> {
        self.chosen(|node| node.rank == rank)
    }

    /// Numbers of all nodes that are so.
    pub(super) fn chosen(&self, so: impl Fn(&Node) -> bool) -> Vec<NodeId> {
        let nodes = self.chunks.iter().flatten().enumerate();
        nodes
            .filter(|(_, node)| !node.is(FREE) && so(node))
            .filter_map(|(index, _)| NodeId::from_index(index))
            .collect()
    }
}
