//! One VM's own requests.

use super::{Change, Counts, Row};
use std::collections::{BTreeMap, VecDeque};
use warmroute_shared_state::endpoint::EndpointId;

/// Own changes kept to correct the applier's totals. At 10,000 requests a second and totals every few
/// milliseconds some hundreds are needed; if the applier is gone for longer the oldest are dropped and the view
/// errs by them until the totals are fresh again.
const CHANGES_KEPT: usize = 8192;

#[derive(Debug, Default)]
struct Own {
    counts: Counts,
    /// Requests that count as waiting: when they were picked, and which.
    waiting: VecDeque<(u64, u64)>,
}

/// A request in flight. It must end in [`Ledger::finish`], exactly once.
#[derive(Debug, PartialEq, Eq)]
pub struct Flight {
    endpoint: EndpointId,
    number: u64,
    uncached_tokens: u64,
    picked_ms: u64,
    answered: bool,
    /// Its tokens count until the end, not only until its first token.
    to_the_end: bool,
}

impl Flight {
    /// The endpoint that is charged.
    #[must_use]
    pub fn endpoint(&self) -> EndpointId {
        self.endpoint
    }
}

/// Counts of this VM's requests for each endpoint.
#[derive(Debug)]
pub struct Ledger {
    incarnation: u64,
    row_seq: u64,
    next_number: u64,
    own: BTreeMap<EndpointId, Own>,
    /// Changes that the applier's totals do not include yet, oldest first.
    changes: VecDeque<(u64, EndpointId, Change)>,
    /// Their sums.
    pending: BTreeMap<EndpointId, Change>,
}

impl Ledger {
    /// An empty ledger of the VM incarnation `incarnation`.
    #[must_use]
    pub fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            row_seq: 0,
            next_number: 0,
            own: BTreeMap::new(),
            changes: VecDeque::new(),
            pending: BTreeMap::new(),
        }
    }

    /// Whose ledger this is.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Changes whenever a count changes: a row need not be written while it stays.
    #[must_use]
    pub fn row_seq(&self) -> u64 {
        self.row_seq
    }

    /// A request goes to `endpoint` now.
    pub fn start(&mut self, endpoint: EndpointId, tokens: u64, now_ms: u64) -> Flight {
        self.start_until(endpoint, tokens, false, now_ms)
    }

    /// The same; `to_the_end`: its tokens count until it is over, since those of its answer are among them.
    pub fn start_until(
        &mut self,
        endpoint: EndpointId,
        uncached_tokens: u64,
        to_the_end: bool,
        now_ms: u64,
    ) -> Flight {
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        self.own.entry(endpoint).or_default().waiting.push_back((now_ms, number));
        self.change(
            endpoint,
            Change { requests: 1, waiting: 1, uncached_tokens: signed(uncached_tokens) },
        );
        let answered = false;
        Flight { endpoint, number, uncached_tokens, picked_ms: now_ms, answered, to_the_end }
    }

    /// The endpoint's first byte came: the request waits no longer and its prompt is computed.
    pub fn answered(&mut self, flight: &mut Flight) {
        if flight.answered {
            return;
        }
        flight.answered = true;
        let waiting = self.own.get_mut(&flight.endpoint).map_or(0, |own| {
            let before = own.waiting.len();
            own.waiting.retain(|(_, number)| *number != flight.number);
            i32::from(own.waiting.len() < before)
        });
        let tokens = if flight.to_the_end { 0 } else { signed(flight.uncached_tokens) };
        self.change(
            flight.endpoint,
            Change {
                requests: 0,
                waiting: waiting.saturating_neg(),
                uncached_tokens: tokens.saturating_neg(),
            },
        );
    }

    /// The request is over, however it ended.
    pub fn finish(&mut self, mut flight: Flight) {
        self.answered(&mut flight);
        let endpoint = flight.endpoint;
        let left = if flight.to_the_end { signed(flight.uncached_tokens) } else { 0 };
        let uncached_tokens = left.saturating_neg();
        self.change(endpoint, Change { requests: -1, waiting: 0, uncached_tokens });
        if self.own.get(&endpoint).is_some_and(|own| own.counts.is_zero()) {
            self.own.remove(&endpoint);
        }
    }

    /// Another endpoint served the request than the one picked: it is charged instead.
    #[must_use]
    pub fn move_to(
        &mut self,
        flight: Flight,
        endpoint: EndpointId,
        uncached_tokens: u64,
    ) -> Flight {
        let (picked_ms, to_the_end) = (flight.picked_ms, flight.to_the_end);
        self.finish(flight);
        self.start_until(endpoint, uncached_tokens, to_the_end, picked_ms)
    }

    /// A scrape started at `at_ms` shows what was picked before it.
    pub fn scraped(&mut self, endpoint: EndpointId, at_ms: u64) {
        let Some(own) = self.own.get_mut(&endpoint) else { return };
        let before = own.waiting.len();
        own.waiting.retain(|(picked_ms, _)| *picked_ms > at_ms);
        let gone = i32::try_from(before.saturating_sub(own.waiting.len())).unwrap_or(i32::MAX);
        if gone > 0 {
            let waiting = gone.saturating_neg();
            self.change(endpoint, Change { waiting, ..Change::default() });
        }
    }

    fn change(&mut self, endpoint: EndpointId, change: Change) {
        let own = self.own.entry(endpoint).or_default();
        own.counts = own.counts.changed_by(change);
        self.row_seq = self.row_seq.wrapping_add(1);
        if self.changes.len() >= CHANGES_KEPT {
            self.drop_oldest_change();
        }
        self.changes.push_back((self.row_seq, endpoint, change));
        let pending = self.pending.entry(endpoint).or_default();
        *pending = pending.plus(change);
    }

    fn drop_oldest_change(&mut self) {
        let Some((_, endpoint, change)) = self.changes.pop_front() else { return };
        // Missing is zero: later changes of the endpoint may just have cancelled each other out.
        let pending = self.pending.entry(endpoint).or_default();
        *pending = pending.minus(change);
        if *pending == Change::default() {
            self.pending.remove(&endpoint);
        }
    }

    /// This VM's own counts of an endpoint.
    #[must_use]
    pub fn counts(&self, endpoint: EndpointId) -> Counts {
        self.own.get(&endpoint).map(|own| own.counts).unwrap_or_default()
    }

    /// Requests of this VM in flight.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.own.values().map(|own| u64::from(own.counts.requests)).sum()
    }

    /// Whether nothing is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.own.is_empty()
    }

    /// What this VM did to an endpoint's counts since the row that the totals include.
    pub(super) fn pending(&self, endpoint: EndpointId) -> Change {
        self.pending.get(&endpoint).copied().unwrap_or_default()
    }

    /// The totals include this VM's row as of `row_seq`. To be called with every new totals.
    pub fn acknowledge(&mut self, row_seq: u64) {
        while self.changes.front().is_some_and(|(seq, ..)| *seq <= row_seq) {
            self.drop_oldest_change();
        }
    }

    /// The row to write.
    #[must_use]
    pub fn row(&self, now_ms: u64) -> Row {
        Row {
            incarnation: self.incarnation,
            heartbeat_ms: now_ms,
            row_seq: self.row_seq,
            counts: self.own.iter().map(|(id, own)| (*id, own.counts)).collect(),
        }
    }
}

fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EndpointId = EndpointId(1);
    const B: EndpointId = EndpointId(2);

    crate::tests! {
        fn a_scrape_takes_over_only_what_was_picked_before_it() {
            let mut ledger = Ledger::new(1);
            let early = ledger.start(A, 10, 100);
            let late = ledger.start(A, 10, 200);
            ledger.scraped(A, 150);
            assert_eq!(ledger.counts(A), Counts { requests: 2, waiting: 1, uncached_tokens: 20 });
            ledger.finish(early);
            ledger.finish(late);
            assert!(ledger.is_idle());
        }

        fn a_request_that_moves_is_charged_to_the_endpoint_that_served_it() {
            let mut ledger = Ledger::new(1);
            let flight = ledger.start(A, 10, 100);
            let flight = ledger.move_to(flight, B, 25);
            assert!(ledger.counts(A).is_zero());
            assert_eq!(ledger.counts(B), Counts { requests: 1, waiting: 1, uncached_tokens: 25 });
            assert_eq!(flight.endpoint(), B);
            ledger.finish(flight);
            assert!(ledger.is_idle());
        }

        fn an_endpoint_that_comes_back_under_its_old_name_never_counts_below_zero() {
            let mut ledger = Ledger::new(1);
            let mut flights: Vec<_> = (0..100).map(|i| ledger.start(A, 1, i)).collect();
            ledger.scraped(A, 1000);
            flights.drain(..50).for_each(|f| ledger.finish(f));
            flights.push(ledger.start(A, 1, 2000));
            flights.into_iter().for_each(|f| ledger.finish(f));
            assert!(ledger.counts(A).is_zero());
        }

        fn the_list_of_changes_is_bounded() {
            let mut ledger = Ledger::new(1);
            for i in 0..(2 * CHANGES_KEPT as u64) {
                let flight = ledger.start(A, 1, i);
                ledger.finish(flight);
            }
            assert_eq!(ledger.changes.len(), CHANGES_KEPT);
            ledger.acknowledge(ledger.row_seq());
            assert!(ledger.changes.is_empty() && ledger.pending.is_empty());
        }
    }
}
