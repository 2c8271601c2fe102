//! What is kept of an engine block's tokens: where byte blocks end in it, and its last ids.
//!
//! `[u16 per ended byte block: tokens of the engine block before its end][u64 per ended byte block but the
//! last: its hash][u8: how many ids][its last ids, of 2 or 3 bytes each]`; the last byte block's hash is the
//! node's `chain`.
//!
//! What hangs on a block needs the bytes of the byte block that is not finished there. They are kept as ids, which
//! need half as much memory as the text that they stand for, and each node has only those that cover its own part
//! of these bytes: the others are its ancestors'.

/// Ids below have two bytes, larger ones three, with the first bit set.
const SHORT_IDS: u32 = 1 << 15;

/// Appends all of it to `blob`: byte blocks with the tokens before their ends, and ids of at most
/// [`MAX_ID`](super::chain::MAX_ID), at most 255.
pub(super) fn write(
    blob: &mut Vec<u8>,
    ended: &[(u64, u16)],
    ids: impl ExactSizeIterator<Item = u32>,
) {
    blob.extend(ended.iter().flat_map(|(_, tokens)| tokens.to_le_bytes()));
    if let Some((_, hashes)) = ended.split_last() {
        blob.extend(hashes.iter().flat_map(|(hash, _)| hash.to_le_bytes()));
    }
    blob.push(u8::try_from(ids.len()).unwrap_or(0));
    for id in ids {
        let [_, high, middle, low] = id.to_be_bytes();
        if id < SHORT_IDS {
            blob.extend([middle, low]);
        } else {
            blob.extend([high | 0x80, middle, low]);
        }
    }
}

/// Hash (of all but the last) of the `position`-th of `count` byte blocks, and the tokens before its end.
pub(super) fn ended(blob: &[u8], count: usize, position: usize) -> Option<(Option<u64>, u16)> {
    let tokens = blob.get(position.checked_mul(2)?..)?.first_chunk()?;
    let mut hash = None;
    if position.saturating_add(1) < count {
        let at = count.checked_mul(2)?.checked_add(position.checked_mul(8)?)?;
        hash = Some(u64::from_le_bytes(*blob.get(at..)?.first_chunk()?));
    }
    Some((hash, u16::from_le_bytes(*tokens)))
}

/// The ids, of a block that ends `count` byte blocks.
pub(super) fn ids(blob: &[u8], count: usize) -> impl Iterator<Item = u32> {
    let (number, mut rest) =
        blob.get(ids_at(count)..).and_then(<[u8]>::split_first).unwrap_or((&0, &[]));
    (0..*number).map_while(move |_| {
        let (id, after) = id(rest)?;
        rest = after;
        Some(id)
    })
}

/// How long all of it is; `blob` may be longer.
pub(super) fn len(blob: &[u8], count: usize) -> usize {
    let bytes = |id| if id < SHORT_IDS { 2usize } else { 3 };
    let ids: usize = ids(blob, count).map(bytes).sum();
    ids_at(count).saturating_add(1).saturating_add(ids)
}

fn ids_at(count: usize) -> usize {
    count.saturating_mul(2).saturating_add(count.saturating_sub(1).saturating_mul(8))
}

fn id(bytes: &[u8]) -> Option<(u32, &[u8])> {
    match *bytes {
        [high, middle, low, ref rest @ ..] if high & 0x80 != 0 => {
            Some((u32::from_be_bytes([0, high & 0x7F, middle, low]), rest))
        }
        [middle, low, ref rest @ ..] => Some((u32::from_be_bytes([0, 0, middle, low]), rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_index::chain::MAX_ID;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read_again(
            blocks in proptest::collection::vec(any::<(u64, u16)>(), 0..5),
            ids in proptest::collection::vec(prop_oneof![0..MAX_ID + 1, 32_760u32..32_780], 0..128),
            behind in proptest::collection::vec(any::<u8>(), 0..9),
        ) {
            let mut blob = Vec::new();
            write(&mut blob, &blocks, ids.iter().copied());
            let whole = blob.len();
            blob.extend(behind);
            prop_assert_eq!(len(&blob, blocks.len()), whole);
            prop_assert_eq!(super::ids(&blob, blocks.len()).collect::<Vec<_>>(), ids);
            for (position, (hash, tokens)) in blocks.iter().enumerate() {
                let hash = (position + 1 < blocks.len()).then_some(*hash);
                prop_assert_eq!(ended(&blob, blocks.len(), position), Some((hash, *tokens)));
            }
        }
    }
}
