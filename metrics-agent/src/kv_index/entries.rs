//! Memory of byte blocks: entries of 16 bytes in chunks, found by hash.
//!
//! Chunks, as the nodes are in, and beside them a hash table of places: such a table is less than half
//! full when it has just doubled, and with 256 endpoints of one size they all have. So what it holds should be small.

use hashbrown::HashTable;

const CHUNK: usize = 256;

/// One byte block.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its chain hash; in a free place, one more than the next free place.
    pub(super) hash: u64,
    /// Tokens up to its end and some flags: see `byte_blocks`. Never 0, but in a free place.
    pub(super) packed: u32,
    /// Engine blocks that end it and are in the device's memory.
    pub(super) device: u16,
    /// The same in any tier.
    pub(super) any: u16,
}

const _: () = assert!(size_of::<Entry>() == 16);

/// Entries, one of each hash.
#[derive(Default)]
pub(super) struct Entries {
    places: HashTable<u32>,
    chunks: Chunks,
    /// One more than the first free place; 0 if there is none.
    free: u64,
}

#[derive(Default)]
struct Chunks(Vec<Vec<Entry>>);

impl Chunks {
    fn get(&self, place: u32) -> Option<&Entry> {
        self.0.get(place as usize / CHUNK)?.get(place as usize % CHUNK)
    }

    fn get_mut(&mut self, place: u32) -> Option<&mut Entry> {
        self.0.get_mut(place as usize / CHUNK)?.get_mut(place as usize % CHUNK)
    }

    fn has(&self, hash: u64) -> impl Fn(&u32) -> bool {
        move |place| self.get(*place).is_some_and(|entry| entry.hash == hash)
    }

    /// `None` if there are 2³² of them.
    fn push(&mut self, entry: Entry) -> Option<u32> {
        if self.0.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.0.push(Vec::with_capacity(CHUNK));
        }
        let before = self.0.len().saturating_sub(1).checked_mul(CHUNK)?;
        let chunk = self.0.last_mut()?;
        let place = u32::try_from(before.checked_add(chunk.len())?).ok()?;
        chunk.push(entry);
        Some(place)
    }
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn get_mut(&mut self, hash: u64) -> Option<&mut Entry> {
        let place = *self.places.find(hash, self.chunks.has(hash))?;
        self.chunks.get_mut(place)
    }

    /// The entry of that hash; `new` if there was none.
    pub(super) fn get_or_insert(&mut self, new: Entry) -> Option<&mut Entry> {
        match self.places.find(new.hash, self.chunks.has(new.hash)).copied() {
            Some(place) => self.chunks.get_mut(place),
            None => self.insert(new),
        }
    }

    fn insert(&mut self, entry: Entry) -> Option<&mut Entry> {
        let hash = entry.hash;
        let place = match self.free.checked_sub(1) {
            Some(place) => {
                let place = u32::try_from(place).ok()?;
                self.free = std::mem::replace(self.chunks.get_mut(place)?, entry).hash;
                place
            }
            None => self.chunks.push(entry)?,
        };
        let chunks = &self.chunks;
        self.places.insert_unique(hash, place, |place| chunks.get(*place).map_or(0, |e| e.hash));
        self.chunks.get_mut(place)
    }

    pub(super) fn remove(&mut self, hash: u64) {
        let Ok(found) = self.places.find_entry(hash, self.chunks.has(hash)) else { return };
        let (place, _) = found.remove();
        if let Some(entry) = self.chunks.get_mut(place) {
            *entry = Entry { hash: self.free, packed: 0, device: 0, any: 0 };
            self.free = u64::from(place).saturating_add(1);
        }
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.chunks.0.iter_mut().flatten().filter(|entry| entry.packed != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(
            ops in proptest::collection::vec((any::<bool>(), 0u64..400, 1u32..9), 0..2_000),
        ) {
            let (mut entries, mut map) = (Entries::default(), BTreeMap::new());
            let mut most = 0;
            for (insert, hash, packed) in ops {
                if !insert {
                    entries.remove(hash);
                    map.remove(&hash);
                } else {
                    let new = Entry { hash, packed, device: 0, any: 0 };
                    let kept = entries.get_or_insert(new).map(|entry| entry.packed);
                    prop_assert_eq!(kept, Some(*map.entry(hash).or_insert(packed)));
                }
                prop_assert_eq!(entries.get_mut(hash).map(|e| e.packed), map.get(&hash).copied());
                most = most.max(map.len());
                prop_assert_eq!(entries.len(), map.len());
            }
            let held: BTreeMap<_, _> = entries.iter_mut().map(|e| (e.hash, e.packed)).collect();
            prop_assert_eq!(held, map);
            let places: usize = entries.chunks.0.iter().map(Vec::len).sum();
            prop_assert_eq!(places, most, "free places are used again");
        }
    }
}
