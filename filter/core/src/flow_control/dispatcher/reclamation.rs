//! `enableEviction`: requests in flight of a priority below 0 are ended for higher ones that wait (llm-d-router,
//! `controller/internal/reclamation.go`).
//!
//! Stop and wait: nothing more is ended until each victim's end is confirmed (or 10 s have passed), and the half
//! second has passed in which the engine frees its memory.

use crate::flow_control::protocol::TicketId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Victims of one decision at most.
const MAX_VICTIMS: usize = 2;
/// From a victim's end to the next decision.
const GRACE_MS: u64 = 500;
/// A victim that has not ended by then counts as ended.
const TIMEOUT_MS: u64 = 10_000;

/// Who may be ended, and who is being.
#[derive(Debug, Default)]
pub(super) struct Reclamation {
    /// Lowest priority first, then the newest.
    evictable: BTreeSet<(i32, Reverse<u64>, TicketId)>,
    /// Victims whose end is not confirmed, and when they were told.
    outstanding: BTreeMap<TicketId, u64>,
    quiet_until_ms: u64,
}

impl Reclamation {
    pub(super) fn start(&mut self, id: TicketId, priority: i32, at_ms: u64) {
        if priority < 0 {
            self.evictable.insert((priority, Reverse(at_ms), id));
        }
    }

    pub(super) fn finish(&mut self, id: TicketId, priority: i32, at_ms: u64, now_ms: u64) {
        self.evictable.remove(&(priority, Reverse(at_ms), id));
        if self.outstanding.remove(&id).is_some() {
            self.quiet_until_ms = now_ms.saturating_add(GRACE_MS);
        }
    }

    /// Victims for a band of this priority, which is blocked by its ceiling.
    pub(super) fn victims(
        &mut self,
        demand: i32,
        saturation: f64,
        ceiling: f64,
        in_flight: u64,
        now_ms: u64,
    ) -> Vec<TicketId> {
        let before = self.outstanding.len();
        self.outstanding.retain(|_, told_ms| now_ms.saturating_sub(*told_ms) < TIMEOUT_MS);
        if self.outstanding.len() < before {
            self.quiet_until_ms = now_ms.saturating_add(GRACE_MS);
        }
        // A ceiling of 0 lets nobody through, however much is freed.
        if !self.outstanding.is_empty() || now_ms < self.quiet_until_ms || ceiling <= 0.0 {
            return Vec::new();
        }
        #[allow(clippy::cast_precision_loss)]
        let credit = saturation / in_flight as f64;
        if !credit.is_finite() || credit <= 0.0 {
            return Vec::new();
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let wanted = ((saturation - ceiling) / credit).ceil().max(1.0) as usize;
        let victims: Vec<_> = self
            .evictable
            .iter()
            .take_while(|(priority, ..)| *priority < demand)
            .take(wanted.min(MAX_VICTIMS))
            .copied()
            .collect();
        for victim in &victims {
            self.evictable.remove(victim);
            self.outstanding.insert(victim.2, now_ms);
        }
        victims.into_iter().map(|(.., id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> TicketId {
        TicketId { incarnation: 1, number }
    }

    crate::tests! {
        fn the_lowest_and_newest_go_first_two_at_a_time_and_then_it_waits() {
            let mut reclamation = Reclamation::default();
            for (number, priority, at_ms) in
                [(1, -1, 10), (2, -10, 10), (3, -10, 20), (4, 0, 30), (5, -1, 40)]
            {
                reclamation.start(id(number), priority, at_ms);
            }
            let ask = |r: &mut Reclamation, demand, now| r.victims(demand, 1.25, 1.0, 5, now);
            assert_eq!(ask(&mut reclamation, 100, 1000), [id(3)], "one is enough");
            assert_eq!(ask(&mut reclamation, 100, 1001), [], "not confirmed");
            reclamation.finish(id(3), -10, 20, 1100);
            assert_eq!(ask(&mut reclamation, 100, 1599), [], "grace");
            assert_eq!(reclamation.victims(100, 3.0, 1.0, 4, 1600), [id(2), id(5)], "two at most");
            assert_eq!(ask(&mut reclamation, 100, 11_599), []);
            assert_eq!(ask(&mut reclamation, 100, 11_600), [], "timed out, grace begins");
            assert_eq!(ask(&mut reclamation, -1, 12_100), [], "no victim below it");
            assert_eq!(reclamation.victims(0, 1.25, 0.0, 5, 12_100), [], "nothing would help");
            assert_eq!(ask(&mut reclamation, 0, 12_100), [id(1)]);
        }
    }
}
