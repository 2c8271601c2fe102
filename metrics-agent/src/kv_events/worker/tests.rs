use super::*;
use crate::kv_events::decode::tests::packed;
use crate::kv_events::models::tests::model;
use crate::kv_events::sequence::Cause;
use crate::publish::{Answer, Poll};
use serde_json::{Value, json};
use std::time::Instant;
use warmroute_shared_state::endpoint::{Availability, EndpointRecord};
use warmroute_shared_state::prefix::{ChainScope, chain};
use warmroute_shared_state::stream::AgentOp;

const ID: EndpointId = EndpointId(5);

/// A worker that follows one endpoint, and the stream that it tells.
struct Bench {
    shared: Shared,
    worker: Worker,
    incarnation: u64,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self { shared: Shared::new(1), worker: Worker::default(), incarnation: 0 };
        bench.shared.publisher.set_ready();
        bench.shared.publisher.update(|table| {
            table.put(EndpointRecord {
                id: ID,
                generation: 1,
                name: "n/e".into(),
                address: "10.0.0.1:8000".into(),
                availability: Availability::Ready,
                block_tokens: 64,
                kv_blocks: 100,
                labels: Vec::new(),
                pools: Vec::new(),
                precise: false,
                lower_tier_percent: 0,
            });
        });
        bench.order(Order::Models(vec![model("m", &[])]));
        bench.follow();
        bench
    }

    fn order(&mut self, order: Order) {
        self.worker.take(Message::Order(order), &self.shared);
        self.worker.tell(&self.shared);
    }

    fn follow(&mut self) {
        self.incarnation += 1;
        self.order(Order::Follow(Following {
            endpoint: ID,
            incarnation: self.incarnation,
            name: "n/e".into(),
            model: None,
            lower_tier_percent: 80,
        }));
    }

    fn hear(&mut self, rank: u16, news: News) {
        self.hear_of(self.incarnation, rank, news);
    }

    fn hear_of(&mut self, incarnation: u64, rank: u16, news: News) {
        let source = SourceId { endpoint: ID, rank, incarnation };
        self.worker.take(Message::Report(Report { source, news }), &self.shared);
        self.worker.tell(&self.shared);
    }

    fn whole(&mut self, rank: u16) {
        self.hear(rank, News::Begin);
        self.hear(rank, News::Whole { model: None });
    }

    fn batch(&mut self, rank: u16, events: &Value) {
        self.hear(rank, batch(events));
    }

    /// Whether the stream calls the endpoint precise, and how many blocks it tells.
    fn held(&self) -> (bool, usize) {
        let mut held = (false, 0);
        self.shared.publisher.update(|table| held = table.held(ID));
        held
    }

    /// All operations of a snapshot.
    fn ops(&self) -> Vec<AgentOp> {
        let poll = Poll { position: None, page: 0 };
        match self.shared.publisher.answer(poll, Instant::now()) {
            Answer::Page(page) => page.ops,
            other => panic!("{other:?}"),
        }
    }

    fn generation(&self) -> u64 {
        let generation = |op| match op {
            AgentOp::Endpoint(record) => Some(record.generation),
            _ => None,
        };
        self.ops().into_iter().find_map(generation).unwrap()
    }

    /// Hashes that the stream tells of a tier, sorted.
    fn hashes(&self, wanted: Tier) -> Vec<u64> {
        let mut hashes = Vec::new();
        for op in self.ops() {
            if let AgentOp::Store { tier, blocks, .. } = op
                && tier == wanted
            {
                hashes.extend(blocks.iter().map(|block| block.hash));
            }
        }
        hashes.sort_unstable();
        hashes
    }

    fn metrics(&self) -> String {
        self.shared.metrics.encode(&crate::metrics::Moment::default()).unwrap()
    }
}

fn batch(events: &Value) -> News {
    let payload = packed(&json!([1_700_000_000.5, events])).into();
    News::Batch { payload, model: None, space: None }
}

/// Blocks of 64 tokens of one byte each, from the start of a prompt of `letter`s.
fn stored(names: &[u64], letter: u8) -> Value {
    json!(["BlockStored", names, null, vec![letter; names.len() * 64], 64, null, "GPU", null])
}

fn expected(scope: &ChainScope<'_>, bytes: usize, letter: u8) -> Vec<u64> {
    let mut hashes = chain(scope, &vec![letter; bytes]);
    hashes.sort_unstable();
    hashes
}

const SCOPE: ChainScope<'_> = ChainScope { stream: 7, model: "m", adapter: None, cache_salt: None };

