//! Stores, removals, tiers, scopes, groups, limits.

use super::*;
use crate::kv_events::event::GroupKind;

/// Tokens of 21 to 40 bytes.
fn ids(count: u32, seed: u32) -> Vec<u32> {
    (0..count).map(|n| 20 + (n * 7 + seed * 3) % 20 + 40 * ((n + seed) % 4)).collect()
}

fn index_with(events: &[Event]) -> (Index, Told) {
    let mut index = Index::new(Limits::default());
    let mut told = Told::default();
    for event in events {
        index.apply(0, event, &made_up());
        told.take(&mut index);
    }
    (index, told)
}

fn store(hashes: &[u64], parent: Option<u64>, tokens: &[u32], size: u32) -> Event {
    Event::Stored(stored(hashes, parent, tokens, size))
}

#[test]
fn whole_byte_blocks_are_told_with_the_tokens_before_their_end() {
    let ids = ids(16, 0);
    let (index, told) = index_with(&[store(&[1, 2, 3, 4], None, &ids, 4)]);
    let chain = chain(&scope("m"), &MADE_UP, &ids);
    assert_eq!(told.hashes(), sorted(chain.clone()));
    assert!(chain.len() > 2, "the case shows nothing");
    for (position, hash) in chain.iter().enumerate() {
        let end = (position + 1) * BLOCK_BYTES;
        let whole = (0..=ids.len()).rev().find(|n| bytes_of(&MADE_UP, &ids[..*n]).len() <= end);
        assert_eq!(told.device[hash] as usize, whole.unwrap());
    }
    assert_eq!((index.blocks(), index.byte_blocks()), (4, chain.len()));
    assert!(told.any.is_empty() && !index.has_lower_tier());
}

#[test]
fn one_event_or_several_make_no_difference() {
    let ids = ids(32, 5);
    let (_, whole) = index_with(&[store(&[1, 2, 3, 4, 5, 6, 7, 8], None, &ids, 4)]);
    let (_, parts) = index_with(&[
        store(&[1, 2], None, &ids[..8], 4),
        store(&[3, 4, 5], Some(2), &ids[8..20], 4),
        store(&[6, 7, 8], Some(5), &ids[20..], 4),
    ]);
    assert_eq!(whole.device, parts.device);
}

#[test]
fn the_tail_that_fills_no_byte_block_is_not_told_until_it_does() {
    let ids = [39; 8];
    let (mut index, mut told) = index_with(&[store(&[1, 2], None, &ids[..6], 3)]);
    // 240 bytes.
    assert_eq!(told.device.len(), 1);
    index.apply(0, &store(&[3, 4], Some(2), &[0, 0, 0, 39], 2), &made_up());
    told.take(&mut index);
    assert_eq!(told.device.len(), 2);
}

#[test]
fn copies_are_counted() {
    let ids = ids(8, 1);
    let one = store(&[1, 2], None, &ids, 4);
    let (mut index, mut told) = index_with(&[one.clone(), one.clone(), one]);
    let all = told.hashes();
    for _ in 0..2 {
        index.apply(0, &removed(&[2, 1]), &made_up());
        assert!(told.take(&mut index).is_empty());
    }
    index.apply(0, &removed(&[2, 1]), &made_up());
    assert_eq!(sorted(told.take(&mut index).device.removed), all);
    assert_eq!(index.blocks(), 0);
    index.apply(0, &removed(&[1]), &made_up());
    assert_eq!(index.counters().unknown_removals, 1);
}

#[test]
fn a_batch_tells_only_what_it_changed_in_the_end() {
    let ids = ids(8, 1);
    let event = store(&[1, 2], None, &ids, 4);
    let (mut index, mut told) = index_with(std::slice::from_ref(&event));
    index.apply(0, &removed(&[2, 1]), &made_up());
    index.apply(0, &event, &made_up());
    assert!(told.take(&mut index).is_empty());
}

