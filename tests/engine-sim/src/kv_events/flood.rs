//! Events at a given rate without an engine behind them, to measure what a consumer bears.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::batch::{Event, Stored};
use super::line::Line;
use crate::engine::blocks::{BlockHash, chain_hashes, chain_root};
use crate::tokens::replies::Words;

/// How often batches leave, at most.
const TICK: Duration = Duration::from_millis(5);

/// Most blocks in one second.
pub const MAX_RATE: u64 = 1_000_000;

/// A flood, as the operator asks for it.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flood {
    /// Which replica publishes it.
    pub replica: usize,
    /// Blocks stored in a second.
    pub blocks_per_s: u64,
    /// How long.
    pub seconds: f64,
    /// Blocks of one prompt: one batch stores them all.
    #[serde(default = "prompt_blocks")]
    pub prompt_blocks: usize,
    /// Blocks that are held at a time; older prompts are removed before new ones are stored.
    #[serde(default = "held_blocks")]
    pub held_blocks: usize,
}

fn prompt_blocks() -> usize {
    32
}

fn held_blocks() -> usize {
    10_000
}

impl Flood {
    /// Publishes the flood; returns how many blocks were stored.
    pub async fn run(self, line: &Line, words: &Words, block_size: usize) -> u64 {
        let mut prompts = Prompts::new(self, block_size);
        let started = Instant::now();
        let until = started + Duration::from_secs_f64(self.seconds.clamp(0.0, 86_400.0));
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while Instant::now() < until {
            ticks.tick().await;
            let due = started.elapsed().as_secs_f64() * self.blocks_per_s.min(MAX_RATE) as f64;
            while (prompts.stored as f64) < due {
                line.publish(prompts.step(words));
            }
        }
        // As a process that ends its work: nothing of the flood stays in anybody's index.
        line.publish(prompts.end());
        prompts.stored
    }
}

/// A queue of prompts, the oldest of which is evicted for the newest.
struct Prompts {
    flood: Flood,
    block_size: usize,
    seed: u64,
    stored: u64,
    held: VecDeque<Vec<BlockHash>>,
    held_blocks: usize,
}

impl Prompts {
    fn new(flood: Flood, block_size: usize) -> Self {
        let flood = Flood { prompt_blocks: flood.prompt_blocks.clamp(1, 4_096), ..flood };
        // Two floods of one replica must not store the same prompts.
        let seed = (crate::replica::unix_now() * 1e6) as u64;
        Self { flood, block_size, seed, stored: 0, held: VecDeque::new(), held_blocks: 0 }
    }

    /// One step of an engine: evictions, then a prompt's blocks.
    fn step(&mut self, words: &Words) -> Vec<Event> {
        let len = self.flood.prompt_blocks * self.block_size;
        self.seed = self.seed.wrapping_add(len as u64 + 1);
        let tokens = words.answer(self.seed, len);
        let hashes = chain_hashes(chain_root(None, None), &tokens, self.block_size);
        let mut events = Vec::new();
        while self.held_blocks + hashes.len() > self.flood.held_blocks {
            let Some(oldest) = self.held.pop_front() else { break };
            self.held_blocks -= oldest.len();
            // Tail first, as a finished request's blocks go.
            events.extend(oldest.into_iter().rev().map(Event::Removed));
        }
        self.stored += hashes.len() as u64;
        self.held_blocks += hashes.len();
        self.held.push_back(hashes.clone());
        events.push(Event::Stored(Stored {
            hashes,
            tokens,
            block_size: self.block_size,
            ..Stored::default()
        }));
        events
    }

    fn end(&mut self) -> Vec<Event> {
        let held = std::mem::take(&mut self.held);
        held.into_iter().flat_map(|prompt| prompt.into_iter().rev()).map(Event::Removed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn holds_no_more_than_told_and_leaves_nothing_behind() {
        let flood =
            Flood { replica: 0, blocks_per_s: 1, seconds: 1.0, prompt_blocks: 4, held_blocks: 10 };
        let words = crate::tokens::shared().unwrap().words();
        let mut prompts = Prompts::new(flood, 16);
        let mut held = BTreeSet::new();
        let mut apply = |events: Vec<Event>| {
            for event in events {
                match event {
                    Event::Stored(stored) => {
                        assert_eq!(stored.tokens.len(), stored.hashes.len() * 16);
                        assert!(stored.hashes.into_iter().all(|hash| held.insert(hash)));
                    }
                    Event::Removed(hash) => assert!(held.remove(&hash)),
                    Event::Cleared => panic!("a flood clears nothing"),
                }
            }
            held.len()
        };
        for _ in 0..20 {
            assert!(apply(prompts.step(words)) <= 10);
        }
        assert_eq!(prompts.stored, 80);
        assert_eq!(apply(prompts.end()), 0);
    }
}
