//! Memory of short byte strings: pools by size in steps of 4 bytes, named by 32-bit numbers.
//!
//! The owner knows the length, so none is kept.

use std::num::NonZeroU32;

const STEP: usize = 4;
/// Longest string: what a block of 4096 tokens of 128 bytes would need.
const MAX_LEN: usize = 64 << 10;

/// Number of a string among those of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlobId(NonZeroU32);

#[derive(Default)]
struct Pool {
    data: Vec<u8>,
    /// First free slot; each free slot begins with the number of the next one, 0 for none.
    free: u32,
}

/// All strings of one endpoint.
#[derive(Default)]
pub(super) struct Blobs {
    /// Slot size is the position + 1, in steps.
    pools: Vec<Pool>,
}

fn class(len: usize) -> (usize, usize) {
    let class = len.div_ceil(STEP).saturating_sub(1);
    (class, class.saturating_add(1).saturating_mul(STEP))
}

impl Blobs {
    /// Keeps a copy. `None` if it is too long (or there are 2³² of its size).
    pub(super) fn put(&mut self, bytes: &[u8]) -> Option<BlobId> {
        if bytes.len() > MAX_LEN {
            return None;
        }
        let (class, size) = class(bytes.len());
        if self.pools.len() <= class {
            self.pools.resize_with(class.saturating_add(1), Pool::default);
        }
        let pool = self.pools.get_mut(class)?;
        if let Some(number) = NonZeroU32::new(pool.free) {
            let slot = pool.data.get_mut(range(number, size)?)?;
            pool.free = u32::from_le_bytes(*slot.first_chunk()?);
            slot.get_mut(..bytes.len())?.copy_from_slice(bytes);
            return Some(BlobId(number));
        }
        let used = pool.data.len();
        let number = NonZeroU32::new(u32::try_from((used / size).checked_add(1)?).ok()?)?;
        if pool.data.capacity().saturating_sub(used) < size {
            // By a sixteenth: doubling would waste a third.
            pool.data.reserve_exact((used / 16).max(size.saturating_mul(16)));
        }
        pool.data.extend_from_slice(bytes);
        pool.data.resize(used.saturating_add(size), 0);
        Some(BlobId(number))
    }

    /// A string of that length.
    pub(super) fn get(&self, id: BlobId, len: usize) -> &[u8] {
        let (class, size) = class(len);
        let slot = self.pools.get(class).and_then(|pool| pool.data.get(range(id.0, size)?));
        slot.and_then(|slot| slot.get(..len)).unwrap_or_default()
    }

    /// Gives up a string of that length.
    pub(super) fn free(&mut self, id: BlobId, len: usize) {
        let (class, size) = class(len);
        let Some(pool) = self.pools.get_mut(class) else { return };
        let next = pool.free.to_le_bytes();
        let slot = range(id.0, size).and_then(|range| pool.data.get_mut(range));
        if let Some(head) = slot.and_then(|slot| slot.first_chunk_mut()) {
            *head = next;
            pool.free = id.0.get();
        }
    }
}

fn range(number: NonZeroU32, size: usize) -> Option<std::ops::Range<usize>> {
    let start = (number.get() as usize).checked_sub(1)?.checked_mul(size)?;
    Some(start..start.checked_add(size)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_others_keep_their_bytes() {
        let mut blobs = Blobs::default();
        let strings: Vec<Vec<u8>> = (0..300usize).map(|n| vec![n as u8; n % 70]).collect();
        let ids: Vec<_> = strings.iter().map(|s| blobs.put(s).unwrap()).collect();
        for (id, string) in ids.iter().zip(&strings).step_by(2) {
            blobs.free(*id, string.len());
        }
        let again: Vec<_> = strings.iter().step_by(2).map(|s| blobs.put(s).unwrap()).collect();
        assert!(again.iter().all(|id| ids.contains(id)));
        for (id, string) in again.iter().zip(strings.iter().step_by(2)) {
            assert_eq!(blobs.get(*id, string.len()), string);
        }
        for (id, string) in ids.iter().zip(&strings).skip(1).step_by(2) {
            assert_eq!(blobs.get(*id, string.len()), string);
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        assert_eq!(Blobs::default().put(&vec![0; MAX_LEN + 1]), None);
    }
}
