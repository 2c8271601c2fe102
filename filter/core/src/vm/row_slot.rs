//! The row that this VM incarnation writes.

use super::{Cas, Keys, ROW_SLOTS, SharedStore};
use crate::inflight::{Ledger, Row};

/// How often a row is written while nothing changes.
const HEARTBEAT_MS: u64 = 250;

/// Which slot this VM holds, and what it last wrote there.
#[derive(Debug, Default)]
pub(super) struct RowSlot {
    slot: Option<usize>,
    written_seq: u64,
    written_ms: u64,
}

impl RowSlot {
    /// The slot's number, once one was taken.
    #[must_use]
    pub(super) fn slot(&self) -> Option<usize> {
        self.slot
    }

    /// Whether it was written less than `ms` ago.
    pub(super) fn is_younger_than(&self, ms: u64, now_ms: u64) -> bool {
        now_ms.checked_sub(self.written_ms).is_some_and(|age| age < ms)
    }

    /// Writes the ledger into this VM's row if it changed or a heartbeat is due. Takes a slot first if
    /// this VM has none, or has lost it: one that was never used or whose owner is gone.
    pub(super) fn write(
        &mut self,
        store: &dyn SharedStore,
        keys: &Keys,
        ledger: &Ledger,
        now_ms: u64,
    ) {
        let changed = ledger.row_seq() != self.written_seq;
        let due =
            now_ms.saturating_sub(self.written_ms) >= HEARTBEAT_MS || now_ms < self.written_ms;
        // Without a slot it is looked for at heartbeats only: looking reads every row.
        if !due && (self.slot.is_none() || !changed) {
            return;
        }
        if due && !self.still_ours(store, keys, ledger.incarnation()) {
            self.slot = Self::take(store, keys, ledger, now_ms);
        } else if let Some(slot) = self.slot {
            // One writer a row: no version check is needed between heartbeats.
            let _ = store.set(keys.row(slot), &ledger.row(now_ms).encode(), None);
        }
        self.written_seq = ledger.row_seq();
        self.written_ms = now_ms;
    }

    /// A VM that was stopped for longer than a row stays fresh may have lost its slot to another.
    fn still_ours(&self, store: &dyn SharedStore, keys: &Keys, incarnation: u64) -> bool {
        let Some(slot) = self.slot else { return false };
        let Some((bytes, _)) = store.get(keys.row(slot)) else { return false };
        Row::decode(&bytes).is_ok_and(|row| row.incarnation == incarnation)
    }

    fn take(store: &dyn SharedStore, keys: &Keys, ledger: &Ledger, now_ms: u64) -> Option<usize> {
        let row = ledger.row(now_ms).encode();
        let free = |slot: &usize| -> Option<Cas> {
            let (bytes, cas) = store.get(keys.row(*slot)).unwrap_or_default();
            let current = Row::decode(&bytes).unwrap_or_default();
            (!current.is_fresh(now_ms)).then_some(cas)
        };
        (0..ROW_SLOTS).find(|slot| {
            free(slot).is_some_and(|cas| store.set(keys.row(*slot), &row, Some(cas)).is_ok())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryStore, create_keys};
    use super::*;
    use warmroute_shared_state::endpoint::EndpointId;

    fn row(store: &MemoryStore, keys: &Keys, slot: usize) -> Row {
        Row::decode(&store.get(keys.row(slot)).unwrap().0).unwrap()
    }

    crate::tests! {
        fn each_vm_takes_a_slot_of_its_own_and_a_dead_ones_is_used_again() {
            let (store, keys) = (MemoryStore::default(), Keys::new(8));
            create_keys(&store, &keys);
            let mut slots: Vec<RowSlot> = (0..3).map(|_| RowSlot::default()).collect();
            for (n, slot) in (1..).zip(&mut slots) {
                slot.write(&store, &keys, &Ledger::new(n), 1000);
            }
            assert_eq!(slots.iter().map(RowSlot::slot).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
            for n in [0, 2] {
                slots[n].write(&store, &keys, &Ledger::new(n as u64 + 1), 2400);
            }
            let mut fresh = RowSlot::default();
            fresh.write(&store, &keys, &Ledger::new(9), 2600);
            assert_eq!(fresh.slot(), Some(1));
            assert_eq!(row(&store, &keys, 1).incarnation, 9);
        }

        fn a_vm_that_lost_its_slot_takes_another() {
            let (store, keys) = (MemoryStore::default(), Keys::new(8));
            create_keys(&store, &keys);
            let (mut stalled, mut other) = (RowSlot::default(), RowSlot::default());
            let mut ledger = Ledger::new(1);
            let _flight = ledger.start(EndpointId(5), 10, 0);
            stalled.write(&store, &keys, &ledger, 1000);
            other.write(&store, &keys, &Ledger::new(2), 5000);
            assert_eq!(other.slot(), Some(0));
            stalled.write(&store, &keys, &ledger, 5100);
            assert_eq!(stalled.slot(), Some(1));
            assert_eq!(row(&store, &keys, 1).counts.len(), 1);
            assert_eq!(row(&store, &keys, 0).incarnation, 2);
        }

        fn nothing_is_written_while_nothing_changes() {
            let (store, keys) = (MemoryStore::default(), Keys::new(8));
            create_keys(&store, &keys);
            let mut slot = RowSlot::default();
            let mut ledger = Ledger::new(1);
            slot.write(&store, &keys, &ledger, 1000);
            slot.write(&store, &keys, &ledger, 1100);
            assert_eq!(row(&store, &keys, 0).heartbeat_ms, 1000);
            let _flight = ledger.start(EndpointId(5), 10, 0);
            slot.write(&store, &keys, &ledger, 1110);
            assert_eq!(row(&store, &keys, 0).heartbeat_ms, 1110);
        }
    }
}
