//! KV events over real sockets, from a publisher to a reader of the stream.

use crate::engine::{Engine, good};
use crate::kv_publisher::Publisher;
use crate::reader::Reader;
use crate::run::{Agent, Folder, LIMIT, list_of};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use warmroute_shared_state::block::Tier;
use warmroute_shared_state::prefix::{ChainScope, chain};

const TOPIC: &str = "kv@pod@m";
/// Tokens, and bytes, of a block.
const BLOCK: usize = 64;

/// A model folder whose ids are bytes.
fn write_model(folder: &Folder) {
    let mut vocab = serde_json::Map::new();
    let mut extra = 0..;
    for byte in 0u8..=255 {
        // GPT-2's alphabet: printable bytes stand for themselves.
        let plain = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let code = if plain { u32::from(byte) } else { 256 + extra.next().unwrap() };
        vocab.insert(char::from_u32(code).unwrap().into(), json!(byte));
    }
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": false});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": []},
    });
    std::fs::create_dir(folder.path("model")).unwrap();
    std::fs::write(folder.path("model/tokenizer.json"), tokenizer.to_string()).unwrap();
}

/// An agent over one engine and its publisher.
struct Stand {
    folder: Folder,
    engine: Engine,
    publisher: Publisher,
    agent: Agent,
    reader: Reader,
    stream: u64,
}

impl Stand {
    /// The publisher's ports are told by configuration.
    async fn new() -> Self {
        let publisher = Publisher::start(TOPIC, 0, 0).await;
        let (live, replay) = (publisher.live_port, publisher.replay_port);
        let kv = format!("discover: false\nport: {live}\nreplayPort: {replay}\n");
        Self::with(publisher, Engine::up(good(10, 0)).await, &kv).await
    }

    async fn with(publisher: Publisher, engine: Engine, kv: &str) -> Self {
        let folder = Folder::new();
        write_model(&folder);
        let list = format!("{}{}", list_of(&[("a", &engine)]), documents(kv));
        let agent = Agent::over(&folder, &list).await;
        let mut reader = Reader::new(agent.address);
        reader.until("the model", |r| r.models.contains_key("m")).await;
        let stream = reader.models["m"].stream;
        let mut stand = Self { folder, engine, publisher, agent, reader, stream };
        stand.precise("a").await;
        stand
    }

    async fn precise(&mut self, name: &str) {
        let precise = |r: &Reader| r.get(name).is_some_and(|row| row.record.precise);
        self.reader.until("precise", precise).await;
    }

    /// Hashes of the prompts that consist of these letters, two blocks each.
    fn hashes(&self, letters: &str) -> BTreeSet<u64> {
        let scope = ChainScope { stream: self.stream, model: "m", adapter: None, cache_salt: None };
        letters.bytes().flat_map(|letter| chain(&scope, &[letter; 4 * BLOCK])).collect()
    }

    fn told(&self, name: &str) -> BTreeSet<u64> {
        let row = self.reader.get(name).expect("on the stream");
        assert!(row.blocks.keys().all(|(tier, _)| *tier == Tier::Device));
        row.blocks.keys().map(|(_, hash)| *hash).collect()
    }

    fn generation(&self) -> u64 {
        self.reader.get("a").unwrap().record.generation
    }

    /// Waits until the stream tells exactly the prompts of these letters; meanwhile no other than
    /// those of `before`, or of these, is told.
    async fn until(&mut self, before: &str, letters: &str) {
        let (wanted, allowed) = (self.hashes(letters), self.hashes(&format!("{before}{letters}")));
        let waiting = tokio::time::timeout(LIMIT, async {
            while self.told("a") != wanted {
                // A lost last batch is only missed when another comes.
                self.publisher.publish(&json!([])).await;
                self.reader.poll(50).await;
                assert!(self.told("a").is_subset(&allowed), "neither before nor after");
            }
        });
        if waiting.await.is_err() {
            panic!("{letters}: the stream told {:?}, wanted {wanted:?}", self.told("a"));
        }
    }
}

fn documents(kv: &str) -> String {
    let mut text = String::new();
    writeln!(text, "---\nkind: Model\nname: m\nfolder: model\n---\nkind: KVEvents\n{kv}").unwrap();
    text
}

