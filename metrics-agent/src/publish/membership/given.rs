//! What Envoy is given: since when it has each thing, and when it is to lose it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Things by their keys.
#[derive(Debug)]
pub(super) struct Given<K> {
    things: BTreeMap<K, Thing>,
}

#[derive(Debug, Default)]
struct Thing {
    /// When Envoy was given it.
    written: Option<Instant>,
    /// When Envoy loses it.
    leaves: Option<Instant>,
}

impl<K> Default for Given<K> {
    fn default() -> Self {
        Self { things: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Given<K> {
    /// It is to be there. Whether it was not.
    pub(super) fn want(&mut self, key: &K) -> bool {
        let is_new = !self.things.contains_key(key);
        self.things.entry(key.clone()).or_default().leaves = None;
        is_new
    }

    /// What is `gone` leaves then. What leaves already keeps its time.
    pub(super) fn leave(&mut self, at: Instant, gone: impl Fn(&K) -> bool) {
        for (_, thing) in self.things.iter_mut().filter(|(key, _)| gone(key)) {
            thing.leaves = thing.leaves.or(Some(at));
        }
    }

    /// Takes off what has left. Whether something has.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let before = self.things.len();
        self.things.retain(|_, thing| thing.leaves.is_none_or(|leaves| leaves > now));
        self.things.len() < before
    }

    /// Envoy was given all of it.
    pub(super) fn written(&mut self, now: Instant) {
        for thing in self.things.values_mut() {
            thing.written = thing.written.or(Some(now));
        }
    }

    /// When Envoy has had the last of these for `settle`; `None`: it was not given one of them.
    pub(super) fn settled_at<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k K>,
        settle: Duration,
    ) -> Option<Instant>
    where
        K: 'k,
    {
        let mut last = None;
        for key in keys {
            let written = self.things.get(key)?.written?;
            last = last.max(Some(written.checked_add(settle)?));
        }
        last
    }

    /// When the next leaves.
    pub(super) fn next_leave(&self) -> Option<Instant> {
        self.things.values().filter_map(|thing| thing.leaves).min()
    }

    /// Everything that is there, what is about to leave included.
    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.things.keys()
    }
}
