//! The prefix chain: a prompt as a sequence of block hashes.
//!
//! A prompt is the byte string that the engine would tokenize (or, in approximate mode, a
//! stand-in for it). It is cut into blocks of [`BLOCK_BYTES`]; each block's hash depends on all
//! bytes before it, so two prompts share the hash at position *i* exactly if they share their
//! first *i* blocks. The tail that fills no block has no hash. In approximate mode a prompt has segments, and each begins
//! a block of its own ([`BlockDigester::end_segment`]).
//!
//! `h0 = XXH3(stream, model, adapter, cache salt)`, each text with its length before it, and
//! `h[i] = XXH3(XXH3(block[i]) as 8 LE bytes, seed = h[i-1])`. The block is hashed by itself
//! first, so that the bytes can be hashed before the fields that `h0` needs have been seen.

mod block_digest;

use block_digest::block_digest;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes of prompt in one block. At 1 to 5 bytes a token this is 25 to 128 tokens: rounding to
/// blocks of 128 B loses 20 to 27 tokens on average, 256 B would lose twice that.
pub const BLOCK_BYTES: usize = 128;

/// What prefixes may be shared between: two prompts match only if all of it is equal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChainScope<'a> {
    /// Which byte stream stands for the prompt: 0 for the approximate one, else the identity of the
    /// model's rendered stream ([`ModelRecord::stream`](crate::model::ModelRecord::stream)).
    pub stream: u64,
    /// Base model, by the name that the engine serves.
    pub model: &'a str,
    /// LoRA adapter, if any: engines key their blocks by adapter.
    pub adapter: Option<&'a str>,
    /// The request's `cache_salt`, if any.
    pub cache_salt: Option<&'a str>,
}

impl ChainScope<'_> {
    /// `h0`, the hash before the first block.
    #[must_use]
    pub fn root(&self) -> u64 {
        let mut writer = crate::wire::Writer::new();
        writer.u64(self.stream);
        for field in [Some(self.model), self.adapter, self.cache_salt] {
            match field {
                // A missing field and an empty one are different scopes.
                None => writer.u64(u64::MAX),
                Some(text) => {
                    writer.u64(text.len() as u64);
                    writer.bytes(text.as_bytes());
                }
            }
        }
        xxh3_64(writer.as_bytes())
    }
}

/// One step of the chain.
#[must_use]
pub fn chain_step(previous: u64, block_digest: u64) -> u64 {
    xxh3_64_with_seed(&block_digest.to_le_bytes(), previous)
}

/// Cuts a byte stream into blocks and digests them, whatever the slices it arrives in.
#[derive(Debug, Clone)]
pub struct BlockDigester {
    residual: [u8; BLOCK_BYTES],
    filled: usize,
    bytes: u64,
}

impl Default for BlockDigester {
    fn default() -> Self {
        Self { residual: [0; BLOCK_BYTES], filled: 0, bytes: 0 }
    }
}

impl BlockDigester {
    /// Takes the next bytes of the prompt and appends the digest of each block they complete.
    pub fn push(&mut self, mut bytes: &[u8], digests: &mut Vec<u64>) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.filled > 0 {
            let room = BLOCK_BYTES.saturating_sub(self.filled);
            let (head, tail) = bytes.split_at(room.min(bytes.len()));
            if let Some(target) =
                self.residual.get_mut(self.filled..self.filled.saturating_add(head.len()))
            {
                target.copy_from_slice(head);
            }
            self.filled = self.filled.saturating_add(head.len());
            bytes = tail;
            if self.filled < BLOCK_BYTES {
                return;
            }
            digests.push(block_digest(&self.residual));
            self.filled = 0;
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        digests.extend(blocks.iter().map(block_digest));
        if let Some(target) = self.residual.get_mut(..rest.len()) {
            target.copy_from_slice(rest);
            self.filled = rest.len();
        }
    }

    /// What comes next begins a block of its own: what is in an unfinished one is digested as short as it is.
    pub fn end_segment(&mut self, digests: &mut Vec<u64>) {
        if let Some(short) = self.residual.get(..self.filled).filter(|short| !short.is_empty()) {
            digests.push(xxh3_64(short));
        }
        self.filled = 0;
    }

    /// How many bytes were taken so far, those in the unfinished block included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many of them are in no block yet.
    #[must_use]
    pub fn residual_len(&self) -> usize {
        self.filled
    }
}

/// Turns block digests into the chain, in place: afterwards `digests[i]` is `h[i+1]`.
pub fn chain_in_place(scope: &ChainScope<'_>, digests: &mut [u64]) {
    let mut hash = scope.root();
    for digest in digests {
        hash = chain_step(hash, *digest);
        *digest = hash;
    }
}

