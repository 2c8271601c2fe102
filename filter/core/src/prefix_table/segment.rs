//! One segment of the table: its entries in the order of their hashes, with little room between them.
//!
//! Linear probing whose clusters are kept in order. An entry's home is its hash scaled to the
//! number of homes, so homes ascend as hashes do, and an entry lies at its home or, with no vacant
//! place between, behind it. The reason is memory: a table that doubles is half empty for half of
//! its life, in each VM, while this one grows by an eighth and bears being nearly full. A look-up
//! still touches one or two cache lines, and growth moves entries in place, in one go from end to
//! end.
//!
//! Hashes come from outside. If somebody makes many with one home, their cluster is searched one by
//! one, but the room beyond the last home grows only by what is pushed there.

use super::column_set::ColumnRef;

/// Homes of the first layout.
const FIRST_HOMES: usize = 16;
/// Places beyond the last home that are added at a time.
const OVERFLOW: usize = 4;

/// One block. Four-byte parts, so that an entry has 20 bytes and not 24.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    hash: [u32; 2],
    pub(super) stamp: u32,
    /// Tokens that the chain up to its end stands for; 0 = no event said.
    pub(super) tokens: u32,
    /// Empty in a vacant place, and nowhere else.
    pub(super) columns: ColumnRef,
}

const _: () = assert!(size_of::<Entry>() == 20);

impl Entry {
    /// Not less than any hash, so that a search stops at it like at any other.
    const VACANT: Self =
        Self { hash: [u32::MAX; 2], stamp: 0, tokens: 0, columns: ColumnRef::EMPTY };

    pub(super) fn new(hash: u64, columns: ColumnRef) -> Self {
        let hash = [(hash >> 32) as u32, (hash & 0xFFFF_FFFF) as u32];
        Self { hash, stamp: 0, tokens: 0, columns }
    }

    pub(super) fn hash(&self) -> u64 {
        let [high, low] = self.hash;
        (u64::from(high) << 32) | u64::from(low)
    }

    fn is_vacant(&self) -> bool {
        self.columns.is_empty()
    }
}

/// Where a hash is, or where it would have to be put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Taken(usize),
    Free(usize),
}

/// Entries whose hashes begin with the same ten bits.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// Homes, then places for what the last of them displace.
    places: Vec<Entry>,
    homes: usize,
    len: usize,
}