#[test]
fn a_parent_that_goes_takes_the_byte_blocks_that_begin_in_it_and_brings_them_back() {
    let ids = vec![39; 12];
    // Blocks of 80 bytes: the byte blocks end in 2, 4, 5.
    let first = store(&[1, 2, 3, 4, 5, 6], None, &ids, 2);
    let (mut index, mut told) = index_with(&[first]);
    let chain = chain(&scope("m"), &MADE_UP, &ids);
    assert_eq!(chain.len(), 3);
    index.apply(0, &removed(&[3]), &made_up());
    // Block 3 lies in the second byte block only: 160 to 240 of 128 to 256.
    assert_eq!(told.take(&mut index).device.removed, chain[1..2]);
    index.apply(0, &removed(&[4]), &made_up());
    // The third byte block begins in block 4, at 256.
    assert_eq!(told.take(&mut index).device.removed, chain[2..]);
    index.apply(0, &store(&[3], Some(2), &ids[4..6], 2), &made_up());
    assert!(told.take(&mut index).is_empty());
    index.apply(0, &store(&[4], Some(3), &ids[6..8], 2), &made_up());
    assert_eq!(told.take(&mut index).device.stored.len(), 2);
    assert_eq!(told.hashes(), sorted(chain));
}

#[test]
fn chains_with_the_same_bytes_hold_a_byte_block_together() {
    // The same bytes in other tokens, as two engine chains.
    let table = TokenBytes::new(&[b"a".repeat(64), b"a".repeat(128), b"b".repeat(64)]);
    let model = ModelContext { tokens: &table, ..made_up() };
    let mut index = Index::default();
    let mut told = Told::default();
    index.apply(0, &store(&[1, 2], None, &[0, 0, 0, 0], 2), &model);
    index.apply(0, &store(&[8, 9], None, &[1, 1, 2, 2], 2), &model);
    told.take(&mut index);
    assert_eq!(told.device.len(), 3);
    index.apply(0, &removed(&[2, 1]), &model);
    assert!(told.take(&mut index).is_empty());
    index.apply(0, &removed(&[9, 8]), &model);
    assert_eq!(told.take(&mut index).device.removed.len(), 3);
}

#[test]
fn orphans_are_counted_and_dropped() {
    let ids = ids(8, 1);
    let (index, told) = index_with(&[store(&[2, 3], Some(1), &ids, 4)]);
    assert_eq!((told.device.len(), index.blocks(), index.counters().orphans), (0, 0, 2));
}

#[test]
fn what_does_not_fit_together_is_counted_and_ignored() {
    let ids = ids(8, 1);
    for event in [
        store(&[1, 2], None, &ids[..7], 4),
        store(&[1, 2, 3], None, &ids, 4),
        store(&[1], None, &ids, 0),
        store(&[], None, &ids, 4),
    ] {
        let (index, told) = index_with(std::slice::from_ref(&event));
        assert_eq!((told.device.len(), index.counters().malformed), (0, 1), "{event:?}");
    }
}

#[test]
fn an_id_without_bytes_ends_the_chain_and_its_children_are_no_orphans() {
    let mut ids = ids(24, 2);
    let whole = bytes_of(&MADE_UP, &ids[..9]).len() / BLOCK_BYTES;
    let chain = chain(&scope("m"), &MADE_UP, &ids[..9]);
    ids[9] = 200;
    let events =
        [store(&[1, 2, 3], None, &ids[..12], 4), store(&[4, 5, 6], Some(3), &ids[12..], 4)];
    let (mut index, mut told) = index_with(&events);
    assert_eq!(told.hashes(), sorted(chain));
    assert!(whole > 0);
    let counters = *index.counters();
    assert_eq!((counters.unknown_ids, counters.orphans, index.blocks()), (1, 0, 6));
    index.apply(0, &removed(&[6, 5, 4, 3, 2, 1]), &made_up());
    told.take(&mut index);
    assert_eq!((told.device.len(), index.blocks(), index.counters().removed), (0, 0, 6));
}

