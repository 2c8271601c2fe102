//! One segment's index: from a hash to the place of its entry, with little room between.
//!
//! Linear probing over slots of four bytes: the place, and six bits of the hash, by which nearly all other entries are told
//! apart without looking at them. It grows by half and bears being five sixths full; a table that doubles is half empty for
//! half of its life, in each VM.
//!
//! Hashes come from outside. If somebody makes many with one home, their cluster is searched one by one, but takes no more
//! room than others.

use super::entries::{Entries, Entry, MOST_PLACES, Place};

/// Slots of the first layout.
const FIRST_SLOTS: usize = 16;

/// A place and a part of its entry's hash; or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot(u32);

/// Bits of the place.
const PLACE: u32 = MOST_PLACES as u32 - 1;

impl Slot {
    /// There is no last place: see [`MOST_PLACES`].
    const VACANT: Self = Self(u32::MAX);

    fn new(hash: u64, place: Place) -> Self {
        Self(Self::part(hash) | place.0)
    }

    /// What of a hash is kept.
    fn part(hash: u64) -> u32 {
        (hash & 0xFFFF_FFFF) as u32 & !PLACE
    }

    fn place(self) -> Place {
        Place(self.0 & PLACE)
    }

    fn may_be(self, hash: u64) -> bool {
        self.0 & !PLACE == Self::part(hash) && self != Self::VACANT
    }
}

/// The index of all entries whose hashes begin with the same ten bits.
#[derive(Debug, Default)]
pub(super) struct Segment {
    slots: Vec<Slot>,
    len: usize,
}

