//! The paged KV cache: fixed blocks, reference counts, an LRU free list and the map from block hash
//! to the blocks that hold it.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::events::EventSink;

/// Index of a physical block inside one [`BlockPool`].
pub type BlockId = u32;

/// Hash of a block's tokens and of everything before it.
pub type BlockHash = u64;

const NIL: BlockId = BlockId::MAX;

/// Hash that the first block of a prompt is chained to: two prompts with a different adapter or
/// cache salt share no block.
pub fn chain_root(adapter: Option<&str>, cache_salt: Option<&str>) -> BlockHash {
    let adapter_hash = adapter.map_or(0, |name| xxh3_64_with_seed(name.as_bytes(), 1));
    cache_salt.map_or(adapter_hash, |salt| xxh3_64_with_seed(salt.as_bytes(), adapter_hash ^ 2))
}

/// Chained hashes of the whole blocks of `tokens`.
pub fn chain_hashes(root: BlockHash, tokens: &[u32], block_size: usize) -> Vec<BlockHash> {
    let mut bytes = Vec::with_capacity(block_size * 4);
    let mut parent = root;
    tokens
        .chunks_exact(block_size)
        .map(|block| {
            bytes.clear();
            bytes.extend(block.iter().flat_map(|token| token.to_le_bytes()));
            parent = xxh3_64_with_seed(&bytes, parent);
            parent
        })
        .collect()
}

#[derive(Clone)]
struct Block {
    refs: u32,
    hash: Option<BlockHash>,
    // Neighbours in the free list; meaningful only while `refs` is 0.
    prev: BlockId,
    next: BlockId,
}

/// All physical blocks of one engine.
///
/// A block with references is in use. One without is free, yet keeps its hash and can be hit until
/// it is handed out again: the free list is the eviction order, least recently freed first.
pub struct BlockPool {
    blocks: Vec<Block>,
    head: BlockId,
    tail: BlockId,
    free: usize,
    // vLLM does not de-duplicate: one hash can sit in several blocks.
    cached: HashMap<BlockHash, Vec<BlockId>>,
}

impl BlockPool {
    /// A cold pool of `usable` blocks.
    pub fn new(usable: usize) -> Self {
        let count = BlockId::try_from(usable).unwrap_or(NIL - 1).min(NIL - 1);
        let blocks = (0..count)
            .map(|id| Block {
                refs: 0,
                hash: None,
                prev: id.checked_sub(1).unwrap_or(NIL),
                next: if id + 1 < count { id + 1 } else { NIL },
            })
            .collect();
        Self {
            blocks,
            head: if count == 0 { NIL } else { 0 },
            tail: count.checked_sub(1).unwrap_or(NIL),
            free: count as usize,
            cached: HashMap::new(),
        }
    }