#[test]
fn blocks_of_a_whole_stream_are_told_as_the_prompts_byte_blocks() {
    let mut bench = Bench::new();
    bench.hear(0, News::Begin);
    bench.batch(0, &json!([stored(&[1, 2, 3, 4], b'a')]));
    assert_eq!(bench.held(), (false, 0), "something may still be missing");
    bench.hear(0, News::Whole { model: None });
    assert_eq!(bench.held(), (true, 2));
    assert_eq!(bench.hashes(Tier::Device), expected(&SCOPE, 256, b'a'));
    bench.batch(0, &json!([["BlockRemoved", [4], "GPU"]]));
    assert_eq!(bench.hashes(Tier::Device), expected(&SCOPE, 128, b'a'));
    bench.batch(0, &json!([["AllBlocksCleared"]]));
    assert_eq!(bench.held(), (true, 0));
    bench.batch(0, &json!([stored(&[1, 2], b'b')]));
    assert_eq!(bench.hashes(Tier::Device), expected(&SCOPE, 128, b'b'));
}

#[test]
fn adapters_are_apart_and_become_names_of_the_model() {
    let mut bench = Bench::new();
    bench.whole(0);
    let mut event = stored(&[1, 2], b'a');
    event[7] = json!("sql");
    bench.batch(0, &json!([event]));
    let scope = ChainScope { model: "sql", ..SCOPE };
    assert_eq!(bench.hashes(Tier::Device), expected(&scope, 128, b'a'));
    let named = |op: &AgentOp| matches!(op, AgentOp::Model(model) if model.adapters == ["sql"]);
    assert!(bench.ops().iter().any(named));
}