impl Segment {
    /// Places of all entries.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.slots.iter().filter(|slot| **slot != Slot::VACANT).map(|slot| slot.place())
    }

    /// The place of this hash's entry.
    pub(super) fn find(&self, hash: u64, entries: &Entries) -> Option<Place> {
        let (before, behind) = self.slots.split_at_checked(self.home(hash))?;
        for slot in behind.iter().chain(before) {
            if *slot == Slot::VACANT {
                return None;
            }
            let place = slot.place();
            if slot.may_be(hash) && entries.get(place).is_some_and(|entry| entry.is_of(hash)) {
                return Some(place);
            }
        }
        None
    }

    /// Adds a hash that is not there, whose entry is there.
    pub(super) fn insert(&mut self, hash: u64, place: Place, entries: &Entries) {
        if self.len.saturating_add(1).saturating_mul(6) > self.slots.len().saturating_mul(5) {
            self.grow(entries);
        }
        let slot = Slot::new(hash, place);
        let mut at = self.home(hash);
        while self.slots.get(at).is_some_and(|taken| *taken != Slot::VACANT) {
            at = self.behind(at);
        }
        self.set(at, slot);
        self.len = self.len.saturating_add(1);
    }

    /// Takes the hash of the entry at this place out.
    pub(super) fn remove(&mut self, hash: u64, place: Place, entries: &Entries) {
        let slot = Slot::new(hash, place);
        let mut hole = self.home(hash);
        loop {
            match self.slots.get(hole) {
                Some(taken) if *taken == slot => break,
                None | Some(&Slot::VACANT) => return,
                Some(_) => hole = self.behind(hole),
            }
        }
        let slots = self.slots.len();
        // What lies behind and may move to the hole, does, and leaves another.
        let mut at = hole;
        for _ in 0..slots {
            at = self.behind(at);
            let Some(slot) = self.slots.get(at).copied().filter(|slot| *slot != Slot::VACANT)
            else {
                break;
            };
            let hash = entries.get(slot.place()).map(Entry::hash);
            let distance = |from: usize| {
                at.checked_sub(from).unwrap_or(at.saturating_add(slots).saturating_sub(from))
            };
            if hash.is_some_and(|hash| distance(self.home(hash)) >= distance(hole)) {
                self.set(hole, slot);
                hole = at;
            }
        }
        self.set(hole, Slot::VACANT);
        self.len = self.len.saturating_sub(1);
    }

    fn home(&self, hash: u64) -> usize {
        // The ten bits that all hashes here share say nothing.
        let fraction = (hash << 10) >> 32;
        (fraction.wrapping_mul(self.slots.len() as u64) >> 32) as usize
    }

    fn behind(&self, at: usize) -> usize {
        let next = at.wrapping_add(1);
        if next < self.slots.len() { next } else { 0 }
    }

    fn set(&mut self, at: usize, slot: Slot) {
        if let Some(place) = self.slots.get_mut(at) {
            *place = slot;
        }
    }

    /// In one go from end to end, however many have one home.
    fn grow(&mut self, entries: &Entries) {
        let more = (self.slots.len() / 2).max(FIRST_SLOTS);
        let larger = vec![Slot::VACANT; self.slots.len().saturating_add(more)];
        let slots = core::mem::replace(&mut self.slots, larger);
        let homes = slots.into_iter().filter(|slot| *slot != Slot::VACANT).filter_map(|slot| {
            let hash = entries.get(slot.place())?.hash();
            Some((self.home(hash), slot))
        });
        let mut homes: Vec<(usize, Slot)> = homes.collect();
        homes.sort_unstable_by_key(|(home, _)| *home);
        let mut next = 0;
        let mut beyond = Vec::new();
        for (home, slot) in homes {
            let at = home.max(next);
            if at < self.slots.len() {
                self.set(at, slot);
                next = at.saturating_add(1);
            } else {
                beyond.push(slot);
            }
        }
        // Round to the front, where others may be.
        let mut at = 0usize;
        for slot in beyond {
            while self.slots.get(at).is_some_and(|taken| *taken != Slot::VACANT) {
                at = at.saturating_add(1);
            }
            self.set(at, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::column_sets::ColumnRef;
    use super::*;
    use warmroute_shared_state::table_op::Column;

    /// A segment and its entries.
    #[derive(Default)]
    struct Indexed(Segment, Entries);

    impl Indexed {
        fn insert(&mut self, hash: u64) {
            let place = self.1.add(Entry::new(hash, ColumnRef::one(Column(1)))).unwrap();
            self.0.insert(hash, place, &self.1);
        }

        fn remove(&mut self, hash: u64) {
            if let Some(place) = self.0.find(hash, &self.1) {
                self.0.remove(hash, place, &self.1);
                self.1.remove(place);
            }
        }

        fn has(&self, hash: u64) -> bool {
            self.0.find(hash, &self.1).is_some_and(|place| self.1.get(place).unwrap().is_of(hash))
        }

        fn hashes(&self) -> Vec<u64> {
            let mut all: Vec<_> =
                self.0.places().map(|place| self.1.get(place).unwrap().hash()).collect();
            all.sort_unstable();
            all
        }
    }

    crate::tests! {
        fn it_stays_half_full_as_it_grows() {
            let mut segment = Indexed::default();
            for n in 0..4_000u64 {
                segment.insert(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 10);
                let slots = segment.0.slots.capacity();
                assert!(slots * 5 <= segment.0.len * 10 + 100, "{n}");
            }
        }

        fn hashes_with_one_home_take_no_more_room_than_others() {
            let mut segment = Indexed::default();
            // The last home: all that is displaced goes on at the first.
            for n in 0..1_000u64 {
                segment.insert((u64::MAX >> 10) - n);
            }
            assert!(segment.0.slots.len() < 2_500, "{}", segment.0.slots.len());
            for n in 0..1_000u64 {
                assert!(segment.has((u64::MAX >> 10) - n));
                segment.remove((u64::MAX >> 10) - n);
            }
            assert_eq!((segment.0.len, segment.0.places().count()), (0, 0));
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    proptest::proptest! {
        /// Few different homes, also at the end, so that clusters meet and go round.
        #[test]
        fn it_behaves_like_a_set(
            ops in proptest::collection::vec((0u8..7, 0u64..60), 0..400),
            shift in 0u32..54,
        ) {
            let mut segment = Indexed::default();
            let mut set = std::collections::BTreeSet::new();
            for (op, n) in ops {
                let hash = if n % 2 == 0 { (n << shift) & (u64::MAX >> 10) } else { (u64::MAX >> 10) - (n << 3) };
                if op < 4 {
                    if set.insert(hash) {
                        segment.insert(hash);
                    }
                } else {
                    set.remove(&hash);
                    segment.remove(hash);
                }
                proptest::prop_assert_eq!(segment.has(hash), set.contains(&hash));
                proptest::prop_assert_eq!(segment.0.len, set.len());
                proptest::prop_assert!(set.iter().all(|hash| segment.has(*hash)));
            }
            proptest::prop_assert_eq!(segment.hashes(), set.into_iter().collect::<Vec<_>>());
        }
    }
}
