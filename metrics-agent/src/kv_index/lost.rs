//! What stays known when events are lost, and how it is believed again.
//!
//! Lost events may have told of evictions, so nothing counts as held after a loss. But an engine
//! says nothing of blocks that a prompt finds: what is stored next may hang on a block that was
//! stored before the loss, a shared system prompt, say, and would be an orphan for ever. So the
//! blocks stay, as ghosts. Their names are digests of all that lies before them, by one
//! process: they cannot come to mean anything else while that process lives.
//!
//! A block that is stored in the device's memory shows that its whole prefix is there at that moment: the
//! engine just computed with it, and its blocks are in use until the request ends. So ancestors that are not held
//! in the device get one copy.
//!
//! *That never counts more copies than there are.* Say that none is counted too many. A store adds
//! one on both sides and a removal takes one on both sides, or only on the engine's if none is
//! counted. A revival raises a count from 0 to 1 where the engine has at least 1. The copies that the engine has beyond
//! that are missed: the first removal makes such a block a ghost too early, until the next prompt
//! over it revives it. That is also why every store over several blocks looks at its whole prefix, and not only
//! at the first block of it.

use super::slab::{LOST, NodeId, OVERLAP_ANY, OVERLAP_DEVICE};
use super::tree::Tree;

impl Tree {
    /// Nothing of a rank is held any more, but at most `keep` of the endpoint's blocks stay known.
    /// `only`: there is no other rank. Returns how many were given up.
    pub(super) fn lose(&mut self, rank: u8, only: bool, keep: usize) -> usize {
        let ids = self.nodes.of_rank(rank);
        if only {
            // In one word, instead of block by block.
            self.byte_blocks.clear();
        }
        for id in &ids {
            if !only {
                self.void(*id);
            }
            let Some(node) = self.nodes.get_mut(*id) else { continue };
            if node.is_held() {
                (node.device, node.lower) = (0, 0);
                self.ghosts = self.ghosts.saturating_add(1);
            }
            if !node.is(LOST) {
                self.lost = self.lost.saturating_add(1);
            }
            node.flags = (node.flags | LOST) & !(OVERLAP_DEVICE | OVERLAP_ANY);
        }
        let before = self.nodes.len();
        if self.lost > keep {
            self.give_up_deepest(ids, keep);
        }
        before.saturating_sub(self.nodes.len())
    }

    /// What is shared lies near the roots, so the ends of chains go first.
    fn give_up_deepest(&mut self, mut ids: Vec<NodeId>, keep: usize) {
        let depth = |id: &NodeId| self.nodes.get(*id).map_or(0, |node| node.tokens);
        ids.sort_by_cached_key(|id| std::cmp::Reverse(depth(id)));
        for id in ids {
            if self.lost <= keep {
                return;
            }
            if self.nodes.get(id).is_some_and(|node| node.first_child.is_none()) {
                self.forget(id);
            }
        }
    }

    /// A ghost was removed: unless other blocks hang on it, its name is of no use any more.
    pub(super) fn remove_ghost(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(id).filter(|node| node.is(LOST)) {
            node.flags &= !LOST;
            self.lost = self.lost.saturating_sub(1);
            self.prune(id);
        }
    }

    /// Makes room: nothing that no held block hangs on stays known. Returns how many were given up.
    pub(super) fn give_up_lost(&mut self) -> usize {
        let before = self.nodes.len();
        let ids = self.nodes.chosen(|node| node.is(LOST));
        for id in &ids {
            if let Some(node) = self.nodes.get_mut(*id) {
                node.flags &= !LOST;
            }
        }
        self.lost = 0;
        for id in ids {
            self.prune(id);
        }
        before.saturating_sub(self.nodes.len())
    }

    /// A block of the prefix that ends with `id` was used: all of it is in the device's memory.
    /// `whole`: look at all of it, else only down to the first block that is held. Returns how many were not
    /// known to be.
    pub(super) fn revive(&mut self, id: NodeId, whole: bool) -> usize {
        let mut missing = Vec::new();
        let mut at = Some(id);
        while let Some(id) = at {
            let Some(node) = self.nodes.get(id) else { break };
            if node.device == 0 {
                missing.push(id);
            } else if !whole {
                break;
            }
            at = node.parent;
        }
        // From the root on, so that each byte block over several blocks is looked at when it is whole.
        for id in missing.iter().rev() {
            self.hold(*id, false);
        }
        missing.len()
    }
}
