//! All that a worker has, for a dispatcher that does not know it.

use super::Worker;
use crate::flow_control::protocol::{HeldTicket, MAX_ANNOUNCED, ParkedTicket, Report};
use crate::quota::Level;

impl Worker {
    /// Leases of before are void: whoever asks counts what is held, and no more.
    pub(super) fn announce(&mut self, nonce: u64) {
        self.leases.clear();
        self.budgets.forget_lent();
        let held: Vec<HeldTicket> = self
            .held
            .iter()
            .map(|(number, held)| HeldTicket {
                number: *number,
                request: held.request.clone(),
                endpoints: held.endpoints.clone(),
                dispatched_ms: held.dispatched_ms,
            })
            .collect();
        let parked: Vec<ParkedTicket> = self
            .parked
            .iter()
            .map(|(number, parked)| ParkedTicket {
                number: *number,
                request: parked.request.clone(),
                reserved: parked.reserved,
            })
            .collect();
        let levels: Vec<(Level, u64)> = self.budgets.all();
        let (mut held, mut parked, mut levels) = (&held[..], &parked[..], &levels[..]);
        loop {
            let part = Report::Announce {
                nonce,
                held: front(&mut held),
                parked: front(&mut parked),
                levels: front(&mut levels),
                last: held.is_empty() && parked.is_empty() && levels.is_empty(),
            };
            let last = matches!(part, Report::Announce { last: true, .. });
            self.say(part);
            if last {
                return;
            }
        }
    }
}

fn front<T: Clone>(items: &mut &[T]) -> Vec<T> {
    let (front, rest) = items.split_at(items.len().min(MAX_ANNOUNCED));
    *items = rest;
    front.to_vec()
}
