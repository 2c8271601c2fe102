//! What stays known when events are lost, and is held again.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const SIZE: usize = 3;

/// Tokens of 31 to 40 bytes: an engine block of three touches at most two byte blocks.
fn ids(count: usize, seed: u32) -> Vec<u32> {
    (0..count as u32).map(|n| 30 + (n * 7 + seed) % 10 + 40 * ((n + seed) % 4)).collect()
}

fn store(names: &[u64], parent: Option<u64>, ids: &[u32]) -> Event {
    Event::Stored(stored(names, parent, ids, SIZE as u32))
}

/// Three shared blocks, 1 to 3, and two that hang on them, 4 and 5.
fn prompt() -> (Index, Told, Vec<u32>) {
    let ids = ids(5 * SIZE, 0);
    let (mut index, mut told) = (Index::default(), Told::default());
    index.apply(0, &store(&[1, 2, 3, 4, 5], None, &ids), &made_up());
    told.take(&mut index);
    (index, told, ids)
}

#[test]
fn what_is_stored_after_a_loss_brings_back_what_it_hangs_on() {
    let (mut index, mut told, ids) = prompt();
    index.lose(0);
    assert!(told.take(&mut index).cleared);
    assert_eq!((index.blocks(), index.byte_blocks(), index.remembered()), (0, 0, 5));
    let other: Vec<u32> = [&ids[..3 * SIZE], &self::ids(2 * SIZE, 5)].concat();
    index.apply(0, &store(&[8, 9], Some(3), &other[3 * SIZE..]), &made_up());
    told.take(&mut index);
    assert_eq!(told.hashes(), sorted(chain(&scope("m"), &MADE_UP, &other)));
    let counters = index.counters();
    assert_eq!((index.blocks(), counters.revived, counters.orphans), (5, 3, 0));
    // Stored anew, the rest is there too.
    index.apply(0, &store(&[4, 5], Some(3), &ids[3 * SIZE..]), &made_up());
    told.take(&mut index);
    assert_eq!((index.blocks(), index.remembered()), (7, 0));
    index.apply(0, &removed(&[9, 8, 5, 4, 3, 2, 1]), &made_up());
    told.take(&mut index);
    assert_eq!((told.device.len(), index.blocks(), index.nodes()), (0, 0, 0));
}

#[test]
fn a_restart_leaves_no_names() {
    let (mut index, mut told, ids) = prompt();
    for clear in
        [|i: &mut Index| i.clear_rank(0), |i: &mut Index| i.apply(0, &Event::Cleared, &made_up())]
    {
        index.lose(0);
        clear(&mut index);
        index.apply(0, &store(&[4, 5], Some(3), &ids[3 * SIZE..]), &made_up());
        told.take(&mut index);
        assert_eq!((index.blocks(), index.remembered(), told.device.len()), (0, 0, 0));
        index.apply(0, &store(&[1, 2, 3], None, &ids[..3 * SIZE]), &made_up());
    }
    assert_eq!(index.counters().orphans, 4);
}

#[test]
fn a_copy_in_a_slower_tier_proves_nothing_of_its_prefix() {
    let (mut index, mut told, ids) = prompt();
    index.lose(0);
    let Event::Stored(event) = store(&[4, 5], Some(3), &ids[3 * SIZE..]) else { unreachable!() };
    let lower = Event::Stored(Stored { medium: Medium::Lower, ..event });
    index.apply(0, &lower, &made_up());
    told.take(&mut index);
    assert_eq!((index.blocks(), index.counters().revived, told.device.len()), (2, 0, 0));
}

#[test]
fn ranks_lose_apart() {
    let (mut index, mut told, ids) = prompt();
    let all = told.hashes();
    index.apply(4, &store(&[1, 2, 3, 4, 5], None, &ids), &made_up());
    index.lose(0);
    assert!(!told.take(&mut index).cleared, "the other rank holds the same");
    assert_eq!((told.hashes(), index.blocks(), index.remembered()), (all, 5, 5));
    index.lose(4);
    told.take(&mut index);
    assert_eq!((told.device.len(), index.byte_blocks(), index.remembered()), (0, 0, 10));
    index.apply(4, &store(&[8], Some(5), &ids[..SIZE]), &made_up());
    assert_eq!((index.blocks(), index.remembered()), (6, 5), "of that rank");
}

