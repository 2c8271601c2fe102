//! What was evicted lately, and since when listeners can know: tells a belief that is wrong from one
//! that is only late.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;
use tokio::time::Instant;

use crate::engine::blocks::BlockHash;

/// Evictions that are remembered; earlier ones count as blocks that were never held.
const REMEMBERED: usize = 100_000;

/// Why the first block that a prompt lacks is not there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lack {
    /// It was not held, or not lately, or not by this engine process.
    NotHeld,
    /// It was evicted, and the batch that says so was not published yet.
    EvictionUntold,
    /// It was evicted, and the batch that says so is out.
    EvictionTold {
        /// For so long, in milliseconds.
        ms: f64,
    },
}

/// The latest evictions of one engine process.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    told: HashMap<BlockHash, Option<Instant>>,
    order: VecDeque<BlockHash>,
    untold: Vec<BlockHash>,
}

impl Evictions {
    pub(super) fn removed(&mut self, hash: BlockHash) {
        self.told.insert(hash, None);
        self.untold.push(hash);
        self.order.push_back(hash);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.told.remove(&oldest);
        }
    }

    pub(super) fn stored(&mut self, hashes: &[BlockHash]) {
        for hash in hashes {
            self.told.remove(hash);
        }
    }

    /// What was evicted so far is in a batch that leaves at `at`.
    pub(super) fn publish(&mut self, at: Instant) {
        for hash in self.untold.drain(..) {
            if let Some(told) = self.told.get_mut(&hash) {
                told.get_or_insert(at);
            }
        }
    }

    pub(super) fn lack(&self, hash: BlockHash, now: Instant) -> Lack {
        match self.told.get(&hash) {
            None => Lack::NotHeld,
            Some(Some(at)) if *at <= now => {
                Lack::EvictionTold { ms: now.saturating_duration_since(*at).as_secs_f64() * 1e3 }
            }
            Some(_) => Lack::EvictionUntold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_eviction_is_untold_until_its_batch_is_out() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut evictions = Evictions::default();
        evictions.removed(1);
        assert_eq!(evictions.lack(1, start), Lack::EvictionUntold);
        evictions.publish(after(10));
        assert_eq!(evictions.lack(1, after(5)), Lack::EvictionUntold);
        assert_eq!(evictions.lack(1, after(30)), Lack::EvictionTold { ms: 20.0 });
        evictions.stored(&[1]);
        assert_eq!(evictions.lack(1, after(30)), Lack::NotHeld);
    }

    #[test]
    fn remembers_a_bounded_number() {
        let mut evictions = Evictions::default();
        for hash in 0..REMEMBERED as u64 + 10 {
            evictions.removed(hash);
            evictions.publish(Instant::now());
        }
        assert!(evictions.told.len() <= REMEMBERED && evictions.order.len() <= REMEMBERED);
        assert_eq!(evictions.lack(0, Instant::now()), Lack::NotHeld);
    }
}
