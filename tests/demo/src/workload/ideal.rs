//! The best that any routing could do: what an infinite cache would have held.

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Tokens in a KV block: vLLM's default, and the simulated engines'.
pub const BLOCK_TOKENS: usize = 16;

/// Remembers every prompt seen so far as chained hashes of its whole blocks.
#[derive(Debug, Default)]
pub struct PrefixLedger {
    seen: HashSet<u64>,
}

impl PrefixLedger {
    /// Adds a prompt; returns how many of its tokens an infinite cache would have held: the longest
    /// prefix shared with any earlier prompt, in whole blocks, and never the last token (an engine
    /// must compute at least that one to answer).
    pub fn add(&mut self, prompt: &[u32]) -> usize {
        let mut chain = 0;
        let mut held = 0;
        let mut all_known = true;
        for (index, block) in prompt.chunks_exact(BLOCK_TOKENS).enumerate() {
            let bytes: Vec<u8> = block.iter().flat_map(|id| id.to_le_bytes()).collect();
            chain = xxh3_64_with_seed(&bytes, chain);
            let known = !self.seen.insert(chain);
            all_known &= known;
            if all_known {
                held = (index + 1) * BLOCK_TOKENS;
            }
        }
        held.min(prompt.len().saturating_sub(1) / BLOCK_TOKENS * BLOCK_TOKENS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_whole_blocks_shared_with_any_earlier_prompt() {
        let long: Vec<u32> = (0..100).collect();
        let mut forked = long.clone();
        forked[40] = 9_999;
        let cases: &[(&str, &[u32], usize)] = &[
            ("the first prompt finds nothing", &long, 0),
            ("a fork in the third block keeps two", &forked, 32),
            ("the same again, all whole blocks", &long, 96),
            ("shorter, ending on a block: the last token is computed", &long[..48], 32),
            ("shorter, ending inside a block", &long[..50], 48),
            ("less than a block", &long[..15], 0),
            ("nothing", &[], 0),
        ];
        let mut ledger = PrefixLedger::default();
        for (what, prompt, held) in cases {
            assert_eq!(ledger.add(prompt), *held, "{what}");
        }
    }

    proptest! {
        /// Against the definition, read literally.
        #[test]
        fn agrees_with_the_longest_common_prefix(
            prompts in prop::collection::vec(prop::collection::vec(0_u32..2, 0..70), 1..12)
        ) {
            let mut ledger = PrefixLedger::default();
            for (index, prompt) in prompts.iter().enumerate() {
                let shared = prompts[..index]
                    .iter()
                    .map(|earlier| earlier.iter().zip(prompt).take_while(|(a, b)| a == b).count())
                    .max()
                    .unwrap_or(0)
                    .min(prompt.len().saturating_sub(1));
                prop_assert_eq!(ledger.add(prompt), shared / BLOCK_TOKENS * BLOCK_TOKENS);
            }
        }
    }
}