#[test]
fn a_removed_name_goes_when_nothing_hangs_on_it_and_others_stay() {
    let (mut index, _, _) = prompt();
    index.lose(0);
    index.apply(0, &removed(&[5]), &made_up());
    assert_eq!(index.nodes(), 4);
    index.apply(0, &removed(&[3]), &made_up());
    assert_eq!(index.nodes(), 4, "block 4 hangs on it");
    index.apply(0, &removed(&[4]), &made_up());
    assert_eq!((index.nodes(), index.remembered()), (2, 2), "3 goes with it, 1 and 2 may be held");
}

#[test]
fn names_are_bounded_and_the_ends_of_chains_go_first() {
    let limits = Limits { blocks: 6, ghosts: 2, lost: 3 };
    let mut index = Index::new(limits);
    let ids = ids(6 * SIZE, 0);
    index.apply(0, &store(&[1, 2, 3, 4, 5], None, &ids[..5 * SIZE]), &made_up());
    index.lose(0);
    assert_eq!((index.remembered(), index.counters().over_limit), (3, 2));
    index.apply(0, &store(&[6, 7], Some(3), &ids[..2 * SIZE]), &made_up());
    assert_eq!(index.counters().revived, 3, "the first three were kept");
    // Held blocks go before names.
    index.lose(0);
    assert_eq!(index.nodes(), 3);
    index.apply(0, &store(&[11, 12, 13, 14], None, &ids[..4 * SIZE]), &made_up());
    assert_eq!((index.blocks(), index.remembered(), index.nodes()), (4, 0, 4));
}

#[test]
fn told_anew_is_all_that_is_covered() {
    let (mut index, told, _) = prompt();
    index.tell_anew();
    let mut again = Told::default();
    assert!(again.take(&mut index).cleared);
    assert_eq!(again.device, told.device);
    assert!(again.take(&mut index).is_empty());
}

/// An engine with copies of blocks, named by all that lies before them, and prompts that find them.
#[derive(Default)]
struct Engine {
    copies: BTreeMap<u64, u32>,
}

fn name(ids: &[u32]) -> u64 {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

impl Engine {
    /// A prompt: what is held from its start is found, the rest is stored. `again`: one more copy of the
    /// last blocks found, as for two prompts at once.
    fn prompt(&mut self, ids: &[u32], again: usize) -> Option<Event> {
        let ends: Vec<usize> = (1..=ids.len() / SIZE).map(|block| block * SIZE).collect();
        let found = ends.iter().take_while(|end| self.copies.contains_key(&name(&ids[..**end])));
        let found = found.count().saturating_sub(again);
        let parent = found.checked_sub(1).map(|last| name(&ids[..ends[last]]));
        let new: Vec<u64> = ends[found..].iter().map(|end| name(&ids[..*end])).collect();
        for end in &ends[found..] {
            *self.copies.entry(name(&ids[..*end])).or_default() += 1;
        }
        // A single block would be looked at as decoded.
        (new.len() > 1).then(|| store(&new, parent, &ids[found * SIZE..]))
    }

    /// One copy of some block goes, whatever hangs on it.
    fn evict(&mut self, choice: usize) -> Option<Event> {
        let name = *self.copies.keys().nth(choice % self.copies.len().max(1))?;
        let copies = self.copies.get_mut(&name)?;
        *copies -= 1;
        if *copies == 0 {
            self.copies.remove(&name);
        }
        Some(removed(&[name]))
    }

    /// Byte blocks that lie wholly in held blocks.
    fn covered(&self) -> BTreeSet<u64> {
        let mut covered = BTreeSet::new();
        for text in TEXTS.iter() {
            for (position, hash) in text.chain.iter().enumerate() {
                let (first, last) = (position * BLOCK_BYTES, (position + 1) * BLOCK_BYTES);
                let mut touched = (0..text.names.len())
                    .filter(|n| text.ends[*n] < last && text.ends[n + 1] > first);
                if touched.all(|n| self.copies.contains_key(&text.names[n])) {
                    covered.insert(*hash);
                }
            }
        }
        covered
    }
}

/// All that never changes of a text.
struct Text {
    names: Vec<u64>,
    chain: Vec<u64>,
    /// Bytes before each engine block, and before the end of the last.
    ends: Vec<usize>,
}

static TEXTS: LazyLock<Vec<Text>> = LazyLock::new(|| {
    let all = (0..3).flat_map(|shared| (0..5).map(move |own| text(shared, own)));
    all.map(|ids| Text {
        names: (1..=ids.len() / SIZE).map(|n| name(&ids[..n * SIZE])).collect(),
        chain: chain(&scope("m"), &MADE_UP, &ids),
        ends: (0..=ids.len() / SIZE).map(|n| bytes_of(&MADE_UP, &ids[..n * SIZE]).len()).collect(),
    })
    .collect()
});

#[derive(Debug, Clone)]
enum Step {
    Prompt { shared: usize, own: u32, again: usize },
    Evict(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0usize..3, 0u32..5, prop_oneof![4 => Just(0usize), 1 => 1usize..4])
            .prop_map(|(shared, own, again)| Step::Prompt { shared, own, again }),
        2 => any::<usize>().prop_map(Step::Evict),
    ]
}

