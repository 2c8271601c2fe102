//! Which byte blocks the held engine blocks cover whole.
//!
//! A byte block is ended by the engine block that its last byte lies in. All that an engine block
//! ends begin in it too, but for the first, which may begin in its parent or further up: that one is covered
//! only if all of those are held, and is looked at again when one of them comes or goes.

use super::slab::{DEAD, Node, NodeId, OVERLAP_ANY, OVERLAP_DEVICE};
use super::tree::Tree;
use warmroute_shared_state::block::Tier;
use warmroute_shared_state::prefix::BLOCK_BYTES;

fn holds(node: &Node, tier: Tier) -> bool {
    match tier {
        Tier::Device => node.device > 0,
        Tier::Any => node.is_held(),
    }
}

fn overlap_flag(tier: Tier) -> u8 {
    match tier {
        Tier::Device => OVERLAP_DEVICE,
        Tier::Any => OVERLAP_ANY,
    }
}

impl Tree {
    /// A node's first copy in a tier came or its last one went.
    pub(super) fn held_changed(&mut self, id: NodeId, lower: bool, any: bool) {
        if !lower {
            self.cover(id, Tier::Device);
        }
        if any {
            self.cover(id, Tier::Any);
        }
    }

    fn cover(&mut self, id: NodeId, tier: Tier) {
        let Some(node) = self.nodes.get(id) else { return };
        let held = holds(node, tier);
        self.count_inner(id, tier, held);
        self.look_at_overlap(id, tier);
        // Whose first byte block begins in this node or before.
        let mut parents = vec![id];
        while let Some(parent) = parents.pop() {
            let Some(node) = self.nodes.get(parent) else { continue };
            if node.first_child.is_none()
                || node.is(DEAD)
                || (node.bytes as usize).is_multiple_of(BLOCK_BYTES)
            {
                continue;
            }
            for child in self.children(parent) {
                if self.nodes.get(child).is_some_and(|node| self.ended(node) == 0) {
                    parents.push(child);
                } else {
                    self.look_at_overlap(child, tier);
                }
            }
        }
    }

    /// Counts (or no longer counts) the byte blocks that lie in the node whole.
    fn count_inner(&mut self, id: NodeId, tier: Tier, held: bool) {
        let Some(node) = self.nodes.get(id) else { return };
        let first = usize::from(self.has_overlap(node));
        for position in first..self.ended(node) {
            let Some(node) = self.nodes.get(id) else { return };
            let Some(block) = self.ended_block(node, position) else { continue };
            if held {
                self.byte_blocks.add(tier, block);
            } else {
                self.byte_blocks.remove(tier, block.hash);
            }
        }
    }

    fn has_overlap(&self, node: &Node) -> bool {
        self.ended(node) > 0 && !(self.start(node) as usize).is_multiple_of(BLOCK_BYTES)
    }

    /// Counts the byte block that begins before the node if it is covered, else not.
    fn look_at_overlap(&mut self, id: NodeId, tier: Tier) {
        let Some(node) = self.nodes.get(id) else { return };
        if !self.has_overlap(node) {
            return;
        }
        let flag = overlap_flag(tier);
        let (counted, covered) = (node.is(flag), self.overlap_is_covered(node, tier));
        if counted == covered {
            return;
        }
        let Some(block) = self.ended_block(node, 0) else { return };
        if covered {
            self.byte_blocks.add(tier, block);
        } else {
            self.byte_blocks.remove(tier, block.hash);
        }
        if let Some(node) = self.nodes.get_mut(id) {
            node.flags ^= flag;
        }
    }

    fn overlap_is_covered(&self, node: &Node, tier: Tier) -> bool {
        if !holds(node, tier) {
            return false;
        }
        let begin = self.start(node) as usize / BLOCK_BYTES * BLOCK_BYTES;
        let mut at = node.parent;
        while let Some(ancestor) = at.and_then(|id| self.nodes.get(id)) {
            if !holds(ancestor, tier) {
                return false;
            }
            if self.start(ancestor) as usize <= begin {
                return true;
            }
            at = ancestor.parent;
        }
        true
    }

    /// No longer counts anything of a node, whatever is held.
    pub(super) fn uncover(&mut self, id: NodeId) {
        for tier in [Tier::Device, Tier::Any] {
            let Some(node) = self.nodes.get(id) else { return };
            let held = holds(node, tier);
            let overlap = node.is(overlap_flag(tier)).then(|| self.ended_block(node, 0)).flatten();
            if held {
                self.count_inner(id, tier, false);
            }
            if let Some(block) = overlap {
                self.byte_blocks.remove(tier, block.hash);
            }
            if let Some(node) = self.nodes.get_mut(id) {
                node.flags &= !overlap_flag(tier);
            }
        }
    }
}