    /// Blocks that exist.
    pub fn capacity(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks without a reference, cached ones included.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Blocks with at least one reference.
    pub fn used(&self) -> usize {
        self.blocks.len() - self.free
    }

    /// Distinct block hashes that a prompt can hit.
    pub fn cached(&self) -> usize {
        self.cached.len()
    }

    /// A block that holds `hash`.
    pub fn lookup(&self, hash: BlockHash) -> Option<BlockId> {
        self.cached.get(&hash).and_then(|ids| ids.first().copied())
    }

    /// How many of `hashes`, from the first on, are held.
    pub fn match_prefix(&self, hashes: &[BlockHash]) -> usize {
        hashes.iter().take_while(|hash| self.cached.contains_key(hash)).count()
    }

    /// Whether nobody references the block.
    pub fn is_free(&self, id: BlockId) -> bool {
        self.blocks[id as usize].refs == 0
    }

    /// Adds a reference, taking the block off the free list if it was there.
    pub fn acquire(&mut self, id: BlockId) {
        if self.is_free(id) {
            self.unlink(id);
        }
        self.blocks[id as usize].refs += 1;
    }

    /// Hands out the least recently freed block with one reference, evicting what it held.
    /// `None` when every block is in use.
    pub fn allocate(&mut self, events: &mut dyn EventSink) -> Option<BlockId> {
        let id = self.head;
        if id == NIL {
            return None;
        }
        self.acquire(id);
        if let Some(hash) = self.blocks[id as usize].hash.take() {
            self.forget(hash, id);
            events.removed(hash);
        }
        Some(id)
    }

    /// Makes a filled block findable by its hash.
    pub fn publish(&mut self, id: BlockId, hash: BlockHash) {
        self.blocks[id as usize].hash = Some(hash);
        self.cached.entry(hash).or_default().push(id);
    }

    /// Drops one reference from each block of a request, its tail first, so that the beginning of a
    /// prompt, which others may share, is evicted last.
    pub fn release(&mut self, blocks: &[BlockId]) {
        for &id in blocks.iter().rev() {
            let block = &mut self.blocks[id as usize];
            debug_assert!(block.refs > 0, "a block is released once per reference");
            block.refs = block.refs.saturating_sub(1);
            if block.refs == 0 {
                self.push_back(id);
            }
        }
    }

    fn forget(&mut self, hash: BlockHash, id: BlockId) {
        if let Some(ids) = self.cached.get_mut(&hash) {
            ids.retain(|&other| other != id);
            if ids.is_empty() {
                self.cached.remove(&hash);
            }
        }
    }

    fn unlink(&mut self, id: BlockId) {
        let (prev, next) = (self.blocks[id as usize].prev, self.blocks[id as usize].next);
        if prev == NIL {
            self.head = next;
        } else {
            self.blocks[prev as usize].next = next;
        }
        if next == NIL {
            self.tail = prev;
        } else {
            self.blocks[next as usize].prev = prev;
        }
        self.free -= 1;
    }

    fn push_back(&mut self, id: BlockId) {
        let tail = self.tail;
        let block = &mut self.blocks[id as usize];
        block.prev = tail;
        block.next = NIL;
        if tail == NIL {
            self.head = id;
        } else {
            self.blocks[tail as usize].next = id;
        }
        self.tail = id;
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::events::{CollectedEvent, CollectingSink};
    use super::*;

    fn take(pool: &mut BlockPool, sink: &mut CollectingSink, n: usize) -> Vec<BlockId> {
        (0..n).map(|_| pool.allocate(sink).expect("a free block")).collect()
    }

    #[test]
    fn evicts_the_tail_of_a_freed_request_before_its_head() {
        let mut sink = CollectingSink::default();
        let mut pool = BlockPool::new(3);
        let ids = take(&mut pool, &mut sink, 3);
        for (&id, hash) in ids.iter().zip([10, 11, 12]) {
            pool.publish(id, hash);
        }
        assert!(pool.allocate(&mut sink).is_none(), "all in use");
        pool.release(&ids);
        assert_eq!((pool.free(), pool.cached()), (3, 3), "free blocks stay cached");
        take(&mut pool, &mut sink, 2);
        assert_eq!(sink.events, vec![CollectedEvent::Removed(12), CollectedEvent::Removed(11)]);
        assert_eq!(pool.match_prefix(&[10, 11, 12]), 1);
    }

    #[test]
    fn an_acquired_block_is_not_evicted_and_returns_as_most_recent() {
        let mut sink = CollectingSink::default();
        let mut pool = BlockPool::new(2);
        let ids = take(&mut pool, &mut sink, 2);
        pool.publish(ids[0], 1);
        pool.publish(ids[1], 2);
        pool.release(&ids);
        let hit = pool.lookup(2).expect("cached");
        pool.acquire(hit);
        take(&mut pool, &mut sink, 1);
        assert_eq!(sink.events, vec![CollectedEvent::Removed(1)]);
        assert!(pool.allocate(&mut sink).is_none());
        pool.release(&[hit]);
        assert_eq!(pool.lookup(2), Some(hit));
    }

    #[test]
    fn a_hash_in_two_blocks_survives_the_eviction_of_one() {
        let mut sink = CollectingSink::default();
        let mut pool = BlockPool::new(2);
        let ids = take(&mut pool, &mut sink, 2);
        pool.publish(ids[0], 7);
        pool.publish(ids[1], 7);
        pool.release(&ids[..1]);
        take(&mut pool, &mut sink, 1);
        assert_eq!(sink.events, vec![CollectedEvent::Removed(7)]);
        assert_eq!(pool.lookup(7), Some(ids[1]));
    }

    #[test]
    fn chains_differ_by_salt_adapter_and_order() {
        let a: Vec<u32> = (0..16).collect();
        let b: Vec<u32> = (16..32).collect();
        let ab: Vec<u32> = a.iter().chain(&b).copied().collect();
        let ba: Vec<u32> = b.iter().chain(&a).copied().collect();
        let chain =
            |adapter, salt, tokens: &[u32]| chain_hashes(chain_root(adapter, salt), tokens, 16);
        let plain = chain(None, None, &ab);
        assert_eq!(plain.len(), 2);
        assert_eq!(chain(None, None, &a)[0], plain[0]);
        let others = [
            chain(None, Some("t1"), &ab),
            chain(None, Some("t2"), &ab),
            chain(Some("lora-a"), None, &ab),
            chain(Some("t1"), None, &ab),
            chain(None, None, &ba),
        ];
        for (i, other) in others.iter().enumerate() {
            assert_ne!(other[0], plain[0], "case {i}");
            assert_ne!(other[1], plain[1], "case {i}");
            assert!(others.iter().skip(i + 1).all(|later| later[1] != other[1]), "case {i}");
        }
    }
}
