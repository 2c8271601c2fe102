//! Cache events over the wire: what is published when, replay, and faults on command.

mod support;

use engine_sim::engine::EngineConfig;
use engine_sim::kv_events::KvEventsConfig;
use engine_sim::kv_events::encoding::Encoding;
use engine_sim::replica::SimConfig;
use serde_json::json;
use support::events::{Subscriber, field, replay, replay_frames, tokens};
use support::{Sim, chat, config, get, long_text, post};

fn publishing(engine: EngineConfig) -> SimConfig {
    SimConfig { engine, kv_events: Some(KvEventsConfig::default()), ..config() }
}

fn small() -> EngineConfig {
    EngineConfig { num_blocks: 61, ..EngineConfig::default() }
}

async fn ask(sim: &Sim, text: &str, max_tokens: usize) -> serde_json::Value {
    let body = chat(text, json!({"max_tokens": max_tokens, "return_token_ids": true}));
    let reply = post(sim.addr(0), "/v1/chat/completions", &body).await.unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[tokio::test]
async fn prompt_and_answer_are_told_block_by_block() {
    let sim = Sim::start(publishing(EngineConfig { prefill_chunk: 64, ..small() }), 1).await;
    let mut events = Subscriber::start(&sim, 0).await;
    let reply = ask(&sim, &long_text(80), 40).await;
    let ids = |value: &serde_json::Value| -> Vec<u64> {
        value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
    };
    let mut all = ids(&reply["prompt_token_ids"]);
    let prompt = all.len();
    all.extend(ids(&reply["choices"][0]["token_ids"]));
    let (mut told, mut parent, mut kinds) = (Vec::new(), rmpv::Value::Nil, Vec::new());
    // The last token is never computed.
    let blocks = (all.len() - 1) / 16;
    while told.len() < blocks * 16 {
        let batch = events.next().await;
        for event in batch.events() {
            assert_eq!(field(event, "parent_block_hash"), &parent);
            parent = field(event, "block_hashes").as_array().unwrap().last().unwrap().clone();
            told.extend(tokens(event));
        }
        kinds.extend(batch.kinds());
    }
    assert_eq!(told, all[..blocks * 16]);
    let in_prompt = prompt / 16 - 4;
    let expected: Vec<_> = ["stored:4".to_owned(), format!("stored:{in_prompt}")]
        .into_iter()
        .chain((prompt / 16..blocks).map(|_| "stored:1".to_owned()))
        .collect();
    assert_eq!(kinds, expected, "chunks, then blocks of the answer one by one");
}

#[tokio::test]
async fn evictions_come_before_the_blocks_that_took_their_place() {
    let sim = Sim::start(publishing(small()), 1).await;
    let mut events = Subscriber::start(&sim, 0).await;
    let mut evicted = Vec::new();
    for round in 0..4 {
        ask(&sim, &format!("{round} {}", long_text(500)), 1).await;
        let batch = events.next().await;
        let kinds = batch.kinds();
        let (last, before) = kinds.split_last().unwrap();
        assert!(last.starts_with("stored:"), "{kinds:?}");
        assert!(before.iter().all(|kind| kind == "removed"), "{kinds:?}");
        evicted.push(before.len());
    }
    assert!(evicted[0] == 0 && evicted[3] > 20, "{evicted:?}");
}

#[tokio::test]
async fn a_cleared_cache_is_told_with_the_next_step() {
    let sim = Sim::start(publishing(small()), 1).await;
    ask(&sim, &long_text(40), 1).await;
    assert_eq!(
        post(sim.addr(0), "/reset_prefix_cache", &json!({})).await.unwrap().json()["success"],
        true
    );
    assert_eq!(replay(&sim, 0, 0).await.len(), 1);
    ask(&sim, &long_text(40), 1).await;
    let batches = replay(&sim, 0, 1).await;
    assert_eq!(
        batches.iter().map(|batch| batch.kinds()).collect::<Vec<_>>(),
        [["cleared", "stored:3"]]
    );
}

#[tokio::test]
async fn a_replay_answers_from_its_buffer() {
    let mut config = publishing(small());
    config.kv_events = Some(KvEventsConfig { buffer_steps: 3, ..KvEventsConfig::default() });
    let sim = Sim::start(config, 1).await;
    for round in 0..5 {
        ask(&sim, &format!("{round} {}", long_text(40)), 1).await;
    }
    let seqs = async |start| -> Vec<u64> {
        replay(&sim, 0, start).await.iter().map(|batch| batch.seq).collect()
    };
    assert_eq!(seqs(0).await, [2, 3, 4], "the buffer begins later than asked");
    assert_eq!(seqs(4).await, [4]);
    assert_eq!(seqs(1_000_000).await, [] as [u64; 0]);
}

#[tokio::test]
async fn as_old_an_engine_as_wished() {
    let mut config = publishing(small());
    config.kv_events =
        Some(KvEventsConfig { encoding: Encoding::Array, ..KvEventsConfig::default() });
    let sim = Sim::start(config, 1).await;
    ask(&sim, &long_text(40), 1).await;
    let frames = replay_frames(&sim, 0, 0).await;
    assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3], "no topic");
    let payload = support::events::decode(&frames[0][2]);
    assert_eq!(payload[1][0][0].as_str(), Some("BlockStored"));
    assert_eq!(frames[1][1][..], [0xff; 8]);
}

