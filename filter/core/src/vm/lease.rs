//! The applier's lease: any VM can take it, one at a time holds it.

use super::{Keys, SharedStore};
use warmroute_shared_state::wire::{Reader, WireError, Writer};

/// A lease that was not renewed for this long is free.
pub(super) const LEASE_MS: u64 = 1500;

/// Who holds the role, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Lease {
    /// Incarnation of the holder; 0 = nobody.
    pub(super) holder: u64,
    /// When it ends unless it is renewed, by Envoy's clock, in ms.
    pub(super) until_ms: u64,
}

impl Lease {
    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut r = Reader::new(bytes);
        Ok(Self { holder: r.u64()?, until_ms: r.u64()? })
    }

    fn encode(self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u64(self.holder);
        w.u64(self.until_ms);
        w.into_bytes()
    }

    /// The lease as it stands.
    #[must_use]
    pub(super) fn read(store: &dyn SharedStore, keys: &Keys) -> Self {
        store
            .get(&keys.applier)
            .and_then(|(bytes, _)| Self::decode(&bytes).ok())
            .unwrap_or_default()
    }

    /// Takes the lease if it is free or ours, or renews it. `patience_ms` more must have passed since
    /// it ran out: VMs that had rather not have the role wait a little longer.
    #[must_use]
    pub(super) fn take(
        store: &dyn SharedStore,
        keys: &Keys,
        incarnation: u64,
        now_ms: u64,
        patience_ms: u64,
    ) -> bool {
        let (bytes, cas) = store.get(&keys.applier).unwrap_or_default();
        let lease = Self::decode(&bytes).unwrap_or_default();
        let ours = lease.holder == incarnation;
        // A holder far in the future is one whose clock stepped back: free as well.
        let free = now_ms >= lease.until_ms.saturating_add(patience_ms)
            || lease.until_ms > now_ms.saturating_add(LEASE_MS.saturating_mul(4));
        if !ours && !free {
            return false;
        }
        let next = Self { holder: incarnation, until_ms: now_ms.saturating_add(LEASE_MS) };
        store.set(&keys.applier, &next.encode(), Some(cas)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryStore, create_keys};
    use super::*;

    crate::tests! {
        fn one_at_a_time_holds_it() {
            let (store, keys) = (MemoryStore::default(), Keys::new(8));
            create_keys(&store, &keys);
            assert!(Lease::take(&store, &keys, 1, 1000, 0));
            assert!(!Lease::take(&store, &keys, 2, 1001, 0));
            assert!(Lease::take(&store, &keys, 1, 2000, 0), "renewed");
            assert!(!Lease::take(&store, &keys, 2, 3499, 0));
            assert!(!Lease::take(&store, &keys, 2, 3500, 300), "patient");
            assert!(Lease::take(&store, &keys, 2, 3500, 0), "ran out");
            assert!(!Lease::take(&store, &keys, 1, 3501, 0), "the old holder notices");
            assert_eq!(Lease::read(&store, &keys).holder, 2);
        }
    }
}