#[test]
fn a_void_gives_a_new_generation_and_nothing_of_before() {
    let mut bench = Bench::new();
    bench.whole(0);
    bench.batch(0, &json!([stored(&[1, 2], b'a')]));
    let before = bench.generation();
    bench.hear(0, News::Void { cause: Cause::Gap, same_engine: false });
    assert_eq!(bench.held(), (true, 0));
    assert_ne!(bench.generation(), before);
    bench.batch(0, &json!([["BlockStored", [3], 2, vec![b'a'; 64], 64], stored(&[8, 9], b'b')]));
    assert_eq!(bench.hashes(Tier::Device), expected(&SCOPE, 128, b'b'), "orphans are not told");
    let metrics = bench.metrics();
    for line in [
        "kv_voids_total{endpoint=\"n/e\",cause=\"gap\"} 1",
        "kv_blocks_total{endpoint=\"n/e\",fate=\"orphan\"} 1",
        "kv_events_total{endpoint=\"n/e\",type=\"stored\"} 3",
        "kv_batches_total{endpoint=\"n/e\",result=\"read\"} 2",
        "kv_precise{endpoint=\"n/e\"} 1",
        "kv_blocks_held{endpoint=\"n/e\"} 2",
        "kv_last_batch_timestamp_seconds{endpoint=\"n/e\"} 1700000000.5",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[test]
fn a_loss_keeps_names_and_what_is_stored_under_them_is_told_again() {
    let mut bench = Bench::new();
    bench.whole(0);
    bench.batch(0, &json!([stored(&[1, 2, 3], b'a')]));
    let before = bench.generation();
    bench.hear(0, News::Void { cause: Cause::ReplayHole, same_engine: true });
    assert_eq!(bench.held(), (true, 0));
    assert_ne!(bench.generation(), before);
    bench.batch(0, &json!([["BlockStored", [8, 9], 2, vec![b'a'; 128], 64]]));
    assert_eq!(bench.hashes(Tier::Device), expected(&SCOPE, 256, b'a'));
    let metrics = bench.metrics();
    for line in [
        "kv_voids_total{endpoint=\"n/e\",cause=\"replay_hole\"} 1",
        "kv_blocks_total{endpoint=\"n/e\",fate=\"revived\"} 2",
        "kv_blocks_held{endpoint=\"n/e\"} 4",
        "kv_blocks_remembered{endpoint=\"n/e\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[test]
fn while_most_builds_on_unknown_blocks_the_endpoint_is_not_precise() {
    let mut bench = Bench::new();
    bench.whole(0);
    bench.batch(0, &json!([stored(&[1, 2], b'a')]));
    let orphans = |first: u64| {
        let names: Vec<u64> = (first..first + 60).collect();
        json!([["BlockStored", names, 999, vec![b'o'; 60 * 64], 64]])
    };
    bench.batch(0, &orphans(1000));
    assert_eq!(bench.held(), (false, 0));
    bench.batch(0, &orphans(2000));
    // Stored, removed, and stored: all that is held when it is precise again is told then.
    let names: Vec<u64> = (100..300).collect();
    bench.batch(0, &json!([stored(&[3, 4], b'b'), ["BlockRemoved", [2]]]));
    bench.batch(0, &json!([stored(&names, b'c')]));
    assert_eq!(bench.held(), (true, 101));
    let mut all = expected(&SCOPE, 128, b'b');
    all.extend(expected(&SCOPE, 200 * 64, b'c'));
    all.sort_unstable();
    assert_eq!(bench.hashes(Tier::Device), all);
    let metrics = bench.metrics();
    for line in
        ["event=\"incomplete\"} 1", "fate=\"orphan\"} 120", "kv_precise{endpoint=\"n/e\"} 1"]
    {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    // A fresh engine has nothing of before.
    bench.batch(0, &orphans(3000));
    bench.batch(0, &orphans(4000));
    assert_eq!(bench.held(), (false, 0));
    bench.hear(0, News::Void { cause: Cause::Restarted, same_engine: false });
    assert_eq!(bench.held(), (true, 0));
    bench.batch(0, &orphans(5000));
    assert_eq!(bench.held(), (false, 0));
    bench.batch(0, &json!([["AllBlocksCleared"]]));
    assert_eq!(bench.held(), (true, 0));
}

#[test]
fn what_an_earlier_following_says_is_not_heard() {
    let mut bench = Bench::new();
    bench.whole(0);
    bench.batch(0, &json!([stored(&[1, 2], b'a')]));
    let before = bench.generation();
    bench.follow();
    assert_eq!(bench.held(), (false, 0), "void before the first event");
    assert_ne!(bench.generation(), before);
    for news in [batch(&json!([stored(&[1, 2], b'a')])), News::Whole { model: None }] {
        bench.hear_of(1, 0, news);
    }
    assert_eq!(bench.held(), (false, 0));
    bench.whole(0);
    assert_eq!(bench.held(), (true, 0));
    bench.order(Order::Forget(ID));
    assert_eq!(bench.held(), (false, 0));
    assert!(!bench.metrics().contains("n/e"));
    bench.whole(0);
    assert_eq!(bench.held(), (false, 0), "not followed any more");
}

#[test]
fn ranks_hold_together_and_are_void_apart() {
    let mut bench = Bench::new();
    bench.whole(0);
    bench.whole(1);
    bench.batch(0, &json!([stored(&[1, 2], b'a')]));
    bench.batch(1, &json!([stored(&[1, 2], b'a'), stored(&[3, 4], b'b')]));
    assert_eq!(bench.held(), (true, 2));
    bench.hear(1, News::Void { cause: Cause::Restarted, same_engine: false });
    assert_eq!(bench.hashes(Tier::Device), expected(&SCOPE, 128, b'a'));
    bench.hear(1, News::Unreachable);
    assert_eq!(bench.held(), (true, 1), "the other rank is still there");
    bench.hear(0, News::Unreachable);
    assert_eq!(bench.held(), (false, 0));
    bench.hear(1, News::Whole { model: None });
    assert_eq!(bench.held(), (true, 0));
}

#[test]
fn without_a_known_model_nothing_is_precise() {
    let mut bench = Bench::new();
    bench.order(Order::Models(vec![model("m", &[]), model("o", &[])]));
    bench.follow();
    bench.whole(0);
    bench.batch(0, &json!([stored(&[1, 2], b'a')]));
    assert_eq!(bench.held(), (false, 0));
    assert!(bench.metrics().contains("result=\"without_model\"} 1"));
    let named = |name: &str, events: Value| match batch(&events) {
        News::Batch { payload, space, .. } => {
            News::Batch { payload, model: Some(name.into()), space }
        }
        other => other,
    };
    bench.hear(0, named("o", json!([stored(&[1, 2], b'a')])));
    let scope = ChainScope { model: "o", ..SCOPE };
    assert_eq!(bench.hashes(Tier::Device), expected(&scope, 128, b'a'));
    bench.hear(0, News::Batch { payload: (&b"\xc1"[..]).into(), model: None, space: None });
    bench.batch(0, &json!([["Unknown"]]));
    let metrics = bench.metrics();
    for line in ["result=\"unreadable\"} 1", "type=\"undecodable\"} 1"] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[test]
fn the_first_block_in_a_slower_tier_voids_nothing() {
    let mut bench = Bench::new();
    bench.whole(0);
    bench.batch(0, &json!([stored(&[1, 2, 3, 4], b'a')]));
    let mut lower = stored(&[1, 2], b'a');
    lower[6] = json!("CPU");
    bench.batch(0, &json!([lower]));
    assert_eq!(bench.hashes(Tier::Device), expected(&SCOPE, 256, b'a'));
    assert_eq!(bench.hashes(Tier::Any), expected(&SCOPE, 256, b'a'));
    let worth = |op: &AgentOp| matches!(op, AgentOp::Endpoint(r) if r.lower_tier_percent == 80);
    assert!(bench.ops().iter().any(worth));
    bench.batch(0, &json!([["BlockRemoved", [1, 2, 3, 4], "GPU"]]));
    assert!(bench.hashes(Tier::Device).is_empty());
    assert_eq!(bench.hashes(Tier::Any), expected(&SCOPE, 128, b'a'));
}