#[test]
fn adapters_salts_and_models_are_apart() {
    let ids = ids(8, 1);
    let text = |text: &str| ExtraKey::Text(text.into());
    let with = |adapter: Option<&str>, keys: Vec<Vec<ExtraKey>>| Stored {
        adapter: adapter.map(str::to_owned),
        extra_keys: keys,
        ..stored(&[1, 2], None, &ids, 4)
    };
    let a = || text("a");
    let salted = ChainScope { cache_salt: Some("s"), ..scope("m") };
    let both = ChainScope { cache_salt: Some("s"), ..scope("a") };
    let twice = ChainScope { cache_salt: Some("a"), ..scope("a") };
    let cases = [
        (with(None, vec![]), Some(scope("m"))),
        (with(None, vec![vec![], vec![]]), Some(scope("m"))),
        (with(Some("a"), vec![]), Some(scope("a"))),
        (with(Some("a"), vec![vec![a()], vec![a()]]), Some(scope("a"))),
        (with(None, vec![vec![text("s")], vec![]]), Some(salted)),
        (with(Some("a"), vec![vec![a(), text("s")], vec![a()]]), Some(both)),
        (with(Some("a"), vec![vec![a(), a()], vec![a()]]), Some(twice)),
        (with(None, vec![vec![ExtraKey::Opaque], vec![]]), None),
        (with(None, vec![vec![text("s"), text("t")], vec![]]), None),
        (with(None, vec![vec![text("s"), ExtraKey::Opaque], vec![]]), None),
    ];
    for (event, scope) in cases {
        let shown = format!("{event:?}");
        let (_, told) = index_with(&[Event::Stored(event)]);
        let expected = scope.map(|scope| chain(&scope, &MADE_UP, &ids)).unwrap_or_default();
        assert_eq!(told.hashes(), sorted(expected), "{shown}");
    }
}

#[test]
fn something_over_a_later_block_ends_the_chain_there() {
    let ids = ids(16, 1);
    let keys = vec![vec![], vec![ExtraKey::Opaque], vec![], vec![]];
    let event = Stored { extra_keys: keys, ..stored(&[1, 2, 3, 4], None, &ids, 4) };
    let (index, told) = index_with(&[Event::Stored(event)]);
    assert_eq!(told.hashes(), sorted(chain(&scope("m"), &MADE_UP, &ids[..4])));
    assert_eq!((index.counters().opaque_keys, index.blocks()), (1, 4));
}

#[test]
fn only_one_group_of_whole_prefixes_is_followed() {
    let ids = ids(8, 1);
    let group = |group, kind, hashes: &[u64]| {
        Event::Stored(Stored { group, kind, ..stored(hashes, None, &ids, 4) })
    };
    let window = Event::Stored(Stored {
        group: 0,
        kind: GroupKind::Other,
        hashes: vec![2],
        ..stored(&[], None, &ids, 4)
    });
    let events = [
        window,
        group(3, GroupKind::Full, &[1, 2]),
        group(4, GroupKind::Full, &[1, 2]),
        group(0, GroupKind::Unsaid, &[1, 2]),
    ];
    let (mut index, mut told) = index_with(&events);
    assert_eq!((index.blocks(), index.counters().other_groups), (2, 5));
    let remove =
        |group| Event::Removed(Removed { hashes: vec![1, 2], group, ..Removed::default() });
    for other in [0, 4, 9] {
        index.apply(0, &remove(other), &made_up());
        assert!(told.take(&mut index).is_empty());
    }
    index.apply(0, &remove(3), &made_up());
    told.take(&mut index);
    assert_eq!((told.device.len(), index.counters().unknown_removals), (0, 0));
}

