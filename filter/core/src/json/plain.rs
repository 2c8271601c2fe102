//! The search for the end of plain text: what a prompt mostly is, and where reading one spends its time.

/// Length of the plain start of `bytes`: ASCII without quote, backslash and control characters.
///
/// Sixteen bytes at a time: one comparison finds control characters and what is no ASCII, which is negative as a signed
/// byte.
#[cfg(target_arch = "wasm32")]
#[inline]
pub(super) fn plain_ascii(bytes: &[u8]) -> usize {
    use core::arch::wasm32::{
        i8x16_lt, i8x16_splat, u8x16_bitmask, u8x16_eq, u8x16_splat, v128_or,
    };
    let mut length = 0usize;
    let (blocks, tail) = bytes.as_chunks::<16>();
    for block in blocks {
        let block = vector(block);
        let ends = v128_or(u8x16_eq(block, u8x16_splat(b'"')), u8x16_eq(block, u8x16_splat(b'\\')));
        let marks = u8x16_bitmask(v128_or(ends, i8x16_lt(block, i8x16_splat(0x20))));
        if marks != 0 {
            let plain = usize::try_from(marks.trailing_zeros()).unwrap_or(0);
            return length.saturating_add(plain);
        }
        length = length.saturating_add(16);
    }
    length.saturating_add(tail.iter().take_while(|byte| is_plain(**byte)).count())
}

#[cfg(target_arch = "wasm32")]
#[inline]
fn vector(block: &[u8; 16]) -> core::arch::wasm32::v128 {
    let (words, _) = block.as_chunks::<8>();
    let mut words = words.iter().copied().map(u64::from_le_bytes);
    let (low, high) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    core::arch::wasm32::u64x2(low, high)
}

/// The same for other machines, eight bytes at a time in a register.
#[cfg(not(target_arch = "wasm32"))]
#[inline]
pub(super) fn plain_ascii(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    // Marks the high bit of each byte that is zero; exact up to the first mark, which is all we use.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let each = |byte: u8| ONES.wrapping_mul(u64::from(byte));
    let mut length = 0usize;
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word);
        let low = word.wrapping_sub(each(0x20)) & !word;
        let special = (zero(word ^ each(b'"')) | zero(word ^ each(b'\\')) | low | word) & HIGH;
        if special != 0 {
            let plain = special.trailing_zeros() / 8;
            return length.saturating_add(usize::try_from(plain).unwrap_or(0));
        }
        length = length.saturating_add(8);
    }
    length.saturating_add(tail.iter().take_while(|byte| is_plain(**byte)).count())
}

#[inline]
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=0x7f) && !matches!(byte, b'"' | b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn the_first_byte_that_is_not_plain_ends_it_wherever_it_stands() {
            for length in 0..70 {
                let text = vec![b'a'; length];
                assert_eq!(plain_ascii(&text), length);
                for at in 0..length {
                    for byte in 0..=255 {
                        let mut text = text.clone();
                        text[at] = byte;
                        // Something after it must not matter.
                        text[length - 1] = if at + 1 == length { byte } else { b'"' };
                        let expected = if is_plain(byte) { length - 1 + usize::from(at + 1 == length) } else { at };
                        assert_eq!(plain_ascii(&text), expected, "{byte} at {at} of {length}");
                    }
                }
            }
        }
    }
}
