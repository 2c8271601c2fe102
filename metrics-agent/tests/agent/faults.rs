//! Engines that fail, and what the stream says of them.

use crate::engine::{Engine, Mode, good, metrics};
use crate::reader::{Reader, Row};
use crate::run::{Agent, Folder, LIMIT, list_of, options};
use warmroute_shared_state::endpoint::Load;

/// An agent over one engine `a`, and a reader that sees it with 7 requests waiting.
async fn one(mode: Mode) -> (Folder, Engine, Agent, Reader) {
    let engine = Engine::up(mode).await;
    let folder = Folder::new();
    let agent = Agent::over(&folder, &list_of(&[("a", &engine)])).await;
    let mut reader = Reader::new(agent.address);
    reader.until("first load", |r| r.get("a").and_then(Row::waiting) == Some(7.0)).await;
    (folder, engine, agent, reader)
}

fn generation(reader: &Reader) -> u64 {
    reader.get("a").unwrap().record.generation
}

#[tokio::test]
async fn a_good_engine_is_described_in_full() {
    let (_folder, _engine, _agent, reader) = one(good(1_700_000_000, 7)).await;
    let Row { record, load, .. } = reader.get("a").unwrap();
    assert_eq!((record.block_tokens, record.kv_blocks), (16, 1000));
    assert_eq!(record.generation, 1_700_000_000_000 << 16);
    let expected = Load { waiting: Some(7.0), running: Some(2.0), kv_usage: Some(0.5) };
    assert_eq!(*load, Some(expected));
}

#[tokio::test]
async fn a_refused_connection_takes_out_until_it_answers_with_a_new_generation() {
    let (_folder, mut engine, _agent, mut reader) = one(good(10, 7)).await;
    let before = generation(&reader);
    engine.stop().await;
    reader.until("out", |r| r.get("a").is_some_and(Row::is_out)).await;
    assert_eq!(reader.get("a").unwrap().waiting(), None);
    engine.start().await;
    reader.until("in again", |r| r.get("a").is_some_and(|a| !a.is_out())).await;
    assert_ne!(generation(&reader), before);
    reader.until("loads again", |r| r.get("a").and_then(Row::waiting) == Some(7.0)).await;
    assert_eq!(reader.snapshots, 1, "all of it came as deltas");
}

#[tokio::test]
async fn a_reset_before_any_answer_and_silence_take_out() {
    for mode in [Mode::Reset, Mode::Hang] {
        let (_folder, engine, _agent, mut reader) = one(good(10, 7)).await;
        engine.set(mode.clone());
        reader.until(&format!("{mode:?}"), |r| r.get("a").is_some_and(Row::is_out)).await;
        engine.set(good(10, 7));
        reader.until("in again", |r| r.get("a").is_some_and(|a| !a.is_out())).await;
    }
}

#[tokio::test]
async fn bad_metrics_age_to_unknown_and_keep_the_endpoint_in() {
    let faults = [
        Mode::Answer(500, metrics(10, 7)),
        Mode::Answer(200, String::new()),
        Mode::Answer(200, "<html>not here</html>\n".into()),
        Mode::Truncate(metrics(10, 9)),
        Mode::Flood,
    ];
    let (_folder, engine, _agent, mut reader) = one(good(10, 7)).await;
    let before = generation(&reader);
    for fault in faults {
        let name = format!("{fault:?}");
        engine.set(fault);
        let always = |r: &Reader| {
            let a = r.get("a").unwrap();
            assert!(!a.is_out(), "{name}");
            assert!(matches!(a.waiting(), None | Some(7.0)), "{name}: {:?}", a.waiting());
        };
        reader.until_with(&name, always, |r| r.get("a").unwrap().waiting().is_none()).await;
        engine.set(good(10, 7));
        reader.until_with(&name, always, |r| r.get("a").unwrap().waiting().is_some()).await;
    }
    assert_eq!(generation(&reader), before);
}

#[tokio::test]
async fn an_endpoint_with_bad_metrics_from_the_start_is_in_without_signals() {
    let engine = Engine::up(Mode::Answer(404, "no\n".into())).await;
    let folder = Folder::new();
    let agent = Agent::over(&folder, &list_of(&[("a", &engine)])).await;
    let mut reader = Reader::new(agent.address);
    reader.until("in", |r| r.get("a").is_some_and(|a| !a.is_out())).await;
    assert_eq!(reader.get("a").unwrap().load, None);
    let missing = "warmroute_agent_endpoints_without_signal{signal=\"waiting\"} 1";
    agent.until("/metrics", "alarm", |text| text.contains(missing)).await;
}

#[tokio::test]
async fn a_restart_between_two_scrapes_is_seen_by_its_start_time() {
    let (_folder, engine, _agent, mut reader) = one(good(10, 7)).await;
    let before = generation(&reader);
    engine.set(good(11, 0));
    let always = |r: &Reader| assert!(!r.get("a").unwrap().is_out());
    reader.until_with("restarted", always, |r| generation(r) != before).await;
    assert_eq!(generation(&reader), 11_000 << 16);
}

#[tokio::test]
async fn one_connection_serves_many_scrapes() {
    let (_folder, engine, _agent, _reader) = one(good(10, 7)).await;
    let many = tokio::time::timeout(LIMIT, async {
        while engine.requests() < 10 {
            tokio::task::yield_now().await;
        }
    });
    many.await.expect("ten scrapes");
    assert_eq!(engine.connections(), 1);
}

#[tokio::test]
async fn an_engine_that_closes_after_every_answer_is_not_taken_for_dead() {
    let (_folder, engine, _agent, mut reader) = one(Mode::AnswerAndClose(metrics(10, 7))).await;
    let seen = engine.connections();
    let always = |r: &Reader| assert!(!r.get("a").unwrap().is_out());
    reader.until_with("scrapes go on", always, |_| engine.connections() >= seen + 5).await;
}

#[tokio::test]
async fn an_agent_that_restarts_tells_the_same_generations_in_a_new_epoch() {
    let (folder, _engine, agent, reader) = one(good(10, 7)).await;
    let (before, epoch) = (generation(&reader), reader.position.unwrap().epoch);
    let ids: Vec<_> = reader.rows.keys().copied().collect();
    agent.stop().await.unwrap();
    let agent = Agent::start(options(&folder)).await;
    let mut again = Reader::new(agent.address);
    again.position = reader.position;
    again.until("first table", |r| r.get("a").is_some()).await;
    assert_eq!(again.snapshots, 1, "a position of another epoch is answered with a snapshot");
    assert_ne!(again.position.unwrap().epoch, epoch);
    assert_eq!(generation(&again), before);
    assert_eq!(again.rows.keys().copied().collect::<Vec<_>>(), ids);
}
