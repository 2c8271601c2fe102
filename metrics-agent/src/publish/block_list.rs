//! A large set of blocks in little memory.
//!
//! It is a second copy of what the index knows, for readers that ask for everything, and it is written much more
//! often than it is read. So it is a list in the order of hashes, without any room in it, and the newest
//! changes beside it; these are merged when they are an eighth of it. That is 12 to 14 bytes a block, where a
//! hash map takes 19 to 39.

use warmroute_shared_state::block::Block;

/// Changes that are not worth a merge.
const FEW: usize = 64;

/// Blocks, each once, with its tokens.
#[derive(Debug, Default)]
pub(super) struct BlockList {
    /// Ascending.
    hashes: Vec<u64>,
    /// Of each hash, its tokens.
    tokens: Vec<u32>,
    /// In the order in which they came: a hash, and its tokens, or `None` if it went.
    changes: Vec<(u64, Option<u32>)>,
}

impl BlockList {
    /// Adds blocks or changes their tokens.
    pub(super) fn store(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.change(block.hash, Some(block.tokens));
        }
    }

    /// Takes blocks out, those that are in it.
    pub(super) fn evict(&mut self, hashes: &[u64]) {
        for hash in hashes {
            self.change(*hash, None);
        }
    }

    /// All blocks, ascending by hash.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> {
        let mut newest = self.changes.clone();
        // Stable: of the changes of one hash, the last one counts.
        newest.sort_by_key(|(hash, _)| *hash);
        let mut newest = newest.into_iter().peekable();
        let mut listed = self.hashes.iter().copied().zip(self.tokens.iter().copied()).peekable();
        std::iter::from_fn(move || {
            loop {
                let change = newest.peek().map(|(hash, _)| *hash);
                let old = listed.next_if(|(hash, _)| change.is_none_or(|change| *hash < change));
                if let Some((hash, tokens)) = old {
                    return Some(Block { hash, tokens });
                }
                let (hash, mut tokens) = newest.next()?;
                while let Some((_, later)) = newest.next_if(|(next, _)| *next == hash) {
                    tokens = later;
                }
                let _ = listed.next_if(|(listed, _)| *listed == hash);
                if let Some(tokens) = tokens {
                    return Some(Block { hash, tokens });
                }
            }
        })
    }

    fn change(&mut self, hash: u64, tokens: Option<u32>) {
        if self.changes.len() >= (self.hashes.len() / 8).max(FEW) {
            self.merge();
        }
        self.changes.push((hash, tokens));
    }

    fn merge(&mut self) {
        let most = self.hashes.len().saturating_add(self.changes.len());
        let (mut hashes, mut tokens) = (Vec::with_capacity(most), Vec::with_capacity(most));
        for block in self.blocks() {
            hashes.push(block.hash);
            tokens.push(block.tokens);
        }
        hashes.shrink_to_fit();
        tokens.shrink_to_fit();
        (self.hashes, self.tokens) = (hashes, tokens);
        self.changes = Vec::with_capacity((self.hashes.len() / 8).max(FEW));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(
            rounds in proptest::collection::vec(
                (any::<bool>(), proptest::collection::vec((0u64..600, 1u32..9), 0..200)), 0..20,
            ),
        ) {
            let (mut list, mut map) = (BlockList::default(), BTreeMap::new());
            for (store, blocks) in rounds {
                if store {
                    map.extend(blocks.iter().copied());
                    let blocks: Vec<Block> =
                        blocks.iter().map(|(hash, tokens)| Block { hash: *hash, tokens: *tokens }).collect();
                    list.store(&blocks);
                } else {
                    let hashes: Vec<u64> = blocks.iter().map(|(hash, _)| *hash).collect();
                    map.retain(|hash, _| !hashes.contains(hash));
                    list.evict(&hashes);
                }
                let held: Vec<_> = list.blocks().map(|block| (block.hash, block.tokens)).collect();
                prop_assert_eq!(held, map.clone().into_iter().collect::<Vec<_>>());
            }
        }
    }
}
