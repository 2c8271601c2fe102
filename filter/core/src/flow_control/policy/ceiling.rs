//! Up to which saturation each priority is let through (llm-d-router, `usagelimits`).

use warmroute_shared_state::policy::plugin::UsageLimit;

/// A usage-limit policy and what it remembers.
#[derive(Debug, Clone)]
pub struct Ceilings {
    policy: UsageLimit,
    /// Decisions of the soft-reflective policy in which a priority was let through only now and then.
    turns: u64,
}

impl Ceilings {
    /// The policy, at its start.
    #[must_use]
    pub fn new(policy: UsageLimit) -> Self {
        Self { policy, turns: 0 }
    }

    /// The ceilings of these priorities (highest first) for one decision at this saturation.
    #[must_use]
    pub fn decide(&mut self, saturation: f64, priorities: &[i32]) -> Vec<f64> {
        let last = count(priorities.len().saturating_sub(1));
        let top = priorities.first().copied().unwrap_or(0);
        let bottom = priorities.last().copied().unwrap_or(0);
        let open = self.lets_through_now(saturation, priorities.len());
        let of = |(rank, priority): (usize, &i32)| match self.policy {
            UsageLimit::Static { threshold } => threshold,
            UsageLimit::PriorityHoldback { max_ceiling, .. } if top == bottom => max_ceiling,
            UsageLimit::PriorityHoldback { by_value: false, min_ceiling, max_ceiling } => {
                max_ceiling - count(rank) * (max_ceiling - min_ceiling) / last
            }
            UsageLimit::PriorityHoldback { by_value: true, min_ceiling, max_ceiling } => {
                let share = (f64::from(*priority) - f64::from(bottom))
                    / (f64::from(top) - f64::from(bottom));
                min_ceiling + share * (max_ceiling - min_ceiling)
            }
            UsageLimit::SoftReflective => {
                let soft = saturation < 1.0 - count(rank) * saturation / last.max(1.0);
                if rank == 0 || soft || open { 1.0 } else { 0.0 }
            }
        };
        priorities.iter().enumerate().map(of).collect()
    }

    /// The least ceiling that any priority can have, whatever the turn, at a saturation below one half.
    #[must_use]
    pub fn least(&self) -> f64 {
        match self.policy {
            UsageLimit::Static { threshold } => threshold,
            UsageLimit::PriorityHoldback { min_ceiling, .. } => min_ceiling,
            UsageLimit::SoftReflective => 1.0,
        }
    }

    /// Whether this is one of the turns in which the soft-reflective policy lets everybody through.
    fn lets_through_now(&mut self, saturation: f64, priorities: usize) -> bool {
        let alternating = saturation >= 1.0 - saturation && saturation < 1.0;
        if self.policy != UsageLimit::SoftReflective || priorities < 2 || !alternating {
            return false;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let period = (saturation / (1.0 - saturation + 1e-9)).round().max(1.0) as u64;
        self.turns = self.turns.wrapping_add(1);
        self.turns.checked_rem(period) == Some(0)
    }
}

#[allow(clippy::cast_precision_loss)]
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holdback(by_value: bool) -> Ceilings {
        Ceilings::new(UsageLimit::PriorityHoldback { by_value, min_ceiling: 0.5, max_ceiling: 1.0 })
    }

    crate::tests! {
        fn the_holdback_falls_with_rank_or_value() {
            for (priorities, expected) in [
                (&[100, 75, 50, 10][..], &[1.0, 5.0 / 6.0, 4.0 / 6.0, 0.5][..]),
                (&[100, 10], &[1.0, 0.5]),
                (&[10], &[1.0]),
                (&[], &[]),
            ] {
                let ceilings = holdback(false).decide(0.9, priorities);
                assert!(ceilings.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{ceilings:?}");
                assert_eq!(ceilings.len(), expected.len());
            }
            assert_eq!(holdback(true).decide(0.0, &[100, 75, 0]), [1.0, 0.875, 0.5]);
            assert_eq!(holdback(true).decide(0.0, &[i32::MAX, i32::MIN]), [1.0, 0.5]);
        }

        fn the_soft_policy_lets_the_lower_ones_through_now_and_then() {
            let run = |saturation, priorities: &[i32]| {
                let mut soft = Ceilings::new(UsageLimit::SoftReflective);
                (0..6).map(|_| soft.decide(saturation, priorities)[1]).collect::<Vec<_>>()
            };
            assert_eq!(run(0.75, &[100, -50]), [0.0, 0.0, 1.0, 0.0, 0.0, 1.0]);
            assert_eq!(run(0.7, &[100, -50]), [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
            assert_eq!(run(0.4, &[100, -50]), [1.0; 6]);
            let mut soft = Ceilings::new(UsageLimit::SoftReflective);
            assert_eq!(soft.decide(1.0, &[100, 0, -50]), [1.0, 0.0, 0.0]);
            assert_eq!(soft.decide(3.0, &[7]), [1.0]);
        }
    }
}
