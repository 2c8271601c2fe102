//! Against a model that keeps every chain whole and looks at all of them each time.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Debug, Clone)]
enum Step {
    /// Stores blocks from the `from`-th to the `to`-th of a path.
    Store {
        path: usize,
        from: usize,
        to: usize,
        lower: bool,
    },
    /// Removes a block of a path.
    Remove {
        path: usize,
        block: usize,
        lower: bool,
    },
    Clear,
}

const SIZE: usize = 3;
const BLOCKS: usize = 8;

fn step() -> impl Strategy<Value = Step> {
    let block = 0..BLOCKS;
    prop_oneof![
        8 => (0..6usize, block.clone(), 0..BLOCKS, prop::bool::weighted(0.2)).prop_map(
            |(path, a, b, lower)| Step::Store { path, from: a.min(b), to: a.max(b) + 1, lower }
        ),
        6 => (0..6usize, block, prop::bool::weighted(0.2))
            .prop_map(|(path, block, lower)| Step::Remove { path, block, lower }),
        1 => Just(Step::Clear),
    ]
}

/// Tokens of a path: some of them share beginnings, one has an unknown id, two are salted.
fn tokens(paths: &[Vec<u32>], path: usize) -> Vec<u32> {
    let mut ids = paths[path].clone();
    if path % 2 == 1 {
        let shared = paths[path - 1].len() / 2;
        ids[..shared].copy_from_slice(&paths[path - 1][..shared]);
    }
    ids
}

fn salt(path: usize) -> Option<&'static str> {
    (path >= 4).then_some("s")
}

/// An engine's name of a block: a digest of all that comes before it.
fn name(path: usize, ids: &[u32], block: usize) -> u64 {
    let bytes: Vec<u8> = ids[..(block + 1) * SIZE].iter().flat_map(|id| id.to_le_bytes()).collect();
    xxhash_rust::xxh3::xxh3_64_with_seed(&bytes, u64::from(salt(path).is_some()))
}

/// All that never changes of a path.
struct Path {
    ids: Vec<u32>,
    names: Vec<u64>,
    /// Its whole byte blocks, as far as its ids are known.
    chain: Vec<u64>,
    /// Bytes before each engine block, and before the end of the last.
    ends: Vec<usize>,
}

impl Path {
    fn new(paths: &[Vec<u32>], path: usize) -> Self {
        let ids = tokens(paths, path);
        let known = ids.iter().position(|id| MADE_UP.get(*id).is_none()).unwrap_or(ids.len());
        let scope = ChainScope { cache_salt: salt(path), ..scope("m") };
        let end = |blocks: usize| bytes_of(&MADE_UP, &ids[..known.min(blocks * SIZE)]).len();
        Self {
            names: (0..BLOCKS).map(|block| name(path, &ids, block)).collect(),
            chain: chain(&scope, &MADE_UP, &ids[..known]),
            ends: (0..=BLOCKS).map(end).collect(),
            ids,
        }
    }
}

#[derive(Default)]
struct Naive {
    /// Copies per block: in the device, and in slower tiers.
    blocks: BTreeMap<u64, (u32, u32)>,
    lower_seen: bool,
}

impl Naive {
    fn held(&self, name: u64, any: bool) -> bool {
        self.blocks.get(&name).is_some_and(|(device, lower)| *device > 0 || any && *lower > 0)
    }

    /// The byte blocks of which every engine block that they touch is held.
    fn covered(&self, paths: &[Path], any: bool) -> BTreeSet<u64> {
        let mut covered = BTreeSet::new();
        for path in paths {
            for (position, hash) in path.chain.iter().enumerate() {
                let (first, last) = (position * BLOCK_BYTES, (position + 1) * BLOCK_BYTES);
                let held = (0..BLOCKS)
                    .filter(|block| path.ends[*block] < last && path.ends[block + 1] > first)
                    .all(|block| self.held(path.names[block], any));
                if held {
                    covered.insert(*hash);
                }
            }
        }
        covered
    }
}

