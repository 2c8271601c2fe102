//! XXH3-64 of one block, for the one length that the request path hashes by the thousand.
//!
//! The crate multiplies by way of `u128`. WebAssembly has no such product: the compiler calls a function for it, which
//! gives its result back through memory, eight times a block. Here it is four products of halves, in registers.
//! `make bench-parts` shows what that saves (`approximate/220k`); the values are the crate's, as a test has it.

use super::BLOCK_BYTES;

/// A block in the pairs of words that are multiplied with each other.
const PAIRS: usize = BLOCK_BYTES / 16;

const PRIME64_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_MX1: u64 = 0x1656_6791_9E37_79F9;

/// The first 128 bytes of XXH3's default secret as pairs of little-endian words, in the order in which they meet a block's
/// (`XXH3_len_17to128_64b` in `xxhash.h` goes from both ends to the middle).
const SECRET: [[u64; 2]; PAIRS] = [
    [0xbe4b_a423_396c_feb8, 0x1cad_21f7_2c81_017c],
    [0x78e5_c0cc_4ee6_79cb, 0x2172_ffcc_7dd0_5a82],
    [0xcb00_c391_bb52_283c, 0xa32e_531b_8b65_d088],
    [0x3f34_9ce3_3f76_faa8, 0x1d4f_0bc7_c7bb_dcf9],
    [0x3159_b4cd_4be0_518a, 0x6473_78d9_c97e_9fc8],
    [0x4ef9_0da2_9748_6471, 0xd8ac_dea9_46ef_1938],
    [0x8e24_43f7_7446_08b8, 0x4c26_3a81_e690_35e0],
    [0xdb97_9083_e96d_d4de, 0x1f67_b3b7_a4a4_4072],
];

/// XXH3-64 of a block, seed 0.
pub(super) fn block_digest(block: &[u8; BLOCK_BYTES]) -> u64 {
    let mut sum = (BLOCK_BYTES as u64).wrapping_mul(PRIME64_1).wrapping_add(products(block));
    sum ^= sum >> 37;
    sum = sum.wrapping_mul(PRIME_MX1);
    sum ^ (sum >> 32)
}

/// The pairs' words, mixed with the secret and multiplied: the sum of the products, of each the high half laid over the
/// low one.
#[cfg(not(target_arch = "wasm32"))]
#[allow(clippy::cast_possible_truncation)]
fn products(block: &[u8; BLOCK_BYTES]) -> u64 {
    let mut sum = 0u64;
    for (pair, [low_secret, high_secret]) in words(block).zip(&SECRET) {
        let product =
            u128::from(pair[0] ^ low_secret).wrapping_mul(u128::from(pair[1] ^ high_secret));
        sum = sum.wrapping_add(product as u64 ^ (product >> 64) as u64);
    }
    sum
}

/// The same two pairs at a time. In vectors, because the compiler knows a product of halves when it sees one, and calls
/// that function again.
#[cfg(target_arch = "wasm32")]
fn products(block: &[u8; BLOCK_BYTES]) -> u64 {
    use core::arch::wasm32::{
        i32x4_shuffle, i64x2_add, i64x2_shl, u64x2, u64x2_extmul_high_u32x4,
        u64x2_extmul_low_u32x4, u64x2_extract_lane, u64x2_shr, u64x2_splat, v128_and, v128_or,
        v128_xor,
    };
    let low_halves = u64x2_splat(0xffff_ffff);
    let mut sum = u64x2_splat(0);
    let mut mixed = words(block)
        .zip(&SECRET)
        .map(|(pair, secret)| v128_xor(u64x2(pair[0], pair[1]), u64x2(secret[0], secret[1])));
    while let (Some(x), Some(y)) = (mixed.next(), mixed.next()) {
        // Of a0·b0 and a1·b1 the factors' halves: (a0 low, a1 low, a0 high, a1 high), and so for b.
        let a = i32x4_shuffle::<0, 4, 1, 5>(x, y);
        let b = i32x4_shuffle::<2, 6, 3, 7>(x, y);
        let b_swapped = i32x4_shuffle::<2, 3, 0, 1>(b, b);
        let low = u64x2_extmul_low_u32x4(a, b);
        let high = u64x2_extmul_high_u32x4(a, b);
        let cross = u64x2_extmul_low_u32x4(a, b_swapped);
        // No sum here can overflow.
        let middle = i64x2_add(u64x2_shr(low, 32), v128_and(cross, low_halves));
        let middle = i64x2_add(middle, u64x2_extmul_high_u32x4(a, b_swapped));
        let low = v128_or(i64x2_shl(middle, 32), v128_and(low, low_halves));
        let high = i64x2_add(high, i64x2_add(u64x2_shr(cross, 32), u64x2_shr(middle, 32)));
        sum = i64x2_add(sum, v128_xor(low, high));
    }
    u64x2_extract_lane::<0>(sum).wrapping_add(u64x2_extract_lane::<1>(sum))
}

/// A block's words, in pairs.
fn words(block: &[u8; BLOCK_BYTES]) -> impl Iterator<Item = [u64; 2]> {
    let (pairs, _) = block.as_chunks::<16>();
    pairs.iter().map(|pair| {
        let (words, _) = pair.as_chunks::<8>();
        let mut words = words.iter().copied().map(u64::from_le_bytes);
        core::array::from_fn(|_| words.next().unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_64;

    crate::tests! {
        fn it_is_the_crates_hash() {
            let mut state = 1u64;
            for round in 0..1000 {
                let block: [u8; BLOCK_BYTES] = core::array::from_fn(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    // The first blocks are the extremes: products of only zeros and ones.
                    match round { 0 => 0, 1 => 0xff, _ => (state >> 56) as u8 }
                });
                assert_eq!(block_digest(&block), xxh3_64(&block), "round {round}");
            }
        }
    }
}
