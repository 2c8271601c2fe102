//! The engine's core: when does each token appear, and what is in the cache meanwhile.
//!
//! It owns no clock and no thread. A driver tells it the time ([`Engine::advance`]), asks when it
//! next has something to do ([`Engine::next_event`]) and collects what came out
//! ([`Engine::drain_outputs`]).
//!
//! The model of time: all requests in prefill share `prefill_tokens_per_s` equally, each decoding
//! request yields a token every `decode_ns`, and the two do not slow each other down.

pub mod blocks;
pub mod events;
pub mod stats;

mod admission;
mod config;
mod request;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};

use blocks::{BlockId, BlockPool};
use events::{EventSink, StoredBlocks};
use request::{Phase, Request};
use stats::Stats;

pub use config::{EngineConfig, Gauges, SubmitError};
pub use request::{FinishReason, Output, OutputKind, RequestId, Submission};

/// Simulated nanoseconds since the engine started.
pub type SimTime = u64;

/// Billionths of a token: the unit in which prefill is shared out without rounding drift.
const UNITS_PER_TOKEN: u64 = 1_000_000_000;

/// One simulated engine.
pub struct Engine {
    config: EngineConfig,
    pool: BlockPool,
    requests: HashMap<RequestId, Request>,
    waiting: VecDeque<RequestId>,
    // In order of admission: the last is the first to be preempted.
    running: Vec<RequestId>,
    occupied: Vec<BlockId>,
    now: SimTime,
    // The queue's head did not fit, and nothing was given back since.
    blocked: bool,
    outputs: Vec<Output>,
    stats: Stats,
    events: Box<dyn EventSink>,
}

impl Engine {
    /// A cold engine at time 0.
    pub fn new(config: EngineConfig, events: Box<dyn EventSink>) -> Self {
        let pool = BlockPool::new(config.num_blocks.saturating_sub(1));
        Self {
            config,
            pool,
            requests: HashMap::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            occupied: Vec::new(),
            now: 0,
            blocked: false,
            outputs: Vec::new(),
            stats: Stats::default(),
            events,
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// What it has counted.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Drops every cached block, as `POST /reset_prefix_cache` does. Refused while a block is in
    /// use. As in vLLM, the event leaves with the next step.
    pub fn reset_prefix_cache(&mut self) -> bool {
        let idle = self.pool.used() == 0;
        if idle {
            self.pool = BlockPool::new(self.pool.capacity());
            self.events.cleared();
        }
        idle
    }

    /// Takes a request at time `now` and returns how many of its prompt tokens were cached on
    /// arrival.
    pub fn submit(&mut self, now: SimTime, sub: Submission) -> Result<usize, SubmitError> {
        self.advance(now);
        let held = self.waiting.len() + self.running.len();
        if let Some(limit) = self.config.max_queued.filter(|&limit| held >= limit) {
            self.stats.rejected_queue_full += 1;
            return Err(SubmitError::QueueFull { limit });
        }
        let tokens = sub.tokens.len();
        let capacity = self.pool.capacity();
        let empty = sub.prompt_len == 0 || sub.prompt_len >= tokens;
        if empty || tokens.div_ceil(self.config.block_size) > capacity {
            return Err(SubmitError::Unservable { tokens, capacity });
        }
        let id = sub.id;
        let request = Request::new(sub, self.config.block_size, self.now);
        let cached = self.pool.match_prefix(request.hittable(self.config.block_size))
            * self.config.block_size;
        self.requests.insert(id, request);
        self.waiting.push_back(id);
        self.admit();
        Ok(cached)
    }

    /// Forgets a request whose client went away; unknown ids are ignored.
    pub fn cancel(&mut self, now: SimTime, id: RequestId) {
        self.advance(now);
        if let Some(request) = self.requests.remove(&id) {
            self.waiting.retain(|&other| other != id);
            self.running.retain(|&other| other != id);
            self.give_back(&request.blocks);
            self.admit();
        }
    }

    /// Makes a pseudo request hold `fraction` (0 to 1) of the usable blocks, as far as they are
    /// free. Returns how many blocks it holds.
    pub fn occupy(&mut self, fraction: f64) -> usize {
        let blocks = std::mem::take(&mut self.occupied);
        self.give_back(&blocks);
        let wanted = (fraction.clamp(0.0, 1.0) * self.pool.capacity() as f64) as usize;
        while self.occupied.len() < wanted {
            let Some(id) = self.pool.allocate(self.events.as_mut()) else { break };
            self.occupied.push(id);
        }
        self.events.step_ended();
        self.admit();
        self.occupied.len()
    }

    /// When the engine next has something to do, if nothing else arrives.
    pub fn next_event(&self) -> Option<SimTime> {
        let prefilling = self.prefilling();
        self.running
            .iter()
            .filter_map(|id| match self.requests.get(id)?.phase {
                Phase::Prefill { chunk_left, .. } => {
                    let work = u128::from(chunk_left) * u128::from(prefilling);
                    let wait = work.div_ceil(u128::from(self.config.prefill_tokens_per_s.max(1)));
                    Some(self.now.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)))
                }
                Phase::Decode { next } => Some(next),
                Phase::Waiting => None,
            })
            .min()
    }

