//! Cache events as bytes, against those of a real engine.

mod support;

use engine_sim::engine::EngineConfig;
use engine_sim::kv_events::KvEventsConfig;
use engine_sim::kv_events::batch::{Event, Stored};
use engine_sim::kv_events::encoding::{Encoding, Hashes, encode};
use rmpv::Value;
use serde_json::Value as Json;
use support::events::{Subscriber, decode, field, normalised};
use support::{Sim, config, send};

const CAPTURED: &str = include_str!("fixtures/kv_events.jsonl");

struct Captured {
    name: String,
    version: String,
    request: Json,
    headers: Vec<(String, String)>,
    topic: String,
    payload: Vec<u8>,
}

fn captured() -> Vec<Captured> {
    let unhex = |hex: &Json| -> Vec<u8> {
        let hex = hex.as_str().unwrap();
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    };
    CAPTURED
        .lines()
        .map(|line| {
            let case: Json = serde_json::from_str(line).unwrap();
            let headers = case["headers"].as_object().into_iter().flatten();
            Captured {
                name: case["name"].as_str().unwrap().to_owned(),
                version: case["vllm"].as_str().unwrap().to_owned(),
                request: case["request"].clone(),
                headers: headers
                    .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
                    .collect(),
                topic: String::from_utf8(unhex(&case["frames_hex"][0])).unwrap(),
                payload: unhex(&case["frames_hex"][2]),
            }
        })
        .collect()
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

/// The simulator's own event that means the same as the engine's.
fn event(value: &Value) -> Event {
    let array = value.as_array();
    // Arrays have the fields of maps, in this order.
    let order = [
        "type",
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
    ];
    let get = |name: &str| match array {
        Some(fields) => &fields[order.iter().position(|known| *known == name).unwrap()],
        None => field(value, name),
    };
    match get("type").as_str().unwrap() {
        "AllBlocksCleared" => Event::Cleared,
        "BlockRemoved" => Event::Removed(numbers(get("block_hashes"))[0]),
        _ => Event::Stored(Stored {
            hashes: numbers(get("block_hashes")),
            parent: get("parent_block_hash").as_u64(),
            tokens: numbers(get("token_ids")).iter().map(|&id| id as u32).collect(),
            block_size: get("block_size").as_u64().unwrap() as usize,
            adapter: get("lora_name")
                .as_str()
                .map(|name| (get("lora_id").as_u64().unwrap() as usize, name.to_owned())),
            cache_salt: (array.is_none() && get("lora_name").is_nil())
                .then(|| get("extra_keys")[0][0].as_str().map(str::to_owned))
                .flatten(),
            session: if array.is_none() {
                get("session_id").as_str().map(str::to_owned)
            } else {
                None
            },
        }),
    }
}

#[test]
fn what_an_engine_says_is_spelled_byte_for_byte_as_it_did() {
    let mut kinds = 0;
    for case in captured() {
        let value = decode(&case.payload);
        let events: Vec<Event> = value[1].as_array().unwrap().iter().map(event).collect();
        let encoding = if case.version == "0.16.0" { Encoding::Array } else { Encoding::Map };
        if case.version == "0.16.0" && case.name == "removed" {
            // That one names two blocks; this engine, as the real one, evicts them one by one.
            let ours = decode(&encode(0.0, &events, encoding, Hashes::Int));
            assert_eq!(
                ours[1][0],
                Value::Array(vec![
                    "BlockRemoved".into(),
                    Value::Array(vec![1.into()]),
                    "GPU".into()
                ])
            );
            continue;
        }
        kinds += events.len();
        let ours = encode(value[0].as_f64().unwrap(), &events, encoding, Hashes::Int);
        assert_eq!(ours, case.payload, "{}: {} is not {}", case.name, decode(&ours), value);
    }
    assert!(kinds > 10, "fixtures hold more than {kinds} events");
}

#[test]
fn hashes_as_bytes_keep_their_low_64_bits() {
    let events = [
        Event::Stored(Stored {
            hashes: vec![u64::MAX, 7],
            parent: Some(7),
            tokens: vec![1, 2],
            block_size: 1,
            ..Stored::default()
        }),
        Event::Removed(7),
    ];
    let value = decode(&encode(0.0, &events, Encoding::Map, Hashes::Bytes));
    let (stored, removed) = (&value[1][0], &value[1][1]);
    let bytes = |value: &Value| value.as_slice().unwrap().to_vec();
    let seven = bytes(&field(stored, "block_hashes")[1]);
    assert_eq!((seven.len(), &seven[24..]), (32, &7u64.to_be_bytes()[..]));
    assert_eq!(bytes(&field(stored, "block_hashes")[0])[24..], [0xff; 8]);
    assert_eq!(bytes(field(stored, "parent_block_hash")), seven);
    assert_eq!(bytes(&field(removed, "block_hashes")[0]), seven);
}

/// The captured engine's template puts this message where none is sent; the simulator's does not.
fn with_system_message(mut request: Json) -> Json {
    let messages = request["messages"].as_array_mut().unwrap();
    if messages[0]["role"] != "system" {
        let text = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
        messages.insert(0, serde_json::json!({"role": "system", "content": text}));
    }
    request
}

#[tokio::test]
async fn the_same_requests_give_the_real_engines_frames() {
    let mut config = config();
    config.engine = EngineConfig { block_size: 32, num_blocks: 160, ..EngineConfig::default() };
    config.kv_events = Some(KvEventsConfig::default());
    let sim = Sim::start(config, 1).await;
    let mut events = Subscriber::start(&sim, 0).await;
    let mut compared = Vec::new();
    for case in captured().into_iter().filter(|case| case.request.is_object()) {
        let headers: Vec<_> = case
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .chain([("content-type", "application/json")])
            .collect();
        let body = with_system_message(case.request).to_string();
        let reply = send(sim.addr(0), "POST", "/v1/chat/completions", &headers, body.as_bytes());
        assert_eq!(reply.await.unwrap().status, 200);
        // The prompt's blocks; its answers are another model's.
        let ours = events.next().await;
        let theirs = decode(&case.payload);
        assert_eq!(normalised(&ours.payload), normalised(&theirs), "{}", case.name);
        assert_eq!(ours.topic, case.topic.replace("127.0.0.1:8000", &sim.addr(0).to_string()));
        compared.push(case.name);
        let made = sim.state(0).await["kv_events"]["batches"].as_u64().unwrap();
        for _ in ours.seq + 1..made {
            events.next().await;
        }
    }
    assert_eq!(
        compared,
        ["chat_first", "chat_cache_salt", "chat_session_id_header", "chat_lora_a"]
    );
}
