//! The engine against a clock that the tests own.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::events::{CollectedEvent, CollectingSink, NoEvents};
use super::*;

const MS: u64 = 1_000_000;

fn config() -> EngineConfig {
    EngineConfig {
        num_blocks: 1_001,
        prefill_tokens_per_s: 16_000,
        decode_ns: 10 * MS,
        ..EngineConfig::default()
    }
}

fn engine(config: EngineConfig) -> Engine {
    Engine::new(config, Box::new(NoEvents))
}

/// A prompt of `len` tokens that differs from every other `topic`'s, and an answer.
fn request(id: RequestId, topic: u32, len: usize, answer: usize) -> Submission {
    let prompt = (0..len as u32).map(|i| topic * 100_000 + i);
    let answer_tokens = (0..answer as u32).map(|i| topic * 100_000 + 50_000 + i);
    Submission {
        id,
        tokens: prompt.chain(answer_tokens).collect(),
        prompt_len: len,
        finish: FinishReason::Length,
        max_tokens: answer,
        adapter: None,
        cache_salt: None,
        session: None,
        transferred: false,
    }
}

/// Runs until nothing is left to do; `(time, id, index, cached, finished)` of every token.
fn run(engine: &mut Engine) -> Vec<(SimTime, RequestId, usize, usize, bool)> {
    let mut seen = Vec::new();
    let mut record = |engine: &mut Engine| {
        let now = engine.now;
        for output in engine.drain_outputs() {
            let OutputKind::Token { index, cached, finish } = output.kind;
            seen.push((now, output.id, index, cached, finish.is_some()));
        }
    };
    record(engine);
    while let Some(due) = engine.next_event() {
        engine.advance(due);
        record(engine);
    }
    seen
}

#[test]
fn prefill_takes_uncached_tokens_over_rate_and_decode_a_step_per_token() {
    let mut engine = engine(config());
    assert_eq!(engine.submit(0, request(1, 1, 1_600, 3)), Ok(0));
    let tokens = run(&mut engine);
    assert_eq!(
        tokens,
        vec![(100 * MS, 1, 0, 0, false), (110 * MS, 1, 1, 0, false), (120 * MS, 1, 2, 0, true)]
    );
    // 1,600 tokens are 100 whole blocks, of which the last is never reported: 16 tokens are left.
    assert_eq!(engine.submit(200 * MS, request(2, 1, 1_600, 1)), Ok(1_584));
    assert_eq!(run(&mut engine), vec![(201 * MS, 2, 0, 1_584, true)]);
    assert_eq!((engine.stats().prefix_queries, engine.stats().prefix_hits), (3_200, 1_584));
}

#[test]
fn requests_in_prefill_share_the_rate() {
    let mut engine = engine(config());
    engine.submit(0, request(1, 1, 1_600, 1)).unwrap();
    engine.submit(50 * MS, request(2, 2, 1_600, 1)).unwrap();
    let tokens = run(&mut engine);
    // 800 tokens of the first are left at 50 ms, at half speed; then 800 of the second at full.
    assert_eq!(tokens, vec![(150 * MS, 1, 0, 0, true), (200 * MS, 2, 0, 0, true)]);
}

#[test]
fn waits_first_come_first_served_for_blocks_and_for_places() {
    for config in
        [EngineConfig { num_blocks: 101, ..config() }, EngineConfig { max_num_seqs: 1, ..config() }]
    {
        let mut engine = engine(config);
        engine.submit(0, request(1, 1, 1_000, 2)).unwrap();
        engine.submit(0, request(2, 2, 1_000, 2)).unwrap();
        engine.submit(0, request(3, 3, 16, 2)).unwrap();
        // The small one would fit beside the first, yet must not overtake.
        assert_eq!((engine.gauges().running, engine.gauges().waiting_capacity), (1, 2));
        let order: Vec<_> = run(&mut engine).into_iter().filter(|t| t.4).map(|t| t.1).collect();
        assert_eq!(order[0], 1);
        assert_eq!(engine.gauges().running + engine.gauges().waiting_capacity, 0);
        assert_eq!(engine.gauges().free_blocks, engine.config().num_blocks - 1);
        assert!(engine.stats().queue_time.sum() > 0.0);
    }
}

