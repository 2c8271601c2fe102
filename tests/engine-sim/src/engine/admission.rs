//! Who runs: first come first served while blocks, places and adapters last, and preemption of the
//! latest when they run out during decode.

use std::collections::BTreeSet;

use super::request::{Phase, RequestId};
use super::{Engine, UNITS_PER_TOKEN};

impl Engine {
    /// Starts waiting requests, in order, until one does not fit. A request that only lacks a place
    /// for its adapter is passed over.
    pub(super) fn admit(&mut self) {
        let mut index = 0;
        while !self.blocked && self.running.len() < self.config.max_num_seqs {
            let Some(&id) = self.waiting.get(index) else { return };
            if self.lacks_adapter_place(id) {
                index += 1;
            } else if self.start(id) {
                self.waiting.remove(index);
                self.running.push(id);
            } else {
                self.blocked = true;
            }
        }
    }

    /// Whether the request's adapter would be one too many beside those running.
    pub(super) fn lacks_adapter_place(&self, id: RequestId) -> bool {
        let adapter_of = |id: &RequestId| self.requests.get(id)?.sub.adapter.as_deref();
        let Some(wanted) = adapter_of(&id) else { return false };
        let running: BTreeSet<_> = self.running.iter().filter_map(adapter_of).collect();
        !running.contains(wanted) && running.len() >= self.config.max_loras
    }

    /// Gives the request its blocks, cached ones first. `false`, and nothing taken, if there are
    /// too few.
    fn start(&mut self, id: RequestId) -> bool {
        let block_size = self.config.block_size;
        let Some(request) = self.requests.get_mut(&id) else { return true };
        let hits: Vec<_> =
            request.hittable(block_size).iter().map_while(|&hash| self.pool.lookup(hash)).collect();
        let target = request.prefill_target();
        let fresh = target.div_ceil(block_size).saturating_sub(hits.len());
        // A hit on a free block takes it off the free list too.
        let idle_hits = hits.iter().filter(|&&block| self.pool.is_free(block)).count();
        if fresh + idle_hits > self.pool.free() {
            return false;
        }
        for &block in &hits {
            self.pool.acquire(block);
        }
        request.computed = hits.len() * block_size;
        request.published = hits.len();
        request.blocks = hits;
        for _ in 0..fresh {
            request.blocks.extend(self.pool.allocate(self.events.as_mut()));
        }
        let local = request.computed;
        // After a preemption what was transferred is lost like anything else.
        if request.sub.transferred && request.admitted.is_none() {
            request.computed = local.max(target.saturating_sub(1));
            self.stats.transfer_queries += target.saturating_sub(local) as u64;
            self.stats.transferred += (request.computed - local) as u64;
        }
        let left = target.saturating_sub(request.computed) as u64;
        request.phase = Phase::Prefill {
            left: left.saturating_mul(UNITS_PER_TOKEN),
            chunk_left: left
                .min(self.config.prefill_chunk.max(1) as u64)
                .saturating_mul(UNITS_PER_TOKEN),
        };
        request.admitted.get_or_insert(self.now);
        self.stats.prefix_queries += target as u64;
        self.stats.prefix_hits += local as u64;
        request.cached.get_or_insert(request.computed);
        true
    }

    /// Puts the latest running request back at the head of the queue, without its blocks. Returns
    /// which.
    pub(super) fn preempt_last(&mut self) -> Option<RequestId> {
        let id = self.running.pop()?;
        self.waiting.push_front(id);
        self.stats.preemptions += 1;
        if let Some(request) = self.requests.get_mut(&id) {
            request.phase = Phase::Waiting;
            request.preemptions += 1;
            request.computed = 0;
            request.published = 0;
            let blocks = std::mem::take(&mut request.blocks);
            self.give_back(&blocks);
        }
        Some(id)
    }
}
