//! The shared data of an Envoy, and the fixed set of keys that Warmroute uses in it.
//!
//! Envoy's shared data has no delete, one global lock, and compare-and-swap that is checked only on
//! keys that exist. So every key is created at configuration time, none is named after a request, a tenant
//! or a block, and a request reads three of them at most: head, totals, intents.

use warmroute_shared_state::checkpoint::SEGMENTS;

/// Version of a value; changes at every write.
pub type Cas = u32;

/// Somebody else wrote the key since it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CasMismatch;

/// Envoy's shared data, as far as it is needed.
pub trait SharedStore {
    /// The value of a key and its version; `None` if it was never written.
    fn get(&self, key: &str) -> Option<(Vec<u8>, Cas)>;

    /// Writes a key; with `cas`, only if its version is still that.
    ///
    /// # Errors
    /// If the version is another one.
    fn set(&self, key: &str, value: &[u8], cas: Option<Cas>) -> Result<(), CasMismatch>;
}

/// VM incarnations that can be alive at once: more than twice the workers of a large Envoy, so that
/// a reload needs no slot that is still in use.
pub(super) const ROW_SLOTS: usize = 256;

/// Raised with any format in the shared data: during an upgrade old and new modules share it, and must not
/// read each other's bytes.
const FORMAT: u32 = 1;

/// Names of all keys, made once.
#[derive(Debug)]
pub(super) struct Keys {
    /// Who the applier is.
    pub(super) applier: String,
    /// Newest frame.
    pub(super) head: String,
    /// Number of the newest dispatcher, and of this Envoy.
    pub(super) dispatcher: String,
    /// Sum of all rows.
    pub(super) totals: String,
    /// Picks of the last moments.
    pub(super) intents: String,
    /// Endpoints' checkpoint.
    pub(super) roster: String,
    rows: Vec<String>,
    ring: Vec<String>,
    segments: Vec<String>,
}

impl Keys {
    /// Keys for a ring of `ring_slots` frames.
    #[must_use]
    pub(super) fn new(ring_slots: usize) -> Self {
        let numbered = |name: &str, count: usize| {
            (0..count).map(|n| format!("warmroute.{FORMAT}.{name}.{n}")).collect()
        };
        let single = |name: &str| format!("warmroute.{FORMAT}.{name}");
        Self {
            applier: single("applier"),
            head: single("head"),
            dispatcher: single("dispatcher"),
            totals: single("totals"),
            intents: single("intents"),
            roster: single("roster"),
            rows: numbered("row", ROW_SLOTS),
            ring: numbered("frame", ring_slots.max(8)),
            segments: numbered("segment", SEGMENTS),
        }
    }

    /// How many frames the ring holds.
    #[must_use]
    pub(super) fn ring_slots(&self) -> u64 {
        self.ring.len() as u64
    }

    /// Key of frame `seq`.
    #[must_use]
    pub(super) fn frame(&self, seq: u64) -> &str {
        let slot = seq.checked_rem(self.ring_slots()).unwrap_or(0);
        self.ring.get(usize::try_from(slot).unwrap_or(0)).map_or("", String::as_str)
    }

    /// Key of a segment's checkpoint.
    #[must_use]
    pub(super) fn segment(&self, segment: usize) -> &str {
        self.segments.get(segment).map_or("", String::as_str)
    }

    /// Key of a VM's row.
    #[must_use]
    pub(super) fn row(&self, slot: usize) -> &str {
        self.rows.get(slot).map_or("", String::as_str)
    }
}

/// Creates the keys that are written with compare-and-swap, if they do not exist. To be called at
/// configuration time, in every VM.
pub(super) fn create_keys(store: &dyn SharedStore, keys: &Keys) {
    let singles = [&keys.applier, &keys.dispatcher, &keys.head, &keys.totals, &keys.intents];
    for key in singles.into_iter().chain(&keys.rows) {
        if store.get(key).is_none() {
            // Two VMs may get here at once; whoever loses finds its first CAS refused and reads again.
            let _ = store.set(key, &[], None);
        }
    }
}

/// Shared data in memory that behaves like Envoy's: for tests, and for warming up.
#[derive(Debug, Default)]
pub struct MemoryStore {
    values: core::cell::RefCell<std::collections::BTreeMap<String, (Vec<u8>, Cas)>>,
    last_cas: core::cell::Cell<Cas>,
}

impl MemoryStore {
    /// How many keys were ever written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.borrow().len()
    }

    /// Whether none was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl SharedStore for MemoryStore {
    fn get(&self, key: &str) -> Option<(Vec<u8>, Cas)> {
        self.values.borrow().get(key).cloned()
    }

    fn set(&self, key: &str, value: &[u8], cas: Option<Cas>) -> Result<(), CasMismatch> {
        let mut values = self.values.borrow_mut();
        if let (Some((_, current)), Some(cas)) = (values.get(key), cas)
            && *current != cas
        {
            return Err(CasMismatch);
        }
        let next = self.last_cas.get().wrapping_add(1);
        self.last_cas.set(next);
        values.insert(key.to_owned(), (value.to_vec(), next));
        Ok(())
    }
}
