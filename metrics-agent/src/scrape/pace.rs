//! When the next scrape of an endpoint begins.
//!
//! A scrape costs the engine what it costs us to wait for it, so its duration sets the pause:
//! an endpoint spends at most a twentieth of its time on us.

use std::time::Duration;

/// Shortest interval that can be asked for.
pub const FLOOR: Duration = Duration::from_millis(50);
/// Interval in durations of the last scrape.
const DURATIONS: u32 = 20;
/// However slow scrapes are, one begins this often: load older than this is no load.
const CEILING: Duration = Duration::from_secs(10);
/// Longest wait of a new endpoint for its first scrape.
const FIRST_CEILING: Duration = Duration::from_millis(500);
/// Longest pause before an endpoint that does not answer is tried again.
const RETRY_CEILING: Duration = Duration::from_secs(1);

/// The pause between scrapes of one endpoint.
#[derive(Debug, Clone)]
pub struct Pace {
    base: Duration,
    interval: Duration,
    failures: u32,
}

impl Pace {
    /// A pace of `base`, or [`FLOOR`] if that is less.
    #[must_use]
    pub fn new(base: Duration) -> Self {
        let base = base.max(FLOOR);
        Self { base, interval: base, failures: 0 }
    }

    /// From now on `base` is the shortest interval, or [`FLOOR`] if that is less.
    pub fn set_base(&mut self, base: Duration) {
        let base = base.max(FLOOR);
        if base != self.base {
            (self.base, self.interval) = (base, base);
        }
    }

    /// The interval between good scrapes, start to start.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// When the first scrape begins, for `random` from all of `u64`: endpoints that appear together
    /// are not scraped together, but none waits long, since it gets no request before.
    #[must_use]
    pub fn first(&self, random: u64) -> Duration {
        let spread = self.base.min(FIRST_CEILING);
        let nanos = u64::try_from(spread.as_nanos()).unwrap_or(u64::MAX).max(1);
        Duration::from_nanos(random % nanos)
    }

    /// Pause after an answer that took `duration`.
    pub fn after_answer(&mut self, duration: Duration) -> Duration {
        self.failures = 0;
        self.interval = duration.saturating_mul(DURATIONS).min(CEILING).max(self.base);
        self.interval.saturating_sub(duration)
    }

    /// Pause after a scrape without an answer: short at first, since it is how soon a dead
    /// engine is found, then doubling.
    pub fn after_failure(&mut self) -> Duration {
        let factor = 1u32.checked_shl(self.failures.min(16)).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        self.base.saturating_mul(factor).min(RETRY_CEILING.max(self.base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_interval_is_twenty_durations_within_bounds() {
        let cases = [
            (1, 1, 50), // base below the floor
            (50, 2, 50),
            (50, 3, 60),
            (50, 17, 340),
            (50, 900, 10_000),
            (5_000, 1, 5_000),
        ];
        for (base, duration, interval) in cases {
            let mut pace = Pace::new(ms(base));
            assert_eq!(
                pace.after_answer(ms(duration)),
                ms(interval - duration),
                "{base} {duration}"
            );
            assert_eq!(pace.interval(), ms(interval));
        }
    }

    #[test]
    fn failures_are_retried_soon_then_seldom_and_an_answer_resets() {
        let mut pace = Pace::new(ms(50));
        let pauses: Vec<_> = (0..7).map(|_| pace.after_failure().as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
        pace.after_answer(ms(1));
        assert_eq!(pace.after_failure(), ms(50));
        for _ in 0..100 {
            pace.after_failure();
        }
        assert_eq!(pace.after_failure(), ms(1000));
        assert_eq!(Pace::new(ms(5000)).after_failure(), ms(5000));
    }

    #[test]
    fn the_first_scrape_lies_inside_the_interval_and_is_never_far() {
        let pace = Pace::new(ms(50));
        let seldom = Pace::new(ms(60_000));
        for random in [0, 1, 499_999_999, u64::MAX / 3, u64::MAX] {
            assert!(pace.first(random) < ms(50));
            assert!(seldom.first(random) < ms(500));
        }
        assert_ne!(pace.first(7), pace.first(8));
    }
}
