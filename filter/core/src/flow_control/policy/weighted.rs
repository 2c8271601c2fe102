//! `weighted-token-fairness-policy`: stride scheduling. Each flow has a pass, which grows by tokens / weight with each
//! dispatch; the flow with the least pass goes next. So flows that always wait get tokens in proportion to their
//! weights, to within one request each.
//!
//! The estimate is charged at dispatch and corrected when the request is over, whether the flow waits meanwhile or not.
//! A flow that comes back starts at the band's minimum: what it did not use while it was away was used by the others,
//! and is not owed to it. What it owes itself, it keeps.

use super::fairness::FlowId;
use std::collections::{BTreeMap, BTreeSet};

/// Parts of a token: passes are whole numbers, so that a charge and its correction cancel exactly.
const PARTS: f64 = 1_099_511_627_776.0;

/// Flows without requests that are remembered for what they owe.
const MAX_IDLE: usize = 4096;

/// State of a band.
#[derive(Debug)]
pub struct Weighted {
    /// Parts of a pass for a token, by flow.
    strides: BTreeMap<String, i128>,
    default_stride: i128,
    passes: BTreeMap<FlowId, i128>,
    /// Flows that wait, by pass.
    active: BTreeSet<(i128, FlowId)>,
    /// The least pass when last a flow was chosen.
    minimum: i128,
}

impl Weighted {
    /// The weights by fairness ID, and that of all others.
    #[must_use]
    pub fn new(weights: &[(String, f64)], default_weight: f64) -> Self {
        Self {
            strides: weights.iter().map(|(id, weight)| (id.clone(), stride(*weight))).collect(),
            default_stride: stride(default_weight),
            passes: BTreeMap::new(),
            active: BTreeSet::new(),
            minimum: 0,
        }
    }

    fn cost(&self, flow: &str, tokens: u64) -> i128 {
        let stride = self.strides.get(flow).copied().unwrap_or(self.default_stride);
        stride.saturating_mul(i128::from(tokens))
    }

    fn minimum(&self) -> i128 {
        self.active.first().map_or(self.minimum, |(pass, _)| *pass)
    }

    pub(super) fn set_active(&mut self, flow: &FlowId, active: bool) {
        let minimum = self.minimum();
        let pass = self.passes.entry(FlowId::clone(flow)).or_insert(minimum);
        let is_active = self.active.contains(&(*pass, FlowId::clone(flow)));
        if active && !is_active {
            *pass = (*pass).max(minimum);
            self.active.insert((*pass, FlowId::clone(flow)));
        } else if !active && is_active {
            self.minimum = minimum;
            self.active.remove(&(*pass, FlowId::clone(flow)));
        }
    }

    pub(super) fn next(&self) -> Option<FlowId> {
        self.active.first().map(|(_, flow)| FlowId::clone(flow))
    }

    pub(super) fn charge(&mut self, flow: &FlowId, tokens: u64) {
        self.minimum = self.minimum();
        if self.active.is_empty() {
            // Nobody waits, so nobody is ahead of anybody: the minimum goes along.
            let pass = self.passes.entry(FlowId::clone(flow)).or_insert(self.minimum);
            *pass = (*pass).max(self.minimum);
            self.minimum = *pass;
        }
        self.move_by(flow, self.cost(flow, tokens));
    }

    pub(super) fn correct(&mut self, flow: &FlowId, estimate: u64, actual: u64) {
        self.move_by(flow, self.cost(flow, actual).saturating_sub(self.cost(flow, estimate)));
    }

    fn move_by(&mut self, flow: &FlowId, by: i128) {
        let minimum = self.minimum();
        let pass = self.passes.entry(FlowId::clone(flow)).or_insert(minimum);
        let was_active = self.active.remove(&(*pass, FlowId::clone(flow)));
        *pass = pass.saturating_add(by);
        if was_active {
            self.active.insert((*pass, FlowId::clone(flow)));
        }
    }