impl Segment {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.places.iter().filter(|entry| !entry.is_vacant())
    }

    pub(super) fn find(&self, hash: u64) -> Option<&Entry> {
        match self.place(hash) {
            Place::Taken(at) => self.places.get(at),
            Place::Free(_) => None,
        }
    }

    /// The caller must not leave its columns empty: that is what [`remove`](Self::remove) is for.
    pub(super) fn find_mut(&mut self, hash: u64) -> Option<&mut Entry> {
        match self.place(hash) {
            Place::Taken(at) => self.places.get_mut(at),
            Place::Free(_) => None,
        }
    }

    /// Adds an entry whose hash is not there, with columns.
    pub(super) fn insert(&mut self, entry: Entry) {
        // At most five sixths full: beyond, clusters get long.
        if self.len.saturating_add(1).saturating_mul(6) > self.homes.saturating_mul(5) {
            self.spread((self.homes.saturating_add(self.homes / 8)).max(FIRST_HOMES));
        }
        let (Place::Free(at) | Place::Taken(at)) = self.place(entry.hash());
        let cluster = self.places.get(at..).unwrap_or_default();
        let moved = cluster.iter().take_while(|other| !other.is_vacant()).count();
        let end = at.saturating_add(moved);
        if end == self.places.len() {
            self.places.reserve_exact(OVERFLOW);
            self.places.resize(end.saturating_add(OVERFLOW), Entry::VACANT);
        }
        if end < self.places.len() {
            self.places.copy_within(at..end, at.saturating_add(1));
        }
        if let Some(place) = self.places.get_mut(at) {
            *place = entry;
            self.len = self.len.saturating_add(1);
        }
    }

    pub(super) fn remove(&mut self, hash: u64) {
        let Place::Taken(at) = self.place(hash) else { return };
        let behind = at.saturating_add(1);
        let displaced = (behind..).zip(self.places.get(behind..).unwrap_or_default());
        let moved = displaced
            .take_while(|(at, entry)| !entry.is_vacant() && self.home(entry.hash()) < *at)
            .count();
        let end = behind.saturating_add(moved);
        self.places.copy_within(behind..end, at);
        if let Some(place) = self.places.get_mut(at.saturating_add(moved)) {
            *place = Entry::VACANT;
            self.len = self.len.saturating_sub(1);
        }
    }

    /// Changes each entry, and takes those out that are left without columns.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&mut Entry)) {
        let mut next = 0;
        for at in 0..self.places.len() {
            let Some(mut entry) = self.take(at) else { continue };
            change(&mut entry);
            if entry.is_vacant() {
                self.len = self.len.saturating_sub(1);
            } else {
                next = self.settle(entry, next);
            }
        }
    }

    fn home(&self, hash: u64) -> usize {
        // The ten bits that all hashes here share say nothing.
        let fraction = (hash << 10) >> 32;
        (fraction.wrapping_mul(self.homes as u64) >> 32) as usize
    }

    /// Some bits of what lies where a search for this hash begins.
    pub(super) fn at_home(&self, hash: u64) -> u32 {
        self.places.get(self.home(hash)).map_or(0, |entry| entry.stamp)
    }

    fn place(&self, hash: u64) -> Place {
        let home = self.home(hash);
        let cluster = self.places.get(home..).unwrap_or_default();
        let before = cluster.iter().take_while(|entry| entry.hash() < hash).count();
        let at = home.saturating_add(before);
        match cluster.get(before) {
            Some(entry) if entry.hash() == hash && !entry.is_vacant() => Place::Taken(at),
            _ => Place::Free(at),
        }
    }

    /// Lays the entries out anew, over more homes.
    fn spread(&mut self, homes: usize) {
        self.homes = homes;
        // What the last homes displace decides how many places it takes.
        let places = self
            .iter()
            .fold(0, |next, entry| self.home(entry.hash()).max(next).saturating_add(1))
            .max(homes)
            .saturating_add(OVERFLOW);
        let before = self.places.len();
        self.places.reserve_exact(places.saturating_sub(before));
        self.places.resize(places.max(before), Entry::VACANT);
        // All to the end, so that each then moves towards the front, onto places that were read.
        let mut end = self.places.len();
        for at in (0..before).rev() {
            let Some(entry) = self.take(at) else { continue };
            end = end.saturating_sub(1);
            if let Some(place) = self.places.get_mut(end) {
                *place = entry;
            }
        }
        let mut next = 0;
        for at in end..self.places.len() {
            if let Some(entry) = self.take(at) {
                next = self.settle(entry, next);
            }
        }
    }

    /// Takes an entry out and leaves its place vacant.
    fn take(&mut self, at: usize) -> Option<Entry> {
        let place = self.places.get_mut(at)?;
        let entry = core::mem::replace(place, Entry::VACANT);
        (!entry.is_vacant()).then_some(entry)
    }

    /// Puts an entry at its home, or at `next` if that is later. Returns the place behind it.
    fn settle(&mut self, entry: Entry, next: usize) -> usize {
        let at = self.home(entry.hash()).max(next);
        if let Some(place) = self.places.get_mut(at) {
            *place = entry;
        }
        at.saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmroute_shared_state::table_op::Column;

    fn entry(hash: u64) -> Entry {
        Entry::new(hash, ColumnRef::one(Column(1)))
    }

    fn hashes(segment: &Segment) -> Vec<u64> {
        segment.iter().map(Entry::hash).collect()
    }

    crate::tests! {
        fn it_stays_nearly_full_as_it_grows() {
            let mut segment = Segment::default();
            for n in 0..4_000u64 {
                segment.insert(entry(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 10));
                if n > 500 {
                    assert!(segment.places.capacity() * 7 < segment.len() * 10 + 200, "{n}");
                }
            }
        }

        fn hashes_with_one_home_take_no_more_room_than_others() {
            let mut segment = Segment::default();
            // The last home: all that is displaced goes beyond it.
            for n in 0..1_000u64 {
                segment.insert(entry((u64::MAX >> 10) - n));
            }
            assert_eq!(segment.iter().count(), 1_000);
            assert!(segment.places.len() < 2_500, "{}", segment.places.len());
            for n in 0..1_000u64 {
                assert!(segment.find((u64::MAX >> 10) - n).is_some());
                segment.remove((u64::MAX >> 10) - n);
            }
            assert_eq!((segment.len(), segment.iter().count()), (0, 0));
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    proptest::proptest! {
        #[test]
        fn it_behaves_like_a_sorted_set(
            ops in proptest::collection::vec((0u8..8, 0u64..64), 0..600),
            shift in 0u32..54,
        ) {
            let mut segment = Segment::default();
            let mut set = std::collections::BTreeSet::new();
            for (op, n) in ops {
                let hash = (n << shift) & (u64::MAX >> 10);
                match op {
                    0..=4 => {
                        if set.insert(hash) {
                            segment.insert(entry(hash));
                        }
                    }
                    5..=6 => {
                        set.remove(&hash);
                        segment.remove(hash);
                    }
                    _ => {
                        set.retain(|other| other % 3 != hash % 3);
                        segment.change_all(|entry| {
                            if entry.hash() % 3 == hash % 3 {
                                entry.columns = ColumnRef::EMPTY;
                            }
                        });
                    }
                }
                proptest::prop_assert_eq!(segment.find(hash).is_some(), set.contains(&hash));
                proptest::prop_assert_eq!(segment.len(), set.len());
                proptest::prop_assert!(set.iter().all(|hash| segment.find(*hash).is_some()));
            }
            proptest::prop_assert_eq!(hashes(&segment), set.into_iter().collect::<Vec<_>>());
        }
    }
}
