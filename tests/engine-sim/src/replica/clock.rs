//! Simulated time as a function of real time.

use tokio::time::{Duration, Instant};

use crate::engine::SimTime;

/// Runs `scale` times as fast as real time, and can be paused.
#[derive(Debug)]
pub struct SimClock {
    scale: f64,
    origin: Instant,
    paused: Option<Instant>,
}

impl SimClock {
    /// Starts at simulated time 0.
    pub fn new(scale: f64, now: Instant) -> Self {
        Self { scale: scale.max(1e-6), origin: now, paused: None }
    }

    /// Simulated time at real time `now`.
    pub fn at(&self, now: Instant) -> SimTime {
        let real = self.paused.unwrap_or(now).saturating_duration_since(self.origin);
        (real.as_secs_f64() * self.scale * 1e9) as SimTime
    }

    /// Real time at which `time` is reached; `None` while paused.
    pub fn when(&self, time: SimTime) -> Option<Instant> {
        if self.paused.is_some() {
            return None;
        }
        let seconds = time as f64 / 1e9 / self.scale;
        // Rounded up, so that waking then never finds the event a fraction ahead.
        let real =
            Duration::try_from_secs_f64(seconds).ok()?.saturating_add(Duration::from_nanos(1));
        self.origin.checked_add(real)
    }

    /// Stops or resumes time.
    pub fn set_paused(&mut self, paused: bool, now: Instant) {
        match (paused, self.paused) {
            (true, None) => self.paused = Some(now),
            (false, Some(since)) => {
                self.origin += now.saturating_duration_since(since);
                self.paused = None;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_scaled_and_stands_still_while_paused() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut clock = SimClock::new(10.0, start);
        assert_eq!(clock.at(after(3)), 30_000_000);
        let when = clock.when(30_000_000).unwrap();
        assert!(clock.at(when) >= 30_000_000 && when <= after(4));
        clock.set_paused(true, after(3));
        assert_eq!((clock.at(after(500)), clock.when(1)), (30_000_000, None));
        clock.set_paused(false, after(503));
        assert_eq!(clock.at(after(504)), 40_000_000);
    }
}