    /// Flows that owe nothing start at the minimum anyway. Of too many that owe, those that owe least are let off.
    pub(super) fn forget_idle(&mut self) {
        let minimum = self.minimum();
        let active: BTreeSet<FlowId> =
            self.active.iter().map(|(_, flow)| FlowId::clone(flow)).collect();
        self.passes.retain(|flow, pass| *pass > minimum || active.contains(flow));
        let idle = self.passes.len().saturating_sub(active.len());
        if idle > MAX_IDLE {
            let mut owing: Vec<_> =
                self.passes.iter().filter(|(flow, _)| !active.contains(*flow)).collect();
            owing.sort_by_key(|(_, pass)| **pass);
            let least = idle.saturating_sub(MAX_IDLE);
            let forgotten: Vec<FlowId> =
                owing.into_iter().take(least).map(|(flow, _)| FlowId::clone(flow)).collect();
            forgotten.iter().for_each(|flow| {
                self.passes.remove(flow);
            });
        }
    }
}

#[allow(clippy::cast_possible_truncation)]
fn stride(weight: f64) -> i128 {
    (PARTS / weight.max(1e-6)).max(1.0) as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(name: &str) -> FlowId {
        FlowId::from(name)
    }

    fn three_to_one() -> Weighted {
        Weighted::new(&[("a".into(), 3.0)], 1.0)
    }

    crate::tests! {
        fn a_charge_and_its_correction_cancel_exactly() {
            let mut weighted = Weighted::new(&[("a".into(), 0.3)], 7.0);
            for name in ["a", "b"] {
                let flow = flow(name);
                weighted.set_active(&flow, true);
                let before = weighted.passes[&flow];
                for tokens in [1, 977, 1_000_000, u64::MAX / 4] {
                    weighted.charge(&flow, tokens);
                    weighted.correct(&flow, tokens, 0);
                    assert_eq!(weighted.passes[&flow], before);
                }
            }
        }

        fn a_flow_that_comes_back_starts_at_the_minimum_and_keeps_its_debt() {
            let mut weighted = three_to_one();
            let (a, b) = (flow("a"), flow("b"));
            weighted.set_active(&a, true);
            weighted.set_active(&b, true);
            weighted.charge(&a, 300);
            weighted.set_active(&a, false);
            for _ in 0..50 {
                weighted.charge(&b, 100);
            }
            // A was away: it does not get 5,000 tokens now, only its equal start.
            weighted.set_active(&a, true);
            assert_eq!(weighted.passes[&a], weighted.passes[&b]);
            // While B is away, its last request turns out to be larger than was thought.
            weighted.set_active(&b, false);
            weighted.correct(&b, 100, 1100);
            weighted.charge(&a, 300);
            weighted.set_active(&b, true);
            assert_eq!(weighted.next(), Some(a.clone()));
            let debt = weighted.passes[&b] - weighted.passes[&a];
            assert!(debt.abs_diff(weighted.cost("b", 900)) < weighted.cost("b", 1).unsigned_abs());
        }

        fn what_was_used_while_nobody_waited_is_not_owed() {
            let mut weighted = three_to_one();
            let (a, b) = (flow("a"), flow("b"));
            for _ in 0..1000 {
                weighted.charge(&a, 1000);
            }
            weighted.charge(&b, 10);
            weighted.set_active(&a, true);
            weighted.set_active(&b, true);
            let ahead = weighted.passes[&a] - weighted.passes[&b];
            assert!(ahead.unsigned_abs() <= weighted.cost("a", 1000).unsigned_abs(), "{ahead}");
        }

        fn only_what_is_owed_is_remembered() {
            let mut weighted = three_to_one();
            let b = flow("b");
            weighted.set_active(&b, true);
            for n in 0..(MAX_IDLE as u64 + 100) {
                let idle = flow(&n.to_string());
                weighted.set_active(&idle, true);
                weighted.charge(&idle, 1000 + n);
                weighted.set_active(&idle, false);
            }
            weighted.forget_idle();
            assert_eq!(weighted.passes.len(), MAX_IDLE + 1);
            assert!(!weighted.passes.contains_key("0") && weighted.passes.contains_key("4100"));
            weighted.charge(&b, 1_000_000);
            weighted.forget_idle();
            assert_eq!(weighted.passes.len(), 1);
        }
    }
}