#[tokio::test]
async fn dropped_batches_can_be_replayed_and_lost_ones_cannot() {
    let sim = Sim::start(publishing(small()), 1).await;
    let mut events = Subscriber::start(&sim, 0).await;
    let first = sim.state(0).await["kv_events"]["batches"].as_u64().unwrap();
    for fault in ["events_drop", "events_gap"] {
        sim.fault(json!({"replica": 0, "fault": fault, "count": 2})).await;
        for round in 0..3 {
            ask(&sim, &format!("{fault} {round} {}", long_text(40)), 1).await;
        }
    }
    assert_eq!([events.next().await.seq, events.next().await.seq], [first + 2, first + 5]);
    let replayed: Vec<u64> = replay(&sim, 0, first).await.iter().map(|batch| batch.seq).collect();
    assert_eq!(replayed, [first, first + 1, first + 2, first + 5]);
}

#[tokio::test]
async fn a_restart_begins_at_0_on_the_same_ports() {
    let sim = Sim::start(publishing(small()), 1).await;
    for fault in ["restart", "die", "crash_midstream", "drain"] {
        ask(&sim, &long_text(40), 1).await;
        let before = sim.state(0).await["kv_events"].clone();
        sim.fault(json!({"replica": 0, "fault": fault})).await;
        if fault != "restart" {
            sim.until(0, |state| state["accepts"] == false).await;
            let port = before["port"].as_u64().unwrap();
            let open = async || tokio::net::TcpStream::connect(("127.0.0.1", port as u16)).await;
            while open().await.is_ok() {}
            sim.fault(json!({"replica": 0, "fault": "none"})).await;
        }
        let after = sim.state(0).await["kv_events"].clone();
        assert_eq!(
            (&after["port"], &after["replay_port"]),
            (&before["port"], &before["replay_port"])
        );
        assert_eq!((&before["batches"], &after["batches"]), (&json!(1), &json!(0)), "{fault}");
        let mut events = Subscriber::start(&sim, 0).await;
        ask(&sim, "anew", 40).await;
        assert!(events.next().await.seq >= 1);
        assert_eq!(replay(&sim, 0, 0).await[0].seq, 0);
        sim.fault(json!({"replica": 0, "fault": "restart"})).await;
    }
}

#[tokio::test]
async fn a_new_replica_at_an_old_address_has_its_ports_and_none_of_its_past() {
    let sim = Sim::start(publishing(small()), 2).await;
    ask(&sim, &long_text(40), 1).await;
    let before = sim.state(0).await;
    let gone = support::send(sim.admin, "DELETE", "/replicas/0", &[], b"").await.unwrap();
    assert_eq!(gone.status, 200);
    let reply = sim.command("/replicas", &json!({"port": before["port"]})).await;
    assert_eq!(reply["endpoint"], before["endpoint"]);
    let after = sim.state(2).await;
    assert_eq!(after["kv_events"]["port"], before["kv_events"]["port"]);
    assert_eq!((&after["kv_events"]["batches"], &after["cached_blocks"]), (&json!(0), &json!(0)));
    assert_eq!(replay(&sim, 2, 0).await, []);
}

#[tokio::test]
async fn a_reset_is_told_at_once() {
    let sim = Sim::start(publishing(small()), 1).await;
    ask(&sim, &long_text(40), 1).await;
    sim.command("/reset", &json!({})).await;
    let told = replay(&sim, 0, 1).await;
    assert_eq!((told[0].seq, told[0].kinds()), (1, vec!["cleared".to_owned()]));
}

#[tokio::test]
async fn events_and_replay_can_go_for_good() {
    let sim = Sim::start(publishing(small()), 1).await;
    let ports = sim.state(0).await["kv_events"].clone();
    let open = async |name: &str| {
        let port = ports[name].as_u64().unwrap() as u16;
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
    };
    sim.fault(json!({"replica": 0, "fault": "replay_off"})).await;
    assert_eq!((open("port").await, open("replay_port").await), (true, false));
    sim.fault(json!({"replica": 0, "fault": "events_stop"})).await;
    assert_eq!((open("port").await, open("replay_port").await), (false, false));
    ask(&sim, &long_text(40), 1).await;
    let command = json!({"replica": 0, "fault": "events_drop"});
    let refused = post(sim.admin, "/faults", &command).await.unwrap();
    assert_eq!(refused.status, 400);
    sim.fault(json!({"replica": 0, "fault": "restart"})).await;
    assert_eq!((open("port").await, open("replay_port").await), (true, true));
}

