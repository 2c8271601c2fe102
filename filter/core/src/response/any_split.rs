//! However an answer is cut into slices, the same must come of it.

use core::fmt::Debug;

/// What `read` makes of the whole of `bytes`, after checking that every cut in two, and byte by byte, gives the same.
pub(super) fn every_cut<'a, T: PartialEq + Debug>(
    bytes: &'a [u8],
    read: impl Fn(Vec<&'a [u8]>) -> T,
) -> T {
    let shown = String::from_utf8_lossy(bytes);
    let whole = read(vec![bytes]);
    assert_eq!(read(bytes.chunks(1).collect()), whole, "{shown} byte by byte");
    for cut in 0..=bytes.len() {
        let (a, b) = bytes.split_at(cut);
        assert_eq!(read(vec![a, b]), whole, "{shown} cut at {cut}");
    }
    whole
}

/// What is forwarded of `slices`: what `feed` gives instead of each, or the slice as it is.
pub(super) fn forwarded<'a>(
    slices: impl IntoIterator<Item = &'a [u8]>,
    mut feed: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Vec<u8> {
    let mut out = Vec::new();
    for slice in slices {
        match feed(slice) {
            Some(bytes) => out.extend_from_slice(&bytes),
            None => out.extend_from_slice(slice),
        }
    }
    out
}

#[cfg(not(target_arch = "wasm32"))]
pub(super) mod any_bytes {
    use proptest::prelude::*;

    /// What JSON and event streams are made of.
    const PIECES: &[&str] =
        &["{", "}", "[", "]", ",", ":", "\"", "1", "\n", "\r", "\n\n", "data: ", "data:{", ": c\n"];

    /// Pieces of JSON and event streams, among them these, in any order: mostly wrong, sometimes right.
    pub(in crate::response) fn soup(
        more: &'static [&'static str],
    ) -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(proptest::sample::select([PIECES, more].concat()), 0..16)
            .prop_map(|pieces| pieces.concat().into_bytes())
    }

    /// Sizes for [`slices`].
    pub(in crate::response) fn sizes() -> impl Strategy<Value = Vec<usize>> {
        proptest::collection::vec(1usize..9, 1..40)
    }

    /// `bytes` in slices of these sizes, over and over.
    pub(in crate::response) fn slices<'a>(bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
        let mut rest = bytes;
        let mut slices = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (slice, tail) = rest.split_at((*size).min(rest.len()));
            slices.push(slice);
            rest = tail;
        }
        slices
    }
}