#[test]
fn slower_tiers_are_told_apart_and_only_once_there_are_any() {
    let ids = ids(8, 1);
    let lower = |event: Stored| Event::Stored(Stored { medium: Medium::Lower, ..event });
    let gone =
        |medium| Event::Removed(Removed { hashes: vec![2, 1], medium, ..Removed::default() });
    let (mut index, mut told) = index_with(&[store(&[1, 2], None, &ids, 4)]);
    let all = told.hashes();
    assert!(told.any.is_empty());
    // An offload connector names the blocks, without their tokens.
    index.apply(0, &lower(stored(&[1, 2, 3], None, &[], 4)), &made_up());
    told.take(&mut index);
    assert_eq!((told.any.len(), index.counters().unknown_copies), (all.len(), 1));
    index.apply(0, &gone(Medium::Device), &made_up());
    told.take(&mut index);
    assert_eq!((told.device.len(), told.any.len()), (0, all.len()));
    index.apply(0, &gone(Medium::Lower), &made_up());
    told.take(&mut index);
    assert_eq!((told.any.len(), index.blocks()), (0, 0));
    index.apply(0, &lower(stored(&[1, 2], None, &ids, 4)), &made_up());
    told.take(&mut index);
    assert_eq!((told.device.len(), told.any.len()), (0, all.len()));
    assert!(index.has_lower_tier());
}

#[test]
fn clearing_voids_everything_of_that_rank() {
    let (a, b) = (ids(8, 1), ids(8, 2));
    let mut index = Index::default();
    let mut told = Told::default();
    index.apply(0, &store(&[1, 2], None, &a, 4), &made_up());
    told.take(&mut index);
    index.apply(0, &Event::Cleared, &made_up());
    let changes = told.take(&mut index);
    assert!(changes.cleared && changes.device.is_empty());
    assert_eq!((index.blocks(), index.byte_blocks()), (0, 0));
    // Cleared and stored again in one batch: it holds what it stored after.
    index.apply(0, &store(&[1, 2], None, &a, 4), &made_up());
    index.apply(0, &Event::Cleared, &made_up());
    index.apply(0, &store(&[8, 9], None, &a[..4], 2), &made_up());
    told.take(&mut index);
    assert_eq!(told.hashes(), sorted(chain(&scope("m"), &MADE_UP, &a[..4])));
    // The same names and bytes on another rank, and other ones.
    index.apply(7, &store(&[1, 2], None, &a, 4), &made_up());
    index.apply(7, &store(&[3, 4], None, &b, 4), &made_up());
    index.apply(0, &store(&[5, 6], None, &b, 4), &made_up());
    index.clear_rank(7);
    told.take(&mut index);
    let mut left = chain(&scope("m"), &MADE_UP, &a[..4]);
    left.extend(chain(&scope("m"), &MADE_UP, &b));
    assert_eq!(told.hashes(), sorted(left));
}

/// A restarted engine may have its full attention in another group.
#[test]
fn the_group_followed_is_the_engines() {
    let a = ids(8, 1);
    let in_group = |group| {
        let Event::Stored(stored) = store(&[1, 2], None, &a, 4) else { unreachable!() };
        Event::Stored(Stored { group, kind: GroupKind::Full, ..stored })
    };
    let mut index = Index::new(Limits::default());
    index.apply(0, &in_group(0), &made_up());
    index.apply(0, &in_group(3), &made_up());
    assert_eq!((index.blocks(), index.counters().other_groups), (2, 2));
    index.clear_rank(0);
    index.apply(0, &in_group(3), &made_up());
    assert_eq!((index.blocks(), index.counters().other_groups), (2, 2));
}

#[test]
fn limits_hold() {
    let ids = ids(40, 1);
    let names: Vec<u64> = (1..=10).collect();
    let mut index = Index::new(Limits { blocks: 6, ghosts: 2, lost: 9 });
    let mut told = Told::default();
    index.apply(0, &store(&names, None, &ids, 4), &made_up());
    told.take(&mut index);
    assert_eq!((index.blocks(), index.counters().over_limit), (6, 4));
    assert_eq!(told.hashes(), sorted(chain(&scope("m"), &MADE_UP, &ids[..24])));
    // Two ghosts are kept; with the third, all that hangs on it is given up.
    index.apply(0, &removed(&[1, 2]), &made_up());
    assert_eq!(index.blocks(), 4);
    index.apply(0, &removed(&[4]), &made_up());
    assert_eq!((index.blocks(), index.counters().over_limit), (1, 6));
    index.apply(0, &removed(&[3]), &made_up());
    told.take(&mut index);
    assert_eq!((index.blocks(), told.device.len()), (0, 0));
}