/// Four blocks of a prompt that consists of this letter, named after it.
fn stored(letter: u8) -> Value {
    let names: Vec<u64> = (0..4).map(|n| u64::from(letter) * 10 + n).collect();
    json!({"type": "BlockStored", "block_hashes": names, "parent_block_hash": null,
        "token_ids": vec![letter; 4 * BLOCK], "block_size": BLOCK, "lora_id": null,
        "medium": "GPU", "lora_name": null, "group_idx": 0, "kv_cache_spec_kind": "full_attention"})
}

fn removed(letter: u8, block: u64) -> Value {
    json!({"type": "BlockRemoved", "block_hashes": [u64::from(letter) * 10 + block],
        "medium": "GPU", "group_idx": 0})
}

#[tokio::test]
async fn events_of_before_and_after_the_agents_start_are_told() {
    let mut publisher = Publisher::start(TOPIC, 0, 0).await;
    publisher.publish(&json!([stored(b'a')])).await;
    let sources = json!({"0": {"enable_kv_cache_events": true, "publisher": "zmq",
        "endpoint": format!("tcp://*:{}", publisher.live_port),
        "replay_endpoint": format!("tcp://*:{}", publisher.replay_port), "topic": TOPIC}});
    let engine = Engine::up(good(10, 0)).await;
    engine.publishes(&sources);
    let mut stand = Stand::with(publisher, engine, "").await;
    stand.until("", "a").await;
    stand.publisher.publish(&json!([stored(b'b'), removed(b'a', 3)])).await;
    let partly = stand.hashes("ab").len() - 1;
    stand
        .reader
        .until("b, and a's first block", |r| r.get("a").unwrap().blocks.len() == partly)
        .await;
    let tokens: BTreeSet<u32> = stand.reader.get("a").unwrap().blocks.values().copied().collect();
    assert_eq!(tokens, BTreeSet::from([128, 256]), "tokens before each block's end");
    stand.publisher.publish(&json!([{"type": "AllBlocksCleared"}, stored(b'c')])).await;
    stand.until("ab", "c").await;
}

#[tokio::test]
async fn a_gap_is_filled_by_a_replay_of_either_layout_and_nothing_is_void() {
    for without_topic in [false, true] {
        let mut stand = Stand::new().await;
        stand.publisher.replays.lock().unwrap().without_topic = without_topic;
        stand.publisher.publish(&json!([stored(b'a')])).await;
        stand.until("", "a").await;
        let (before, asked) = (stand.generation(), stand.publisher.asked());
        stand.publisher.lose(&json!([stored(b'b'), removed(b'a', 3), removed(b'a', 2)]));
        stand.publisher.lose(&json!([removed(b'a', 1), removed(b'a', 0)]));
        stand.publisher.publish(&json!([stored(b'c')])).await;
        stand.until("ab", "bc").await;
        assert_eq!(stand.generation(), before);
        assert!(stand.publisher.asked() > asked);
    }
}

#[tokio::test]
async fn a_hole_in_the_replay_voids_what_was_held() {
    let mut stand = Stand::new().await;
    stand.publisher.publish(&json!([stored(b'a')])).await;
    stand.until("", "a").await;
    let before = stand.generation();
    let lost = stand.publisher.lose(&json!([removed(b'a', 0)]));
    stand.publisher.replays.lock().unwrap().holes.insert(lost);
    stand.publisher.publish(&json!([stored(b'b')])).await;
    stand.until("a", "b").await;
    assert_ne!(stand.generation(), before);
    let voided = "warmroute_agent_kv_voids_total{endpoint=\"default/a\",cause=\"replay_hole\"} 1";
    stand.agent.until("/metrics", "a void", |text| text.contains(voided)).await;
}

#[tokio::test]
async fn a_replay_that_lost_what_is_missing_voids_what_was_held() {
    let mut stand = Stand::new().await;
    stand.publisher.publish(&json!([stored(b'a')])).await;
    stand.until("", "a").await;
    let lost = stand.publisher.lose(&json!([removed(b'a', 0)]));
    stand.publisher.replays.lock().unwrap().first = lost + 1;
    stand.publisher.publish(&json!([stored(b'b')])).await;
    stand.until("a", "b").await;
}