#[test]
fn an_evicted_prefix_is_hit_only_as_far_as_it_survives() {
    let mut engine = engine(EngineConfig { num_blocks: 101, ..config() });
    engine.submit(0, request(1, 1, 800, 1)).unwrap();
    run(&mut engine);
    engine.submit(engine.now, request(2, 2, 1_200, 1)).unwrap();
    run(&mut engine);
    // 100 blocks: the second took 50 untouched ones and the 25 last blocks of the first.
    let held = engine.submit(engine.now, request(3, 1, 800, 1)).unwrap();
    assert_eq!(held, 25 * 16);
}

#[test]
fn decode_blocks_are_hit_by_the_next_turn() {
    let mut engine = engine(config());
    let first = request(1, 1, 100, 45);
    engine.submit(0, first.clone()).unwrap();
    run(&mut engine);
    // The last token's KV is never computed: 144 tokens, 9 blocks.
    let mut next = first.tokens.clone();
    next.extend([7; 40]);
    let prompt_len = next.len() - 1;
    let second = Submission { id: 2, tokens: next, prompt_len, ..first };
    assert_eq!(engine.submit(engine.now, second), Ok(144));
}

#[test]
fn running_out_of_blocks_in_decode_preempts_the_latest_which_recomputes() {
    let mut engine = engine(EngineConfig { num_blocks: 11, ..config() });
    engine.submit(0, request(1, 1, 64, 60)).unwrap();
    engine.submit(0, request(2, 2, 64, 60)).unwrap();
    let tokens = run(&mut engine);
    assert!(engine.stats().preemptions > 0);
    for id in [1, 2] {
        let indexes: Vec<_> = tokens.iter().filter(|t| t.1 == id).map(|t| t.2).collect();
        assert_eq!(
            indexes,
            (0..60).collect::<Vec<_>>(),
            "every token of {id} appears once, in order"
        );
    }
    assert!(
        tokens.iter().position(|t| t.1 == 1 && t.4) < tokens.iter().position(|t| t.1 == 2 && t.4)
    );
    assert_eq!(engine.gauges().free_blocks, 10);
}

#[test]
fn a_cancelled_request_gives_everything_back_and_is_no_success() {
    for at in [0, 30 * MS, 105 * MS] {
        let mut engine = engine(EngineConfig { max_num_seqs: 1, ..config() });
        engine.submit(0, request(1, 1, 1_600, 50)).unwrap();
        engine.submit(0, request(2, 2, 1_600, 50)).unwrap();
        engine.cancel(at, 2);
        engine.cancel(at, 1);
        engine.cancel(at, 1);
        assert_eq!(engine.gauges().free_blocks, 1_000);
        assert_eq!((engine.gauges().running, engine.gauges().waiting_capacity), (0, 0));
        assert_eq!((engine.stats().finished_length, engine.stats().e2e.count()), (0, 0));
        assert_eq!(engine.next_event(), None);
    }
}

#[test]
fn a_full_queue_and_an_impossible_request_are_refused() {
    let mut engine = engine(EngineConfig { max_queued: Some(1), ..config() });
    assert!(matches!(
        engine.submit(0, request(1, 1, 16_000, 10)),
        Err(SubmitError::Unservable { tokens: 16_010, capacity: 1_000 })
    ));
    engine.submit(0, request(2, 1, 100, 1)).unwrap();
    assert_eq!(engine.submit(0, request(3, 1, 100, 1)), Err(SubmitError::QueueFull { limit: 1 }));
    assert_eq!(engine.stats().rejected_queue_full, 1);
}

