//! When to try again.

/// First pause, in ms.
const FIRST_MS: u64 = 200;
/// Longest pause, in ms.
const LONGEST_MS: u64 = 10_000;

/// Pauses that double, up to ten seconds, and differ from VM to VM by up to a fourth.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backoff {
    failures: u32,
    not_before_ms: u64,
}

impl Backoff {
    /// Whether it is time.
    pub(super) fn may_try(self, now_ms: u64) -> bool {
        now_ms >= self.not_before_ms
    }

    /// It did not work; `spread` is any number that other VMs do not have.
    pub(super) fn failed(&mut self, now_ms: u64, spread: u64) {
        let pause =
            FIRST_MS.checked_shl(self.failures.min(16)).unwrap_or(LONGEST_MS).min(LONGEST_MS);
        let extra = pause.saturating_mul(spread % 256) / 1024;
        self.failures = self.failures.saturating_add(1);
        self.not_before_ms = now_ms.saturating_add(pause).saturating_add(extra);
    }

    /// It worked.
    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }
}