#[tokio::test]
async fn an_engine_that_restarts_begins_cold_even_if_it_passed_our_number() {
    let mut stand = Stand::new().await;
    stand.publisher.publish(&json!([stored(b'a')])).await;
    stand.until("", "a").await;
    let before = stand.generation();
    stand.publisher = stand.publisher.restart(TOPIC).await;
    for _ in 0..50 {
        stand.publisher.lose(&json!([]));
    }
    stand.publisher.lose(&json!([stored(b'b')]));
    stand.until("a", "b").await;
    assert_ne!(stand.generation(), before);
}

#[tokio::test]
async fn a_publisher_that_stays_away_is_not_precise_until_it_is_back() {
    let mut stand = Stand::new().await;
    stand.publisher.publish(&json!([stored(b'a')])).await;
    stand.until("", "a").await;
    let (live, replay) = (stand.publisher.live_port, stand.publisher.replay_port);
    stand.publisher.stop().await;
    stand.reader.until("not precise", |r| !r.get("a").unwrap().record.precise).await;
    assert!(stand.reader.get("a").unwrap().blocks.is_empty());
    stand.publisher = Publisher::start(TOPIC, live, replay).await;
    stand.publisher.publish(&json!([stored(b'b')])).await;
    let precise = |r: &Reader| r.get("a").unwrap().record.precise;
    stand.reader.until("precise again", precise).await;
    stand.until("", "b").await;
}

#[tokio::test]
async fn another_pod_at_the_same_address_holds_nothing_of_its_predecessor() {
    let mut stand = Stand::new().await;
    stand.publisher.publish(&json!([stored(b'a')])).await;
    stand.until("", "a").await;
    stand.publisher = stand.publisher.restart(TOPIC).await;
    stand.engine.set(good(20, 0));
    let (live, replay) = (stand.publisher.live_port, stand.publisher.replay_port);
    let kv = format!("discover: false\nport: {live}\nreplayPort: {replay}\n");
    let list = format!("{}{}", list_of(&[("b", &stand.engine)]), documents(&kv));
    stand.folder.write("pool.yaml", &list);
    let old = stand.hashes("a");
    let cold = |r: &Reader| {
        let row = r.get("b");
        assert!(row.is_none_or(|row| row.blocks.keys().all(|(_, hash)| !old.contains(hash))));
    };
    stand.publisher.publish(&json!([stored(b'b')])).await;
    let new = stand.hashes("b").len();
    let warm = |r: &Reader| r.get("b").is_some_and(|row| row.blocks.len() == new);
    stand.reader.until_with("b's own blocks", cold, warm).await;
    assert_eq!(stand.told("b"), stand.hashes("b"));
    stand.reader.until("a is gone", |r| r.get("a").is_none()).await;
}

#[tokio::test]
async fn a_publisher_of_other_topics_is_not_followed_though_its_replay_brings_everything() {
    let mut publisher = Publisher::start("", 0, 0).await;
    publisher.publish(&json!([stored(b'a')])).await;
    let (live, replay) = (publisher.live_port, publisher.replay_port);
    let engine = Engine::up(good(10, 0)).await;
    let folder = Folder::new();
    write_model(&folder);
    let kv = format!("discover: false\nport: {live}\nreplayPort: {replay}\n");
    let list = |kv: &str| format!("{}{}", list_of(&[("a", &engine)]), documents(kv));
    let agent = Agent::over(&folder, &list(&kv)).await;
    let foreign =
        "warmroute_agent_kv_stream_total{endpoint=\"default/a\",event=\"foreign_topic\"} 1";
    agent.until("/metrics", "not followed", |text| text.contains(foreign)).await;
    let mut reader = Reader::new(agent.address);
    reader.until("the endpoint", |r| r.get("a").is_some()).await;
    let row = reader.get("a").unwrap();
    assert!(!row.record.precise && row.blocks.is_empty());
    folder.write("pool.yaml", &list(&format!("{kv}topicFilter: ''\n")));
    let followed = |r: &Reader| r.get("a").is_some_and(|a| a.record.precise && a.blocks.len() == 2);
    reader.until("all topics", followed).await;
}
