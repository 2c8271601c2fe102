use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Payloads of real engines and what Python's `msgspec` read in them.
const PAYLOADS: &str = include_str!("../../../tests/fixtures/kv_events/payloads.jsonl");

/// MessagePack of a JSON value; `{"__bytes__": hex}` stands for a byte string.
fn pack(value: &Value, out: &mut Vec<u8>) {
    let head = |out: &mut Vec<u8>, marker: u8, len: usize| {
        out.push(marker);
        out.extend(u32::try_from(len).unwrap().to_be_bytes());
    };
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(yes) => out.push(0xc2 + u8::from(*yes)),
        Value::Number(n) => {
            if let Some(n) = n.as_u64() {
                match u8::try_from(n) {
                    Ok(n @ 0..=127) => out.push(n),
                    _ => {
                        out.push(0xcf);
                        out.extend(n.to_be_bytes());
                    }
                }
            } else if let Some(n) = n.as_i64() {
                out.push(0xd3);
                out.extend(n.to_be_bytes());
            } else {
                out.push(0xcb);
                out.extend(n.as_f64().unwrap().to_be_bytes());
            }
        }
        Value::String(text) => {
            head(out, 0xdb, text.len());
            out.extend(text.as_bytes());
        }
        Value::Array(items) => {
            head(out, 0xdd, items.len());
            items.iter().for_each(|item| pack(item, out));
        }
        Value::Object(map) => {
            if let Some(hex) = map.get("__bytes__") {
                let bytes = unhex(hex.as_str().unwrap());
                head(out, 0xc6, bytes.len());
                out.extend(bytes);
                return;
            }
            head(out, 0xdf, map.len());
            for (key, item) in map {
                pack(&json!(key), out);
                pack(item, out);
            }
        }
    }
}

/// A payload, said in JSON.
pub(crate) fn packed(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    pack(value, &mut out);
    out
}

