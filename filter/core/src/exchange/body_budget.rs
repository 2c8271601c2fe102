//! Bytes of bodies on their way, over all streams of a VM.
//!
//! Their decoded text, or its digest, lives in the VM's memory. One body is bounded by the configuration, their sum by
//! this: a VM whose memory is full traps, and takes every stream of its worker along.

/// What is held at the moment.
#[derive(Debug, Default)]
pub struct BodyBudget {
    held: usize,
}

impl BodyBudget {
    /// Takes `bytes`, unless more than `limit` would be held.
    #[must_use]
    pub fn take(&mut self, bytes: usize, limit: usize) -> bool {
        let held = self.held.saturating_add(bytes);
        if held <= limit {
            self.held = held;
        }
        held <= limit
    }

    /// Gives them back.
    pub fn give(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }
}