/// The whole chain of a prompt that is at hand in one piece.
#[must_use]
pub fn chain(scope: &ChainScope<'_>, prompt: &[u8]) -> Vec<u64> {
    let mut hashes = Vec::with_capacity(prompt.len() / BLOCK_BYTES);
    BlockDigester::default().push(prompt, &mut hashes);
    chain_in_place(scope, &mut hashes);
    hashes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: ChainScope<'_> =
        ChainScope { stream: 0, model: "m", adapter: None, cache_salt: None };

    fn prompt(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 % 251) as u8).collect()
    }

    fn digests_of(bytes: &[u8]) -> Vec<u64> {
        let mut digests = Vec::new();
        BlockDigester::default().push(bytes, &mut digests);
        digests
    }

    crate::tests! {
        fn only_whole_blocks_count() {
            for (len, blocks) in [(0, 0), (127, 0), (128, 1), (255, 1), (256, 2), (1000, 7)] {
                assert_eq!(chain(&SCOPE, &prompt(len)).len(), blocks, "{len} bytes");
            }
        }

        fn a_shared_prefix_shares_hashes_and_nothing_after_the_first_difference() {
            let a = prompt(1024);
            let mut b = a.clone();
            b[300] ^= 1;
            let (a, b) = (chain(&SCOPE, &a), chain(&SCOPE, &b));
            assert_eq!(a[..2], b[..2]);
            assert!(a[2..].iter().zip(&b[2..]).all(|(x, y)| x != y));
        }

        fn permuted_and_repeated_blocks_differ() {
            let (x, y) = ([1u8; 128], [2u8; 128]);
            let xy = chain(&SCOPE, &[x, y].concat());
            let yx = chain(&SCOPE, &[y, x].concat());
            let xx = chain(&SCOPE, &[x, x].concat());
            assert_ne!(xy[1], yx[1]);
            assert_ne!(xx[1], xy[1]);
            assert_ne!(xx[0], xx[1]);
        }

        fn stream_model_adapter_and_salt_never_mix() {
            let scopes = [
                ChainScope { model: "ab", ..SCOPE },
                ChainScope { stream: 1, model: "ab", ..SCOPE },
                ChainScope { model: "a", adapter: Some("b"), ..SCOPE },
                ChainScope { model: "a", cache_salt: Some("b"), ..SCOPE },
                ChainScope { model: "ab", adapter: Some(""), ..SCOPE },
                ChainScope { model: "ab", cache_salt: Some(""), ..SCOPE },
            ];
            let mut roots: Vec<u64> = scopes.iter().map(ChainScope::root).collect();
            roots.sort_unstable();
            roots.dedup();
            assert_eq!(roots.len(), scopes.len());
        }

        fn a_segment_begins_a_block_of_its_own_whatever_is_before_it() {
            let digests = |first: usize| {
                let (mut digester, mut digests) = (BlockDigester::default(), Vec::new());
                digester.push(&prompt(first), &mut digests);
                digester.end_segment(&mut digests);
                digester.push(&prompt(300), &mut digests);
                assert_eq!((digester.bytes(), digester.residual_len()), (first as u64 + 300, 300 - 256));
                digests
            };
            for (first, blocks) in [(0, 0), (1, 1), (127, 1), (128, 1), (129, 2), (256, 2)] {
                let digests = digests(first);
                assert_eq!(digests.len(), blocks + 2, "{first} bytes");
                assert_eq!(digests[blocks..], digests_of(&prompt(256)));
            }
            assert_ne!(digests(1)[0], digests(2)[0]);
        }

        fn hashes_are_the_same_on_every_build() {
            // Agent (64 bits) and filter (wasm32) must agree for ever: a change here voids every table.
            assert_eq!(chain(&SCOPE, &prompt(256)), [16_719_244_780_792_918_523, 10_245_937_047_847_035_547]);
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    proptest::proptest! {
        #[test]
        fn slices_do_not_matter(len in 0usize..2000, cuts in proptest::collection::vec(0usize..2000, 0..8)) {
            let prompt = prompt(len);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(len)).collect();
            cuts.extend([0, len]);
            cuts.sort_unstable();
            let mut digester = BlockDigester::default();
            let mut hashes = Vec::new();
            for pair in cuts.windows(2) {
                digester.push(&prompt[pair[0]..pair[1]], &mut hashes);
            }
            chain_in_place(&SCOPE, &mut hashes);
            proptest::prop_assert_eq!(hashes, chain(&SCOPE, &prompt));
            proptest::prop_assert_eq!(digester.bytes(), len as u64);
            proptest::prop_assert_eq!(digester.residual_len(), len % BLOCK_BYTES);
        }
    }
}