fn run(paths: &[Vec<u32>], steps: Vec<Step>) -> Result<(), TestCaseError> {
    let paths: Vec<Path> = (0..paths.len()).map(|path| Path::new(paths, path)).collect();
    let mut index = Index::default();
    let mut told = Told::default();
    let mut naive = Naive::default();
    for step in steps {
        match step {
            Step::Store { path, from, to, lower } => {
                let Path { ids, names, .. } = &paths[path];
                let parent = from.checked_sub(1).map(|before| names[before]);
                let names = &names[from..to];
                // An engine stores under what it holds; anything else may be an orphan.
                if parent.is_some_and(|parent| !naive.held(parent, true)) {
                    continue;
                }
                let mut extra_keys = vec![vec![]; names.len()];
                if let (Some(salt), 0) = (salt(path), from) {
                    extra_keys[0].push(ExtraKey::Text(salt.into()));
                }
                // One block alone would be looked at as decoded.
                if names.len() < 2 {
                    continue;
                }
                let medium = if lower { Medium::Lower } else { Medium::Device };
                let event = Stored {
                    extra_keys,
                    medium,
                    ..stored(names, parent, &ids[from * SIZE..to * SIZE], SIZE as u32)
                };
                index.apply(0, &Event::Stored(event), &made_up());
                naive.lower_seen |= lower;
                // What is stored in the device shows that its whole prefix is there.
                for name in paths[path].names[..from].iter().filter(|_| !lower) {
                    let device = &mut naive.blocks.entry(*name).or_default().0;
                    *device = (*device).max(1);
                }
                for name in names {
                    let entry = naive.blocks.entry(*name).or_default();
                    if lower { entry.1 += 1 } else { entry.0 += 1 }
                }
            }
            Step::Remove { path, block, lower } => {
                let name = paths[path].names[block];
                let medium = if lower { Medium::Lower } else { Medium::Device };
                let event = Removed { hashes: vec![name], medium, ..Removed::default() };
                index.apply(0, &Event::Removed(event), &made_up());
                if let Some((device, slow)) = naive.blocks.get_mut(&name) {
                    let count = if lower { slow } else { device };
                    *count = count.saturating_sub(1);
                }
            }
            Step::Clear => {
                index.apply(0, &Event::Cleared, &made_up());
                naive.blocks.clear();
            }
        }
        told.take(&mut index);
        let hashes: BTreeSet<u64> = told.device.keys().copied().collect();
        prop_assert_eq!(hashes, naive.covered(&paths, false));
        let any: BTreeSet<u64> = told.any.keys().copied().collect();
        let expected = if naive.lower_seen { naive.covered(&paths, true) } else { BTreeSet::new() };
        prop_assert_eq!(any, expected);
        let held = naive.blocks.keys().filter(|name| naive.held(**name, true)).count();
        prop_assert_eq!(index.blocks(), held);
    }
    // All gone, all forgotten.
    for (name, (device, slow)) in naive.blocks {
        for (count, medium) in [(device, Medium::Device), (slow, Medium::Lower)] {
            for _ in 0..count {
                let event = Removed { hashes: vec![name], medium, ..Removed::default() };
                index.apply(0, &Event::Removed(event), &made_up());
            }
        }
    }
    told.take(&mut index);
    prop_assert_eq!((told.device.len(), told.any.len(), index.byte_blocks()), (0, 0, 0));
    prop_assert_eq!((index.blocks(), index.nodes()), (0, 0));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Tokens of 1 to 40 bytes, now and then an unknown one: engine blocks of 3 to 120 bytes.
    #[test]
    fn covered_blocks_are_told_and_no_others(
        paths in prop::collection::vec(prop::collection::vec(0u32..201, SIZE * BLOCKS), 6),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(&paths, steps)?;
    }

    /// Tokens of few bytes: one byte block lies over many engine blocks.
    #[test]
    fn also_where_engine_blocks_are_short(
        paths in prop::collection::vec(prop::collection::vec((0u32..4, 0u32..13).prop_map(|(n, m)| n * 40 + m), SIZE * BLOCKS), 6),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(&paths, steps)?;
    }

    /// Tokens of many bytes: engine blocks end several byte blocks.
    #[test]
    fn also_where_engine_blocks_are_long(
        paths in prop::collection::vec(prop::collection::vec(0u32..9, SIZE * BLOCKS), 6),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let long: Vec<Vec<u32>> =
            paths.iter().map(|path| path.iter().map(|id| id % 4 * 40 + 30 + id).collect()).collect();
        run(&long, steps)?;
    }

    /// Whatever an engine sends, nothing panics, and clearing leaves nothing.
    #[test]
    fn anything_is_survived(
        events in prop::collection::vec((0u32..3, wild()), 0..60)
    ) {
        let mut index = Index::new(Limits { blocks: 40, ghosts: 5, lost: 9 });
        let mut told = Told::default();
        for (rank, event) in &events {
            index.apply(*rank, event, &made_up());
            told.take(&mut index);
            prop_assert!(index.nodes() <= 40);
        }
        for rank in 0..3 {
            index.clear_rank(rank);
        }
        told.take(&mut index);
        prop_assert_eq!((told.device.len(), told.any.len(), index.nodes()), (0, 0, 0));
    }
}

fn wild() -> impl Strategy<Value = Event> {
    use crate::kv_events::event::GroupKind;
    let medium = prop_oneof![Just(Medium::Device), Just(Medium::Lower)];
    let kind = prop_oneof![Just(GroupKind::Full), Just(GroupKind::Other), Just(GroupKind::Unsaid)];
    let hashes = prop::collection::vec(0u64..20, 0..5);
    let tokens = (prop::collection::vec(0u32..210, 0..20), any::<bool>(), 0u32..5);
    let key = prop_oneof![Just(ExtraKey::Opaque), Just(ExtraKey::Text("a".into()))];
    let extra_keys = prop::collection::vec(prop::collection::vec(key, 0..2), 0..4);
    let adapter = prop::option::weighted(0.2, Just("a".to_owned()));
    let head = (hashes.clone(), prop::option::of(0u64..20), adapter, extra_keys);
    let stored = (head, tokens, medium.clone(), 0u32..3, kind).prop_map(
        |(
            (hashes, parent, adapter, extra_keys),
            (mut tokens, fitting, block_size),
            medium,
            group,
            kind,
        )| {
            if fitting {
                tokens.resize(hashes.len() * block_size as usize, 5);
            }
            Event::Stored(Stored {
                hashes,
                parent,
                tokens,
                block_size,
                medium,
                adapter,
                extra_keys,
                group,
                kind,
            })
        },
    );
    let removed = (hashes, medium, 0u32..3)
        .prop_map(|(hashes, medium, group)| Event::Removed(Removed { hashes, medium, group }));
    prop_oneof![8 => stored, 5 => removed, 1 => Just(Event::Cleared)]
}
