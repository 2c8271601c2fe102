//! Requests in flight, over all workers of an Envoy.
//!
//! Each VM counts its own requests in a [`Ledger`] and writes absolute values into a row of its own;
//! the applier adds the fresh rows up into one [`Totals`]; a pick reads the totals and corrects them
//! by what its own ledger did since ([`InFlight::of`]). One writer a row, so nothing can race or
//! underflow, and the share of a VM that died goes with its row.

mod ledger;
mod row;
mod totals;

pub use ledger::{Flight, Ledger};
pub use row::Row;
pub use totals::Totals;

use warmroute_shared_state::endpoint::EndpointId;

/// Counts of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Requests sent and not finished.
    pub requests: u32,
    /// Those picked since the endpoint's last scrape that have not answered yet: the engine's own
    /// queue length does not show them.
    pub waiting: u32,
    /// Prompt tokens, not cached there, of requests that have not answered yet.
    pub uncached_tokens: u64,
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            waiting: self.waiting.saturating_add(other.waiting),
            uncached_tokens: self.uncached_tokens.saturating_add(other.uncached_tokens),
        }
    }

    fn changed_by(self, change: Change) -> Self {
        Self {
            requests: self.requests.saturating_add_signed(change.requests),
            waiting: self.waiting.saturating_add_signed(change.waiting),
            uncached_tokens: self.uncached_tokens.saturating_add_signed(change.uncached_tokens),
        }
    }

    /// Whether all counts are zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// What one event did to an endpoint's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    requests: i32,
    waiting: i32,
    uncached_tokens: i64,
}

impl Change {
    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            waiting: self.waiting.saturating_add(other.waiting),
            uncached_tokens: self.uncached_tokens.saturating_add(other.uncached_tokens),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            waiting: self.waiting.saturating_sub(other.waiting),
            uncached_tokens: self.uncached_tokens.saturating_sub(other.uncached_tokens),
        }
    }
}

/// The view that a pick has: the applier's totals, and this VM's own changes since.
#[derive(Debug, Clone, Copy)]
pub struct InFlight<'a> {
    /// What the applier last added up.
    pub totals: &'a Totals,
    /// This VM's own.
    pub own: &'a Ledger,
}

impl InFlight<'_> {
    /// Counts of one endpoint over all workers, as exact as this VM can know.
    #[must_use]
    pub fn of(&self, id: EndpointId) -> Counts {
        let counts = self.totals.counts(id);
        match self.totals.included(self.own.incarnation()) {
            Some(_) => counts.changed_by(self.own.pending(id)),
            None => counts.plus(self.own.counts(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EndpointId = EndpointId(1);
    const B: EndpointId = EndpointId(2);

    fn totals(rows: &[Row]) -> Totals {
        Totals::add_up(rows.iter())
    }

    crate::tests! {
        fn own_changes_count_before_the_applier_has_seen_them() {
            let mut own = Ledger::new(7);
            let first = own.start(A, 100, 1000);
            let seen = totals(&[own.row(1000)]);
            own.acknowledge(own.row_seq());
            let _second = own.start(A, 50, 1001);
            let view = InFlight { totals: &seen, own: &own };
            assert_eq!(view.of(A), Counts { requests: 2, waiting: 2, uncached_tokens: 150 });
            own.finish(first);
            let view = InFlight { totals: &seen, own: &own };
            assert_eq!(view.of(A), Counts { requests: 1, waiting: 1, uncached_tokens: 50 });
        }

        fn rows_of_other_vms_count_once() {
            let mut own = Ledger::new(7);
            let mut other = Ledger::new(8);
            own.start(A, 10, 0);
            other.start(A, 20, 0);
            other.start(B, 30, 0);
            let seen = totals(&[own.row(0), other.row(0)]);
            own.acknowledge(own.row_seq());
            let view = InFlight { totals: &seen, own: &own };
            assert_eq!(view.of(A).uncached_tokens, 30);
            assert_eq!(view.of(B).uncached_tokens, 30);
        }

        fn a_vm_that_the_applier_has_not_seen_yet_counts_its_whole_row() {
            let mut own = Ledger::new(7);
            own.start(A, 10, 0);
            let mut other = Ledger::new(8);
            other.start(A, 20, 0);
            let seen = totals(&[other.row(0)]);
            assert_eq!(InFlight { totals: &seen, own: &own }.of(A).requests, 2);
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    proptest::proptest! {
        /// Whatever two VMs do, whenever the applier adds up and however late its totals are read, each
        /// VM's view equals what it did itself plus what the other had done when they were added up; and all
        /// ends at zero.
        #[test]
        fn the_view_is_exact_and_returns_to_zero(
            steps in proptest::collection::vec((0usize..2, 0u8..7, 0u64..3), 1..300),
        ) {
            let mut ledgers = [Ledger::new(1), Ledger::new(2)];
            let mut flights: [Vec<Flight>; 2] = [vec![], vec![]];
            let (mut added_up, mut added_counts) = (Totals::default(), [Counts::default(); 2]);
            let (mut seen, mut seen_counts) = (Totals::default(), [Counts::default(); 2]);
            for (now, (vm, what, amount)) in (0u64..).zip(steps) {
                let ledger = &mut ledgers[vm];
                match what {
                    0 | 1 => flights[vm].push(ledger.start(A, amount, now)),
                    2 => if let Some(flight) = flights[vm].last_mut() { ledger.answered(flight) },
                    3 | 4 => if !flights[vm].is_empty() {
                        let flight = flights[vm].remove(0);
                        ledger.finish(flight);
                    },
                    5 => {
                        added_up = totals(&[ledgers[0].row(now), ledgers[1].row(now)]);
                        added_counts = [ledgers[0].counts(A), ledgers[1].counts(A)];
                    }
                    _ => {
                        (seen, seen_counts) = (added_up.clone(), added_counts);
                        for ledger in &mut ledgers {
                            ledger.acknowledge(seen.included(ledger.incarnation()).unwrap_or(0));
                        }
                    }
                }
                for vm in 0..2 {
                    let view = InFlight { totals: &seen, own: &ledgers[vm] }.of(A);
                    let expected = ledgers[vm].counts(A).plus(seen_counts[1 - vm]);
                    proptest::prop_assert_eq!(view, expected);
                }
            }
            for vm in 0..2 {
                for flight in flights[vm].drain(..) {
                    ledgers[vm].finish(flight);
                }
                ledgers[vm].acknowledge(ledgers[vm].row_seq());
                proptest::prop_assert!(ledgers[vm].counts(A).is_zero() && ledgers[vm].is_idle());
                proptest::prop_assert_eq!(ledgers[vm].pending(A), Change::default());
            }
        }
    }
}
