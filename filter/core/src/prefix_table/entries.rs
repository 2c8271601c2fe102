//! Where the table's entries lie: in the order in which they came, so that a prompt's blocks are neighbours.
//!
//! Hashes lie anywhere; looking up 1,700 of them one by one is as many cache lines, and as many branches that nothing
//! can foresee. But the blocks of a prompt are told in order, and asked for in order. So entries are laid one behind the
//! other, what is taken out leaves a vacancy, and vacancies are filled going round: runs that were left together are filled
//! together. An entry never moves.

use super::column_sets::ColumnRef;

/// Places of a page: what the table grows by at a time, 20 kB.
const PAGE: usize = 1024;
/// Of so many places one may be vacant before the table grows: fewer vacancies lie further apart.
const VACANT_PART: usize = 16;
/// There are fewer places: as many as an index's slot can name, but for one.
pub(super) const MOST_PLACES: usize = 1 << 26;

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
    const VACANT: Self = Self { hash: [0; 2], stamp: 0, tokens: 0, columns: ColumnRef::EMPTY };

    pub(super) fn new(hash: u64, columns: ColumnRef) -> Self {
        let hash = [(hash >> 32) as u32, (hash & 0xFFFF_FFFF) as u32];
        Self { hash, stamp: 0, tokens: 0, columns }
    }

    pub(super) fn hash(&self) -> u64 {
        let [high, low] = self.hash;
        (u64::from(high) << 32) | u64::from(low)
    }

    /// Whether it is this block's.
    pub(super) fn is_of(&self, hash: u64) -> bool {
        self.hash() == hash && !self.columns.is_empty()
    }
}

/// A place of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(pub(super) u32);

impl Place {
    /// So many places behind it.
    pub(super) fn plus(self, places: usize) -> Self {
        Self(u32::try_from(places).map_or(u32::MAX, |places| self.0.saturating_add(places)))
    }

    fn split(self) -> (usize, usize) {
        let at = self.0 as usize;
        (at / PAGE, at % PAGE)
    }
}

/// All entries of a table.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pages: Vec<Box<[Entry]>>,
    /// One bit for each place, set where it is vacant.
    vacancies: Vec<u64>,
    vacant: usize,
    /// The word of `vacancies` at which the next vacancy is looked for.
    cursor: usize,
}

impl Entries {
    pub(super) fn get(&self, place: Place) -> Option<&Entry> {
        let (page, at) = place.split();
        self.pages.get(page)?.get(at)
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Entry> {
        let (page, at) = place.split();
        self.pages.get_mut(page)?.get_mut(at)
    }

    /// The entries from this place on that are known to lie behind each other.
    pub(super) fn from(&self, place: Place) -> &[Entry] {
        let (page, at) = place.split();
        self.pages.get(page).and_then(|page| page.get(at..)).unwrap_or_default()
    }

    /// Lays an entry, with columns, behind the one that came before it if there is room. `None`: the table is full.
    pub(super) fn add(&mut self, entry: Entry) -> Option<Place> {
        let places = self.pages.len().saturating_mul(PAGE);
        if self.vacant.saturating_mul(VACANT_PART) <= places {
            self.grow(places);
        }
        if self.vacant == 0 {
            return None;
        }
        let words = self.vacancies.len();
        let (behind, before) = (self.cursor..words, 0..words.min(self.cursor.saturating_add(1)));
        let is_open = |word: &usize| self.vacancies.get(*word).is_some_and(|bits| *bits != 0);
        let word = behind.chain(before).find(is_open)?;
        self.cursor = word;
        let bits = self.vacancies.get_mut(word)?;
        let bit = bits.trailing_zeros();
        *bits &= bits.wrapping_sub(1);
        self.vacant = self.vacant.saturating_sub(1);
        let at = word.saturating_mul(64).saturating_add(bit as usize);
        let place = Place(u32::try_from(at).ok()?);
        *self.get_mut(place)? = entry;
        Some(place)
    }

    /// Leaves a place vacant.
    pub(super) fn remove(&mut self, place: Place) {
        let at = place.0 as usize;
        let bit = 1u64.wrapping_shl(place.0 % 64);
        let Some(bits) = self.vacancies.get_mut(at / 64).filter(|bits| **bits & bit == 0) else {
            return;
        };
        *bits |= bit;
        self.vacant = self.vacant.saturating_add(1);
        if let Some(entry) = self.get_mut(place) {
            *entry = Entry::VACANT;
        }
    }

    fn grow(&mut self, places: usize) {
        if places.saturating_add(PAGE) >= MOST_PLACES {
            return;
        }
        self.pages.push(vec![Entry::VACANT; PAGE].into_boxed_slice());
        self.vacancies.extend([u64::MAX; PAGE / 64]);
        self.vacant = self.vacant.saturating_add(PAGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmroute_shared_state::table_op::Column;

    fn entry(hash: u64) -> Entry {
        Entry::new(hash, ColumnRef::one(Column(1)))
    }

    fn add(entries: &mut Entries, hashes: core::ops::Range<u64>) -> Vec<u32> {
        hashes.map(|hash| entries.add(entry(hash)).unwrap().0).collect()
    }

    crate::tests! {
        fn what_comes_together_lies_together() {
            let mut entries = Entries::default();
            assert_eq!(add(&mut entries, 0..5_000), (0..5_000).collect::<Vec<_>>());
            assert!((0..5_000).all(|n| entries.get(Place(n)).unwrap().is_of(n.into())));
        }

        fn runs_that_were_left_are_filled_in_order() {
            let mut entries = Entries::default();
            add(&mut entries, 0..10_000);
            // From the end, as engines drop a prompt.
            (2_000..3_000).rev().chain([7_000]).for_each(|n| entries.remove(Place(n)));
            let (pages, vacant) = (entries.pages.len(), entries.vacant);
            let before = add(&mut entries, 0..(vacant - 1_001) as u64);
            let last = *before.last().unwrap();
            assert!(before.is_sorted() && last as usize + 1 == entries.pages.len() * PAGE, "{last}");
            // Going round, to the first vacancy: the table grew meanwhile, but only at its end.
            assert!(entries.pages.len() <= pages + 1);
        }

        fn a_place_left_twice_is_one_vacancy() {
            let mut entries = Entries::default();
            add(&mut entries, 0..10);
            let vacant = entries.vacant;
            for _ in 0..2 {
                entries.remove(Place(3));
                entries.remove(Place(1_000_000));
            }
            assert_eq!(entries.vacant, vacant + 1);
            assert!(!entries.get(Place(3)).unwrap().is_of(0), "a vacant place is nobody's");
        }

        fn it_stays_nearly_full() {
            let mut entries = Entries::default();
            for n in 0..100_000u64 {
                entries.add(entry(n)).unwrap();
                let places = entries.pages.len() * PAGE;
                assert!(places - entries.vacant == n as usize + 1);
                assert!(entries.vacant <= places / VACANT_PART + PAGE, "{n}");
            }
        }
    }
}