#[test]
fn adapters_beyond_the_budget_wait_without_blocking_others() {
    let mut engine = engine(EngineConfig { max_loras: 1, ..config() });
    let with = |id, name: &str| Submission {
        adapter: Some(name.into()),
        ..request(id, id as u32, 160, 2)
    };
    engine.submit(0, with(1, "a")).unwrap();
    engine.submit(0, with(2, "b")).unwrap();
    engine.submit(0, request(3, 3, 160, 2)).unwrap();
    let gauges = engine.gauges();
    assert_eq!((gauges.running, gauges.waiting_deferred, gauges.waiting_capacity), (2, 1, 0));
    assert_eq!(
        (gauges.running_loras, gauges.waiting_loras),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
    assert_eq!(run(&mut engine).iter().filter(|t| t.4).count(), 3);
}

#[test]
fn occupied_blocks_starve_others_until_released() {
    let mut engine = engine(config());
    assert_eq!(engine.occupy(0.95), 950);
    let gauges = engine.gauges();
    assert_eq!((gauges.running, gauges.free_blocks), (1, 50));
    assert!((gauges.kv_usage - 0.95).abs() < 1e-9);
    engine.submit(0, request(1, 1, 1_000, 1)).unwrap();
    assert_eq!(engine.gauges().waiting_capacity, 1);
    engine.occupy(0.0);
    assert_eq!(run(&mut engine).len(), 1);
    assert_eq!(engine.gauges().running, 0);
}

#[test]
fn events_tell_chunks_decode_blocks_and_parents() {
    let sink = Arc::new(Mutex::new(CollectingSink::default()));
    let mut engine =
        Engine::new(EngineConfig { prefill_chunk: 32, ..config() }, Box::new(Arc::clone(&sink)));
    let sub = request(1, 1, 40, 10);
    engine.submit(0, sub.clone()).unwrap();
    run(&mut engine);
    assert!(engine.reset_prefix_cache());
    let events = std::mem::take(&mut sink.lock().unwrap().events);
    let CollectedEvent::Stored { hashes: first, parent: None, tokens } = &events[0] else {
        panic!("{events:?}")
    };
    assert_eq!((first.len(), &tokens[..]), (2, &sub.tokens[..32]));
    let CollectedEvent::Stored { hashes, parent, tokens } = &events[1] else {
        panic!("{events:?}")
    };
    assert_eq!((hashes.len(), *parent, &tokens[..]), (1, Some(first[1]), &sub.tokens[32..48]));
    assert_eq!(events[2..], [CollectedEvent::Cleared]);
}

proptest! {
    #[test]
    fn whatever_happens_every_block_comes_back(
        steps in prop::collection::vec((0u64..40, 0u32..4, 1usize..200, 1usize..40, prop::bool::weighted(0.3)), 1..60),
        num_blocks in 20usize..60,
    ) {
        let mut engine = engine(EngineConfig { num_blocks, max_num_seqs: 4, prefill_chunk: 48, ..config() });
        let (mut now, mut taken, mut tokens) = (0, Vec::new(), 0);
        for (id, (wait, topic, prompt, answer, cancel)) in steps.into_iter().enumerate() {
            now += wait * MS;
            if engine.submit(now, request(id as u64, topic, prompt, answer)).is_ok() {
                taken.push((id as u64, answer));
            }
            if cancel && let Some((victim, answer)) = taken.pop() {
                let before = engine.requests.get(&victim).map_or(answer, |r| r.generated);
                tokens += before;
                engine.cancel(now, victim);
            }
            let held: usize = engine.requests.values().map(|r| r.blocks.len()).sum();
            prop_assert!(held >= engine.pool.used(), "shared blocks are used once");
            prop_assert!(engine.gauges().kv_usage <= 1.0);
        }
        let outputs = run(&mut engine).len();
        tokens += taken.iter().map(|(_, answer)| answer).sum::<usize>();
        prop_assert_eq!(outputs, tokens);
        prop_assert_eq!(engine.pool.used(), 0);
        prop_assert!(engine.requests.is_empty() && engine.waiting.is_empty() && engine.running.is_empty());
        prop_assert!(engine.pool.cached() <= engine.pool.capacity());
    }
}
