//! Buffers of former requests, for the next ones.

use super::scratch::{KEEP_BYTES, Scratch};

/// Small ones kept.
const KEPT: usize = 16;

/// What a VM keeps of them. A VM gives no memory back to Envoy, so one huge buffer is kept for the next huge body: with
/// small things in its place there would be no room for it again.
#[derive(Debug, Default)]
pub struct ScratchPool {
    small: Vec<Scratch>,
    large: Option<Scratch>,
}

impl ScratchPool {
    /// Buffers for a body of so many bytes.
    #[must_use]
    pub fn take(&mut self, body_bytes: usize) -> Scratch {
        let large = if body_bytes > KEEP_BYTES { self.large.take() } else { None };
        large.or_else(|| self.small.pop()).unwrap_or_default()
    }

    /// Takes buffers back. `room_wanted`: as much memory as they hold is about to be needed for something else.
    pub fn give(&mut self, mut scratch: Scratch, room_wanted: bool) {
        scratch.clear();
        if scratch.is_large() && !room_wanted && self.large.is_none() {
            self.large = Some(scratch);
            return;
        }
        if self.small.len() < KEPT {
            scratch.drop_large();
            self.small.push(scratch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: usize) -> Scratch {
        Scratch { text: Vec::with_capacity(bytes), ..Scratch::default() }
    }

    crate::tests! {
        fn one_large_buffer_is_kept_and_only_for_large_bodies() {
            let mut pool = ScratchPool::default();
            pool.give(of(4 * KEEP_BYTES), false);
            pool.give(of(4 * KEEP_BYTES), false);
            pool.give(of(100), false);
            assert_eq!(pool.take(500).text.capacity(), 100);
            assert_eq!(pool.take(2 * KEEP_BYTES).text.capacity(), 4 * KEEP_BYTES);
            // The second large one was cut down.
            assert_eq!(pool.take(2 * KEEP_BYTES).text.capacity(), 0);
            pool.give(of(4 * KEEP_BYTES), true);
            assert_eq!(pool.take(2 * KEEP_BYTES).text.capacity(), 0);
        }

        fn so_many_small_ones_are_kept() {
            let mut pool = ScratchPool::default();
            (0..100).for_each(|_| pool.give(of(100), false));
            assert_eq!(pool.small.len(), KEPT);
        }
    }
}
