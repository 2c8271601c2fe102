//! Memory of short byte strings: chunks that are filled one after the other, and lists of given-up places by size in
//! steps of 4 bytes. Strings go by 32-bit numbers.
//!
//! Chunks of one size and no growing vectors: with 256 endpoints, what those have in reserve and leave
//! behind when they grow was more than what they hold in vain here.
//!
//! The owner knows how long a string is, so no length is kept.

use std::num::NonZeroU32;

const STEP: usize = 4;
/// Bytes of a chunk. A longer string has one of its own.
const CHUNK: usize = 16 << 10;
const STEPS: usize = CHUNK / STEP;
/// Longest string: what a block of 4096 tokens of 128 bytes would need.
const MAX_LEN: usize = 64 << 10;

/// Number of a string: one more than its place, in steps from the first chunk on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlobId(NonZeroU32);

impl BlobId {
    fn new(chunk: usize, start: usize) -> Option<Self> {
        let steps = chunk.checked_mul(STEPS)?.checked_add(start / STEP)?.checked_add(1)?;
        NonZeroU32::new(u32::try_from(steps).ok()?).map(Self)
    }

    /// Chunk, and place in it.
    fn place(self) -> (usize, usize) {
        let steps = (self.0.get() as usize).saturating_sub(1);
        (steps / STEPS, steps % STEPS * STEP)
    }
}

/// All strings of one endpoint.
#[derive(Default)]
pub(super) struct Blobs {
    chunks: Vec<Vec<u8>>,
    /// The chunk that is being filled.
    open: usize,
    /// First free place of a size (in steps, less one); each begins with the number of the next, 0 for none.
    free: Vec<u32>,
}

/// Which size a length belongs to, and its bytes.
fn class(len: usize) -> (usize, usize) {
    let class = len.div_ceil(STEP).saturating_sub(1);
    (class, class.saturating_add(1).saturating_mul(STEP))
}

impl Blobs {
    /// Keeps a copy. `None` if it is too long (or there are 16 GB of them).
    pub(super) fn put(&mut self, bytes: &[u8]) -> Option<BlobId> {
        if bytes.len() > MAX_LEN {
            return None;
        }
        let (class, size) = class(bytes.len());
        if let Some(head) = self.free.get_mut(class)
            && let Some(number) = NonZeroU32::new(*head)
        {
            let (chunk, start) = BlobId(number).place();
            let place = self.chunks.get_mut(chunk)?.get_mut(start..)?;
            *head = u32::from_le_bytes(*place.first_chunk()?);
            place.get_mut(..bytes.len())?.copy_from_slice(bytes);
            return Some(BlobId(number));
        }
        let full = |chunk: &Vec<u8>| chunk.len().saturating_add(size) > chunk.capacity();
        if size > CHUNK {
            self.chunks.push(Vec::with_capacity(size));
        } else if self.chunks.get(self.open).is_none_or(full) {
            self.open = self.chunks.len();
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let at = if size > CHUNK { self.chunks.len().saturating_sub(1) } else { self.open };
        let chunk = self.chunks.get_mut(at)?;
        let start = chunk.len();
        let id = BlobId::new(at, start)?;
        chunk.extend_from_slice(bytes);
        chunk.resize(start.saturating_add(size), 0);
        Some(id)
    }

    /// A string, and whatever lies behind it.
    pub(super) fn get(&self, id: BlobId) -> &[u8] {
        let (chunk, start) = id.place();
        self.chunks.get(chunk).and_then(|chunk| chunk.get(start..)).unwrap_or_default()
    }

    /// Gives up a string of that length.
    pub(super) fn free(&mut self, id: BlobId, len: usize) {
        let (class, _) = class(len);
        let (chunk, start) = id.place();
        let place = self.chunks.get_mut(chunk).and_then(|chunk| chunk.get_mut(start..));
        let Some(first) = place.and_then(|place| place.first_chunk_mut()) else { return };
        if self.free.len() <= class {
            self.free.resize(class.saturating_add(1), 0);
        }
        if let Some(head) = self.free.get_mut(class) {
            *first = head.to_le_bytes();
            *head = id.0.get();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_others_keep_their_bytes() {
        let mut blobs = Blobs::default();
        // Some chunks' worth, and some that are larger than a chunk.
        let len = |n: usize| if n % 100 == 99 { CHUNK + n } else { n % 70 };
        let strings: Vec<Vec<u8>> = (0..3_000usize).map(|n| vec![n as u8; len(n)]).collect();
        let ids: Vec<_> = strings.iter().map(|s| blobs.put(s).unwrap()).collect();
        for (id, string) in ids.iter().zip(&strings).step_by(2) {
            blobs.free(*id, string.len());
        }
        let chunks = blobs.chunks.len();
        let again: Vec<_> = strings.iter().step_by(2).map(|s| blobs.put(s).unwrap()).collect();
        assert_eq!(blobs.chunks.len(), chunks);
        for (id, string) in again.iter().zip(strings.iter().step_by(2)) {
            assert!(blobs.get(*id).starts_with(string));
        }
        for (id, string) in ids.iter().zip(&strings).skip(1).step_by(2) {
            assert!(blobs.get(*id).starts_with(string));
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        assert_eq!(Blobs::default().put(&vec![0; MAX_LEN + 1]), None);
    }
}
