//! Slots of a pool that may be used without asking.

/// What is left of a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lease {
    slots: u32,
    /// `u64::MAX`: any number.
    tokens: u64,
    until_ms: u64,
}

impl Lease {
    /// So much more, and for so long.
    pub(super) fn add(&mut self, slots: u32, tokens: u64, until_ms: u64) {
        self.slots = self.slots.saturating_add(slots);
        self.tokens = self.tokens.saturating_add(tokens);
        self.until_ms = until_ms;
    }

    /// One request of so many tokens, if there is room for it.
    pub(super) fn take(&mut self, tokens: u64, now_ms: u64) -> bool {
        if self.slots == 0 || self.is_over(now_ms) || tokens > self.tokens {
            return false;
        }
        self.slots = self.slots.saturating_sub(1);
        if self.tokens != u64::MAX {
            self.tokens = self.tokens.saturating_sub(tokens);
        }
        if self.slots == 0 {
            // The dispatcher counts them as gone, too.
            self.tokens = 0;
        }
        true
    }

    pub(super) fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.until_ms
    }

    /// Slots and counted tokens that are left.
    pub(super) fn rest(&self) -> (u32, u64) {
        (self.slots, if self.tokens == u64::MAX { 0 } else { self.tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn a_lease_is_used_up_by_slots_tokens_or_time() {
            let mut lease = Lease::default();
            lease.add(3, 100, 50);
            assert!(lease.take(60, 10));
            assert!(!lease.take(60, 10), "not enough tokens");
            assert!(lease.take(40, 49));
            assert!(!lease.take(0, 50), "over");
            assert_eq!(lease.rest(), (1, 0));
            lease.add(0, 0, 90);
            assert!(lease.take(0, 60), "renewed");
            assert!(!lease.take(0, 60), "no slot left");
            let mut any = Lease::default();
            any.add(2, u64::MAX, 50);
            assert!(any.take(u64::MAX, 0));
            assert_eq!(any.rest(), (1, 0));
        }
    }
}