    /// Runs everything that is due up to and including `now`. Time never goes back.
    pub fn advance(&mut self, now: SimTime) {
        while let Some(due) = self.next_event().filter(|&due| due <= now) {
            self.prefill_until(due);
            self.step();
        }
        self.prefill_until(now.max(self.now));
    }

    /// What appeared since the last call, in order.
    pub fn drain_outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.outputs.drain(..)
    }

    /// The state of the moment.
    pub fn gauges(&self) -> Gauges {
        let names = |ids: &mut dyn Iterator<Item = &RequestId>| -> Vec<String> {
            let adapters: BTreeSet<_> =
                ids.filter_map(|id| self.requests.get(id)?.sub.adapter.as_deref()).collect();
            adapters.into_iter().map(str::to_owned).collect()
        };
        let deferred = self.waiting.iter().filter(|id| self.lacks_adapter_place(**id)).count();
        Gauges {
            running: self.running.len() + usize::from(!self.occupied.is_empty()),
            waiting_capacity: self.waiting.len() - deferred,
            waiting_deferred: deferred,
            kv_usage: self.pool.used() as f64 / self.pool.capacity().max(1) as f64,
            free_blocks: self.pool.free(),
            cached_blocks: self.pool.cached(),
            running_loras: names(&mut self.running.iter()),
            waiting_loras: names(&mut self.waiting.iter()),
        }
    }

    fn prefilling(&self) -> u64 {
        let in_prefill = |id| {
            self.requests
                .get(id)
                .is_some_and(|request| matches!(request.phase, Phase::Prefill { .. }))
        };
        self.running.iter().filter(|&id| in_prefill(id)).count() as u64
    }

    /// Moves the clock and shares out the prefill work done meanwhile.
    fn prefill_until(&mut self, to: SimTime) {
        let prefilling = self.prefilling();
        let elapsed = to.saturating_sub(self.now);
        self.now = to;
        if prefilling == 0 || elapsed == 0 {
            return;
        }
        let work = u128::from(elapsed) * u128::from(self.config.prefill_tokens_per_s)
            / u128::from(prefilling);
        let work = u64::try_from(work).unwrap_or(u64::MAX);
        for id in &self.running {
            if let Some(Request { phase: Phase::Prefill { left, chunk_left }, .. }) =
                self.requests.get_mut(id)
            {
                *left = left.saturating_sub(work);
                *chunk_left = chunk_left.saturating_sub(work);
            }
        }
    }

    /// Everything that is due at the present moment.
    fn step(&mut self) {
        let mut step_tokens = 0;
        for id in self.running.clone() {
            // A preemption earlier in this step may have put the request back into the queue.
            let Some(phase) = self.requests.get(&id).map(|request| request.phase) else { continue };
            step_tokens += match phase {
                Phase::Prefill { chunk_left: 0, .. } => self.finish_chunk(id),
                Phase::Decode { next } if next <= self.now => self.decode(id),
                _ => 0,
            };
        }
        self.stats.step_tokens.observe(step_tokens as f64);
        self.events.step_ended();
        self.admit();
    }

    /// A chunk of a prompt is computed; the last one yields a token.
    fn finish_chunk(&mut self, id: RequestId) -> usize {
        let (chunk, block_size) = (self.config.prefill_chunk.max(1) as u64, self.config.block_size);
        let Some(request) = self.requests.get_mut(&id) else { return 0 };
        let Phase::Prefill { left, chunk_left } = &mut request.phase else { return 0 };
        let left_tokens = left.div_ceil(UNITS_PER_TOKEN);
        *left = left_tokens * UNITS_PER_TOKEN;
        *chunk_left = left_tokens.min(chunk) * UNITS_PER_TOKEN;
        let target = request.prefill_target();
        let computed = target.saturating_sub(usize::try_from(left_tokens).unwrap_or(usize::MAX));
        let tokens = computed - request.computed;
        request.computed = computed;
        publish(&mut self.pool, self.events.as_mut(), request, block_size);
        if left_tokens == 0 {
            self.emit(id);
        }
        tokens
    }

    /// One decode step: the previous token's KV is written, and the next token appears.
    fn decode(&mut self, id: RequestId) -> usize {
        let block_size = self.config.block_size;
        loop {
            let Some(request) = self.requests.get_mut(&id) else { return 0 };
            if request.computed < request.blocks.len() * block_size {
                request.computed += 1;
                publish(&mut self.pool, self.events.as_mut(), request, block_size);
                self.emit(id);
                return 1;
            }
            if let Some(block) = self.pool.allocate(self.events.as_mut()) {
                request.blocks.push(block);
            } else if self.preempt_last() == Some(id) {
                return 0;
            }
        }
    }

    /// A token of the answer appears.
    fn emit(&mut self, id: RequestId) {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else { return };
        let index = request.generated;
        request.generated += 1;
        request.phase = Phase::Decode { next: now.saturating_add(self.config.decode_ns.max(1)) };
        if request.first_token.is_none() {
            request.first_token = Some(now);
            self.stats.ttft.observe(seconds(request.arrived, now));
            self.stats.prompt_tokens += request.sub.prompt_len as u64;
        } else {
            self.stats.inter_token.observe(seconds(request.last_token, now));
        }
        request.last_token = now;
        self.stats.generation_tokens += 1;
        let finish = (request.generated >= request.answer_len()).then_some(request.sub.finish);
        let cached = request.cached.unwrap_or(0);
        self.outputs.push(Output { id, kind: OutputKind::Token { index, cached, finish } });
        if let Some(reason) = finish {
            self.finish(id, reason);
        }
    }

    fn finish(&mut self, id: RequestId, reason: FinishReason) {
        let Some(request) = self.requests.remove(&id) else { return };
        self.running.retain(|&other| other != id);
        self.give_back(&request.blocks);
        let now = self.now;
        let admitted = request.admitted.unwrap_or(now);
        let first = request.first_token.unwrap_or(now);
        let stats = &mut self.stats;
        match reason {
            FinishReason::Stop => stats.finished_stop += 1,
            FinishReason::Length => stats.finished_length += 1,
        }
        stats.request_prompt_tokens.observe(request.sub.prompt_len as f64);
        stats.request_generation_tokens.observe(request.generated as f64);
        stats.max_generation_tokens.observe(request.sub.max_tokens as f64);
        stats.params_max_tokens.observe(request.sub.max_tokens as f64);
        stats.params_n.observe(1.0);
        if request.generated > 1 {
            stats
                .time_per_output_token
                .observe(seconds(first, now) / (request.generated - 1) as f64);
        }
        stats.e2e.observe(seconds(request.arrived, now));
        stats.queue_time.observe(seconds(request.arrived, admitted));
        stats.inference_time.observe(seconds(admitted, now));
        stats.prefill_time.observe(seconds(admitted, first));
        stats.decode_time.observe(seconds(first, now));
        stats.request_preemptions.observe(f64::from(request.preemptions));
        let computed = request.sub.prompt_len.saturating_sub(request.cached.unwrap_or(0));
        stats.prefill_computed_tokens.observe(computed as f64);
    }

    fn give_back(&mut self, blocks: &[BlockId]) {
        self.pool.release(blocks);
        self.blocked = false;
    }
}

fn seconds(from: SimTime, to: SimTime) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}

/// Makes the whole blocks that `request` has computed hittable.
fn publish(
    pool: &mut BlockPool,
    events: &mut dyn EventSink,
    request: &mut Request,
    block_size: usize,
) {
    let from = request.published;
    let to = (request.computed / block_size).min(request.hashes.len());
    if to <= from {
        return;
    }
    for (&block, &hash) in request.blocks.iter().zip(&request.hashes).take(to).skip(from) {
        pool.publish(block, hash);
    }
    request.published = to;
    events.stored(&StoredBlocks {
        hashes: request.hashes.get(from..to).unwrap_or_default(),
        parent: from.checked_sub(1).and_then(|i| request.hashes.get(i).copied()),
        tokens: request.sub.tokens.get(from * block_size..to * block_size).unwrap_or_default(),
        block_size,
        adapter: request.sub.adapter.as_deref(),
        cache_salt: request.sub.cache_salt.as_deref(),
        session: request.sub.session.as_deref(),
    });
}
