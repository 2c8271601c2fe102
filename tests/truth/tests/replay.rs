//! Conversations sent to a simulated engine, without anything in between.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use engine_sim::admin::fleet::Fleet;
use engine_sim::api::ApiConfig;
use engine_sim::engine::EngineConfig;
use engine_sim::kv_events::KvEventsConfig;
use engine_sim::replica::SimConfig;
use engine_sim::tokens::Tokenizer;
use warmroute_truth::records::{self, Belief};
use warmroute_truth::replay::{self, Answered, Pace, Rendering};
use warmroute_truth::verdict::Kind;
use warmroute_truth::workload::conversation::Conversation;
use warmroute_truth::workload::{self, Shape};

fn config() -> SimConfig {
    SimConfig {
        api: ApiConfig {
            models: vec!["tiny".to_owned()],
            loras: vec!["lora-a".to_owned()],
            max_model_len: 8_192,
            default_reply_tokens: 8,
            prompt_tokens_details: true,
            force_include_usage: false,
        },
        engine: EngineConfig { num_blocks: 1_200, ..EngineConfig::default() },
        time_scale: 200.0,
        request_id_headers: false,
        sse_keep_alive: None,
        records: 1_000,
        kv_events: Some(KvEventsConfig::default()),
        formats: Vec::new(),
        sidecars: false,
    }
}

#[tokio::test]
async fn engines_and_clients_tell_the_same_of_every_request() {
    let fleet = Arc::new(Fleet::new(config(), Tokenizer::new().unwrap()));
    let engine = fleet.add(0).await.unwrap();
    let shape = Shape {
        conversations: 40,
        turns: 4,
        model: "tiny".to_owned(),
        adapters: vec!["lora-a".to_owned()],
        tools: true,
        system_words: (80, 300),
        user_words: (10, 60),
        answer_tokens: (20, 40),
    };
    let pace = Pace { parallel: 4, pause: Duration::ZERO, turns: 2 };
    let mut conversations: Vec<_> =
        workload::plan(&shape, 3).into_iter().map(Conversation::new).collect();
    let mut all: Vec<Answered> = Vec::new();
    for round in 0..2 {
        let label = format!("round-{round}");
        let sent = replay::run(engine.addr, conversations, pace, Rendering::ChatMl, &label);
        let (then, answered) = sent.await.unwrap();
        conversations = then;
        all.extend(answered);
    }
    assert_eq!(all.len(), 160);
    assert!(conversations.iter().all(|one| one.left() == 0));

    let arrivals = records::arrivals(&fleet.state(1_000)).unwrap();
    // A filter that knows everything.
    let beliefs: HashMap<_, _> = all
        .iter()
        .map(|one| {
            let tokens = arrivals[&one.request].cached_on_arrival;
            (one.request.clone(), Belief { tokens, kind: Kind::Events })
        })
        .collect();
    let joined = records::join(&all, &beliefs, &arrivals).unwrap();
    assert!(joined.iter().all(|one| one.error() == 0.0));
    let differ = joined.iter().filter(|one| one.held != Some(one.cached)).count();
    assert!(differ < 16, "{differ} requests waited and then found something else");
    // A second turn right after the first finds the answer in the cache.
    let cached = |request: &str| joined.iter().find(|one| one.request == request).unwrap();
    let hits = (0..40).filter(|number| {
        let first = cached(&format!("round-0-{number}-0"));
        let second = cached(&format!("round-0-{number}-1"));
        second.cached + 16 > first.prompt_tokens
    });
    assert!(hits.count() > 30, "second turns hit on what was said before");
    let ratio = |one: &warmroute_truth::verdict::Observation| one.unit();
    let units: Vec<f64> = joined.iter().map(ratio).collect();
    let (least, most) =
        (units.iter().copied().fold(f64::MAX, f64::min), units.iter().copied().fold(0.0, f64::max));
    assert!(least > 20.0 && most < 130.0, "tokens of a byte block from {least} to {most}");
}