/// One of three shared beginnings of four blocks, and three blocks of its own.
fn text(shared: usize, own: u32) -> Vec<u32> {
    let named = vec![30 + own % 10, 30 + own / 10 % 10, 30 + own / 100];
    [ids(4 * SIZE, shared as u32), named, ids(2 * SIZE, own)].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Whole runs of events are lost. What is told is never more than the engine has, and new prompts
    /// bring the shared beginnings back that they find.
    #[test]
    fn what_is_told_is_held_and_shared_beginnings_are_known_again(
        runs in prop::collection::vec((prop::collection::vec(step(), 1..25), any::<bool>()), 1..8),
    ) {
        let (mut engine, mut index, mut told) = (Engine::default(), Index::default(), Told::default());
        // Blocks that were told of, and not that they went.
        let mut heard = BTreeSet::new();
        for (steps, lost) in runs {
            for step in steps {
                let event = match step {
                    Step::Prompt { shared, own, again } => engine.prompt(&text(shared, own), again),
                    Step::Evict(choice) => engine.evict(choice),
                };
                let Some(event) = event else { continue };
                if !lost {
                    let orphans = index.counters().orphans;
                    index.apply(0, &event, &made_up());
                    told.take(&mut index);
                    match &event {
                        Event::Stored(stored) if index.counters().orphans == orphans => {
                            heard.extend(stored.hashes.iter().copied());
                        }
                        Event::Removed(gone) => heard.retain(|name| !gone.hashes.contains(name)),
                        _ => {}
                    }
                    let known: BTreeSet<u64> = told.device.keys().copied().collect();
                    let held = engine.covered();
                    prop_assert!(known.is_subset(&held), "{known:?} {held:?}");
                }
            }
            if lost {
                index.lose(0);
                told.take(&mut index);
                prop_assert!(told.device.is_empty());
            }
        }
        for shared in 0..3 {
            let ids = text(shared, 100 + shared as u32);
            // A prompt that nobody asked before.
            let event = engine.prompt(&ids, 0).expect("three new blocks");
            let Event::Stored(Stored { parent, .. }) = &event else { unreachable!() };
            if parent.is_none_or(|parent| heard.contains(&parent)) {
                index.apply(0, &event, &made_up());
                told.take(&mut index);
                let all = chain(&scope("m"), &MADE_UP, &ids);
                prop_assert!(all.iter().all(|hash| told.device.contains_key(hash)));
            }
        }
    }
}
