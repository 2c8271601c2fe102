//! Which blocks an endpoint most likely dropped: one recency list for each approximate column.
//!
//! The engine frees a request's blocks tail first and evicts the least recently freed. The
//! applier mirrors that: a pick touches its chain from the tail to the head, so that the head is the
//! newest, and what exceeds the engine's own block count falls off the old end. Only the
//! applier keeps these lists; the other VMs are told what was evicted.

use hashbrown::HashTable;

const END: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Node {
    hash: u64,
    older: u32,
    newer: u32,
}

/// Hashes by recency of use, with O(1) touch and eviction.
#[derive(Debug)]
pub struct RecencyList {
    index: HashTable<u32>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl Default for RecencyList {
    fn default() -> Self {
        Self {
            index: HashTable::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            oldest: END,
            newest: END,
        }
    }
}

impl RecencyList {
    /// How many hashes are in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Makes `hash` the newest, adding it if it is not there.
    pub fn touch(&mut self, hash: u64) {
        let nodes = &self.nodes;
        let found =
            self.index.find(hash, |i| nodes.get(*i as usize).is_some_and(|n| n.hash == hash));
        let at = match found.copied() {
            Some(at) => {
                self.unlink(at);
                at
            }
            None => self.allocate(hash),
        };
        self.link_newest(at);
    }

    /// Takes `hash` out; does nothing if it is not there.
    pub fn remove(&mut self, hash: u64) {
        let nodes = &self.nodes;
        let found =
            self.index.find_entry(hash, |i| nodes.get(*i as usize).is_some_and(|n| n.hash == hash));
        if let Ok(entry) = found {
            let (at, _) = entry.remove();
            self.unlink(at);
            self.free.push(at);
        }
    }

    /// Takes the oldest out.
    pub fn pop_oldest(&mut self) -> Option<u64> {
        let hash = self.nodes.get(self.oldest as usize)?.hash;
        self.remove(hash);
        Some(hash)
    }

    fn allocate(&mut self, hash: u64) -> u32 {
        let node = Node { hash, older: END, newer: END };
        let at = match self.free.pop() {
            Some(at) => {
                if let Some(place) = self.nodes.get_mut(at as usize) {
                    *place = node;
                }
                at
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len().saturating_sub(1)).unwrap_or(END)
            }
        };
        let nodes = &self.nodes;
        self.index.insert_unique(hash, at, |i| nodes.get(*i as usize).map_or(0, |n| n.hash));
        at
    }

    fn unlink(&mut self, at: u32) {
        let Some(Node { older, newer, .. }) = self.nodes.get(at as usize).copied() else { return };
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => self.oldest = newer,
        }
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => self.newest = older,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let previous = self.newest;
        if let Some(node) = self.nodes.get_mut(at as usize) {
            node.older = previous;
            node.newer = END;
        }
        match self.nodes.get_mut(previous as usize) {
            Some(node) => node.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn the_least_recently_touched_goes_first() {
            let mut list = RecencyList::default();
            for hash in [1, 2, 3, 1, 4] {
                list.touch(hash);
            }
            list.remove(3);
            list.remove(33);
            assert_eq!(list.len(), 3);
            assert_eq!(core::iter::from_fn(|| list.pop_oldest()).collect::<Vec<_>>(), [2, 1, 4]);
            assert!(list.is_empty() && list.pop_oldest().is_none());
            list.touch(9);
            assert_eq!(list.pop_oldest(), Some(9));
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    proptest::proptest! {
        #[test]
        fn it_behaves_like_a_plain_vector(ops in proptest::collection::vec((0u8..3, 0u64..12), 0..200)) {
            let mut list = RecencyList::default();
            let mut model: Vec<u64> = vec![];
            for (op, hash) in ops {
                match op {
                    0 => {
                        list.touch(hash);
                        model.retain(|h| *h != hash);
                        model.push(hash);
                    }
                    1 => {
                        list.remove(hash);
                        model.retain(|h| *h != hash);
                    }
                    _ => {
                        let oldest = (!model.is_empty()).then(|| model.remove(0));
                        proptest::prop_assert_eq!(list.pop_oldest(), oldest);
                    }
                }
                proptest::prop_assert_eq!(list.len(), model.len());
            }
        }
    }
}