fn unhex(hex: &str) -> Vec<u8> {
    let digit = |i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn read(value: &Value) -> Batch {
    batch(&packed(value)).unwrap()
}

/// The one event of a batch that holds only `event`.
fn one(event: &Value) -> Event {
    let batch = read(&json!([1.5, [event], 0]));
    assert_eq!((batch.events.len(), batch.undecodable), (1, 0), "{event}");
    batch.events[0].clone()
}

fn stored() -> Stored {
    let tokens = vec![1, 2, 3, 4];
    Stored { hashes: vec![7, 9], tokens, block_size: 2, ..Stored::default() }
}

/// What an event of the fixtures must become, said in JSON's terms.
fn expected_hash(value: &Value) -> BlockHash {
    match value.get("__bytes__") {
        Some(hex) => {
            let bytes = unhex(hex.as_str().unwrap());
            u64::from_be_bytes(*bytes.last_chunk().unwrap())
        }
        None => value.as_u64().unwrap(),
    }
}

fn check(event: &Event, expected: &Value) {
    let names = [
        ["BlockStored", "BlockRemoved", ""].as_slice(),
        &["block_hashes", "block_hashes"],
        &["parent_block_hash", "medium"],
        &["token_ids"],
        &["block_size"],
        &["lora_id"],
        &["medium"],
        &["lora_name"],
    ];
    let removed = matches!(event, Event::Removed(_));
    let position = |key: &str| names.iter().position(|n| n.get(usize::from(removed)) == Some(&key));
    let field = |key: &str| match expected {
        Value::Array(items) => position(key).and_then(|i| items.get(i)).cloned(),
        map => map.get(key).cloned(),
    };
    let field = |key: &str| field(key).unwrap_or(Value::Null);
    let hashes = || -> Vec<_> {
        field("block_hashes").as_array().unwrap().iter().map(expected_hash).collect()
    };
    let medium = if field("medium") == "GPU" { Medium::Device } else { Medium::Lower };
    let group = u32::try_from(field("group_idx").as_u64().unwrap_or(0)).unwrap();
    match event {
        Event::Cleared => {
            let tag = expected.get("type").or(expected.get(0)).unwrap();
            assert_eq!(tag, "AllBlocksCleared");
        }
        Event::Removed(removed) => {
            assert_eq!(*removed, Removed { hashes: hashes(), medium, group });
        }
        Event::Stored(stored) => {
            let parent = field("parent_block_hash");
            let tokens: Vec<_> = field("token_ids")
                .as_array()
                .unwrap()
                .iter()
                .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
                .collect();
            let keys = field("extra_keys");
            let keys: Vec<Vec<_>> = keys
                .as_array()
                .into_iter()
                .flatten()
                .map(|keys| {
                    let keys = keys.as_array().into_iter().flatten();
                    keys.map(|key| ExtraKey::Text(key.as_str().unwrap().into())).collect()
                })
                .collect();
            let any = keys.iter().any(|keys| !keys.is_empty());
            let kind = match field("kv_cache_spec_kind").as_str() {
                None => GroupKind::Unsaid,
                Some("full_attention") => GroupKind::Full,
                Some(_) => GroupKind::Other,
            };
            let expected = Stored {
                hashes: hashes(),
                parent: (!parent.is_null()).then(|| expected_hash(&parent)),
                tokens,
                block_size: u32::try_from(field("block_size").as_u64().unwrap()).unwrap(),
                medium,
                adapter: field("lora_name").as_str().map(str::to_owned),
                extra_keys: if any { keys } else { Vec::new() },
                group,
                kind,
            };
            assert_eq!(*stored, expected);
        }
    }
}

#[test]
fn payloads_of_real_engines_say_what_their_own_decoder_says() {
    let mut kinds = std::collections::BTreeSet::new();
    for line in PAYLOADS.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let batch = batch(&unhex(line["payload_hex"].as_str().unwrap())).unwrap();
        let decoded = &line["decoded"];
        // JSON's reader may be off by the last bit.
        assert!((batch.at - decoded[0].as_f64().unwrap()).abs() < 1e-5);
        assert_eq!(batch.undecodable, 0, "{}", line["origin"]);
        assert_eq!(batch.rank.map(u64::from), decoded[2].as_u64());
        let events = decoded[1].as_array().unwrap();
        assert_eq!(batch.events.len(), events.len(), "{}", line["origin"]);
        for (event, expected) in batch.events.iter().zip(events) {
            check(event, expected);
            kinds.insert(match event {
                Event::Stored(stored) => match stored.kind {
                    GroupKind::Unsaid => "stored",
                    GroupKind::Full => "stored, full",
                    GroupKind::Other => "stored, other group",
                },
                Event::Removed(_) => "removed",
                Event::Cleared => "cleared",
            });
        }
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

#[test]
fn both_shapes_of_events_may_be_mixed_and_have_more_or_fewer_fields() {
    let map = json!({"lookahead": [[1]], "block_size": 2, "token_ids": [1, 2, 3, 4],
        "parent_block_hash": null, "block_hashes": [7, 9], "zz": {"a": [1]}, "type": "BlockStored"});
    let short = json!(["BlockStored", [7, 9], null, [1, 2, 3, 4], 2]);
    let padded = json!(["BlockStored", [7, 9], null, [1, 2, 3, 4], 2, null, null, null, null]);
    let long = json!(["BlockStored", [7, 9], null, [1, 2, 3, 4], 2, 0, "gpu", "", [null, null], 0,
        null, 64, {"new": 1}]);
    let batch = read(&json!([1.5, [map, short, padded, long], 3, "more"]));
    assert_eq!(batch.events, vec![Event::Stored(stored()); 4]);
    assert_eq!((batch.rank, batch.undecodable), (Some(3), 0));
}

#[test]
fn times_and_ranks_come_in_several_forms() {
    let cleared = json!(["AllBlocksCleared"]);
    for (value, at, rank) in [
        (json!([7, [cleared]]), 7.0, None),
        (json!([7.5, [cleared], null]), 7.5, None),
        (json!([7.5, [cleared], 5]), 7.5, Some(5)),
        (json!([7.5, [cleared], -1]), 7.5, None),
        (json!([7.5, [cleared], 1u64 << 40]), 7.5, None),
        (json!([7.5, [], "0"]), 7.5, None),
    ] {
        let batch = read(&value);
        assert_eq!((batch.at, batch.rank, batch.undecodable), (at, rank, 0), "{value}");
    }
}

#[test]
fn hashes_of_every_width_are_their_low_64_bits() {
    let cases = [
        (json!(5), 5),
        (json!(17_080_687_294_271_316_042_u64), 17_080_687_294_271_316_042),
        (json!(-1), u64::MAX),
        (json!(i64::MIN), 1 << 63),
        (json!({"__bytes__": "ff"}), 0xff),
        (json!({"__bytes__": "0102030405060708"}), 0x0102_0304_0506_0708),
        (json!({"__bytes__": "ffffffffffffffff0102030405060708"}), 0x0102_0304_0506_0708),
        (json!({"__bytes__": format!("{}0000000000000009", "ab".repeat(24))}), 9),
    ];
    for (sent, hash) in &cases {
        let event = one(&json!(["BlockRemoved", [sent]]));
        let expected = Removed { hashes: vec![*hash], ..Removed::default() };
        assert_eq!(event, Event::Removed(expected), "{sent}");
    }
    let mixed: Vec<_> = cases.iter().map(|(sent, _)| sent).collect();
    let event = one(&json!(["BlockStored", mixed, {"__bytes__": "07"}, [1], 2]));
    let Event::Stored(stored) = event else { panic!("{event:?}") };
    assert_eq!(stored.hashes, cases.iter().map(|(_, hash)| *hash).collect::<Vec<_>>());
    assert_eq!(stored.parent, Some(7));
}

#[test]
fn media_kinds_and_extra_keys_are_told_apart() {
    let with = |key: &str, value: Value| {
        let mut event = json!({"type": "BlockStored", "block_hashes": [7, 9],
            "token_ids": [1, 2, 3, 4], "block_size": 2});
        event[key] = value;
        let Event::Stored(stored) = one(&event) else { panic!() };
        stored
    };
    for (medium, expected) in [
        (json!(null), Medium::Device),
        (json!(""), Medium::Device),
        (json!("gpu"), Medium::Device),
        (json!("CPU"), Medium::Lower),
        (json!("STORAGE"), Medium::Lower),
    ] {
        assert_eq!(with("medium", medium).medium, expected);
    }
    for (kind, expected) in [
        ("full_attention", GroupKind::Full),
        ("mla_attention", GroupKind::Full),
        ("sink_full_attention", GroupKind::Full),
        ("sliding_window", GroupKind::Other),
        ("mamba", GroupKind::Other),
        ("", GroupKind::Unsaid),
    ] {
        assert_eq!(with("kv_cache_spec_kind", json!(kind)).kind, expected);
    }
    let text = |t: &str| ExtraKey::Text(t.into());
    let keys = json!([["salt", null, ["image", 3]], null, "plain", 5, [[["deep"]], {"k": 1}]]);
    let expected = vec![
        vec![text("salt"), ExtraKey::Opaque],
        vec![],
        vec![text("plain")],
        vec![ExtraKey::Opaque],
        vec![ExtraKey::Opaque, ExtraKey::Opaque],
    ];
    assert_eq!(with("extra_keys", keys).extra_keys, expected);
    assert_eq!(
        with("extra_keys", json!([null, ["x"], []])).extra_keys,
        [vec![], vec![text("x")], vec![]]
    );
    assert_eq!(with("extra_keys", json!([null, null])), stored());
    assert_eq!(with("lora_name", json!("sql")).adapter.as_deref(), Some("sql"));
}

#[test]
fn an_event_that_cannot_be_read_costs_only_itself() {
    let good = json!(["BlockRemoved", [1]]);
    let bad = [
        json!(["BlockMoved", [1]]),
        json!({"type": "BlockMoved", "to": [1]}),
        json!({"block_hashes": [1]}),
        json!(["BlockRemoved"]),
        json!(["BlockRemoved", null]),
        json!(["BlockRemoved", [1.5]]),
        json!(["BlockRemoved", ["1"]]),
        json!(["BlockRemoved", [{"__bytes__": ""}]]),
        json!(["BlockRemoved", [1], 5]),
        json!(["BlockStored", [1], null, [1, 2]]),
        json!(["BlockStored", [1], null, [1, [2]], 2]),
        json!(["BlockStored", [1], null, [], 0]),
        json!(["BlockStored", [1], null, [], -2]),
        json!([]),
        json!([[["BlockRemoved"]], [1]]),
        json!("BlockRemoved"),
        json!(null),
    ];
    for bad in &bad {
        let batch = read(&json!([1.5, [good, bad, good], 2]));
        assert_eq!((batch.events.len(), batch.undecodable), (2, 1), "{bad}");
        assert_eq!(batch.rank, Some(2), "{bad}");
    }
    let unusual = json!(["BlockStored", [1], null, [-1, 1u64 << 40, 3], 3]);
    let Event::Stored(stored) = one(&unusual) else { panic!() };
    assert_eq!(stored.tokens, [u32::MAX, u32::MAX, 3]);
}

#[test]
fn what_is_no_batch_is_refused_and_a_broken_frame_keeps_what_came_before() {
    for value in [json!(null), json!([]), json!([1.5]), json!(["x", []]), json!([1.5, 3])] {
        assert_eq!(batch(&packed(&value)), Err(Undecodable::NoBatch), "{value}");
    }
    assert_eq!(batch(&[]), Err(Undecodable::Malformed(Malformed::Truncated)));
    let removed = json!(["BlockRemoved", [1]]);
    let mut payload = packed(&json!([1.5, [removed, removed], 2]));
    payload.truncate(payload.len() - 3);
    let batch = batch(&payload).unwrap();
    assert_eq!((batch.events.len(), batch.undecodable, batch.rank), (1, 1, None));
}

/// Bytes that `batch` keeps on the heap, at least.
fn weight(batch: &Batch) -> usize {
    let events = batch.events.capacity() * size_of::<Event>();
    let inner = batch.events.iter().map(|event| match event {
        Event::Stored(s) => {
            let keys = s.extra_keys.iter().flatten().count() * size_of::<ExtraKey>();
            (s.hashes.capacity() * 8)
                + (s.tokens.capacity() * 4)
                + (s.extra_keys.capacity() * size_of::<Vec<ExtraKey>>())
                + keys
        }
        Event::Removed(r) => r.hashes.capacity() * 8,
        Event::Cleared => 0,
    });
    events + inner.sum::<usize>()
}

#[test]
fn lengths_that_are_not_there_take_no_memory() {
    for marker in [0xdd, 0xdf] {
        let mut payload = vec![0x92, 0x00, marker];
        payload.extend([0xff; 4]);
        assert!(batch(&payload).is_err() || batch(&payload).unwrap().events.capacity() == 0);
    }
    let mut payload = vec![0x92, 0x00, 0x91, 0x92, 0xac];
    payload.extend(b"BlockRemoved\xdd\xff\xff\xff\xff\x01");
    let batch = batch(&payload).unwrap();
    assert_eq!((batch.events.len(), batch.undecodable), (0, 1));
}

fn any_event() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<u64>().prop_map(|n| json!(n)),
        any::<i64>().prop_map(|n| json!(n)),
        "[a-zA-Z_]{0,12}".prop_map(|t| json!(t)),
        proptest::sample::select(vec!["BlockStored", "BlockRemoved", "type", "GPU"])
            .prop_map(|t| json!(t)),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        let keys = proptest::sample::select(vec![
            "type",
            "block_hashes",
            "parent_block_hash",
            "token_ids",
            "block_size",
            "extra_keys",
            "medium",
            "other",
        ]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(|items| json!(items)),
            proptest::collection::hash_map(keys, inner, 0..8).prop_map(|map| Value::Object(
                map.into_iter().map(|(k, v)| (k.into(), v)).collect()
            )),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(batch) = batch(&bytes) {
            prop_assert!(weight(&batch) <= bytes.len() * 64);
        }
    }

    #[test]
    fn real_payloads_with_flaws_are_read_or_refused(
        line in 0usize..40, at in any::<proptest::sample::Index>(), byte in any::<u8>(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let line = PAYLOADS.lines().cycle().nth(line).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let mut payload = unhex(line["payload_hex"].as_str().unwrap());
        let at = at.index(payload.len());
        payload[at] = byte;
        for payload in [&payload[..], &payload[..cut.index(payload.len())]] {
            if let Ok(batch) = batch(payload) {
                prop_assert!(weight(&batch) <= payload.len() * 64);
            }
        }
    }

    #[test]
    fn every_well_formed_event_is_kept_or_counted_and_never_moves_its_neighbours(event in any_event()) {
        let good = json!(["BlockRemoved", [1]]);
        let batch = read(&json!([1.5, [good, event, good], 2]));
        prop_assert_eq!(batch.rank, Some(2));
        let seen = batch.events.len() + usize::try_from(batch.undecodable).unwrap();
        prop_assert_eq!(seen, 3);
        prop_assert_eq!(batch.events.first(), batch.events.last());
    }
}