#[tokio::test]
async fn a_silent_replay_answers_once_the_fault_is_lifted() {
    let sim = Sim::start(publishing(small()), 1).await;
    ask(&sim, &long_text(40), 1).await;
    sim.fault(json!({"replica": 0, "fault": "replay_silent"})).await;
    {
        let asked = replay(&sim, 0, 0);
        tokio::pin!(asked);
        // Requests served meanwhile show that time passes for the silent one.
        for _ in 0..20 {
            tokio::select! {
                biased;
                answer = &mut asked => panic!("{answer:?}"),
                reply = ask(&sim, "hello", 1) => assert!(reply["id"].is_string()),
            }
        }
    }
    sim.fault(json!({"replica": 0, "fault": "none"})).await;
    assert_eq!(replay(&sim, 0, 0).await.len(), 1);
}

#[tokio::test]
async fn late_events_come_late_and_in_order() {
    let mut config = publishing(small());
    let delay = std::time::Duration::from_millis(300);
    config.kv_events = Some(KvEventsConfig { delay, ..KvEventsConfig::default() });
    let sim = Sim::start(config, 1).await;
    let asked = std::time::Instant::now();
    ask(&sim, &long_text(40), 1).await;
    while replay(&sim, 0, 0).await.is_empty() {}
    assert!(asked.elapsed() >= delay);
    assert_eq!(replay(&sim, 0, 0).await[0].seq, 0);
}

#[tokio::test]
async fn a_flood_keeps_its_rate_and_leaves_nothing() {
    let sim = Sim::start(publishing(small()), 1).await;
    let flood = json!({"replica": 0, "blocks_per_s": 20_000, "seconds": 0.2, "prompt_blocks": 8, "held_blocks": 100});
    let reply = sim.command("/flood", &flood).await;
    let (mut stored, mut removed) = (0, 0);
    let mut made = sim.state(0).await["kv_events"]["batches"].as_u64().unwrap();
    while made > 0 {
        let batches = replay(&sim, 0, 0).await;
        if batches.len() as u64 == made {
            for kind in batches.iter().flat_map(|batch| batch.kinds()) {
                match kind.as_str() {
                    "stored:8" => stored += 8,
                    "removed" => removed += 1,
                    other => panic!("{other}"),
                }
            }
            made = 0;
        }
    }
    assert_eq!((reply["blocks"].as_u64(), stored), (Some(removed), removed));
    assert!((1_000..=4_100).contains(&stored), "{stored}");
}

#[tokio::test]
async fn sources_are_listed_as_the_real_engine_lists_them() {
    let sim = Sim::start(publishing(small()), 1).await;
    let ports = sim.state(0).await["kv_events"].clone();
    let expected = json!({"0": {
        "enable_kv_cache_events": true, "publisher": "zmq", "endpoint": format!("tcp://*:{}", ports["port"]),
        "replay_endpoint": format!("tcp://*:{}", ports["replay_port"]), "buffer_steps": 10_000, "hwm": 100_000,
        "max_queue_size": 100_000, "topic": format!("kv@{}@tiny", sim.addr(0)),
    }});
    assert_eq!(get(sim.addr(0), "/kv_event_sources").await.unwrap().json(), expected);
}

#[tokio::test]
async fn records_tell_late_beliefs_from_wrong_ones() {
    let sim = Sim::start(publishing(small()), 1).await;
    let last = async || sim.state(0).await["requests"].as_array().unwrap().last().unwrap().clone();
    ask(&sim, &format!("a {}", long_text(500)), 1).await;
    assert_eq!(last().await["first_missing"], "not_held");
    ask(&sim, &format!("a {}", long_text(500)), 1).await;
    assert_eq!(last().await["first_missing"], json!(null), "all that can be hit is held");
    ask(&sim, &format!("b {}", long_text(800)), 1).await;
    ask(&sim, &format!("a {}", long_text(500)), 1).await;
    let record = last().await;
    assert!(record["first_missing"]["eviction_told"]["ms"].as_f64().unwrap() > 0.0, "{record}");
    assert!(
        record["cached_on_arrival"].as_u64().unwrap() < record["prompt_tokens"].as_u64().unwrap()
    );
    assert_eq!(record["cached_on_arrival"], record["cached_tokens"], "nothing waited");
}
