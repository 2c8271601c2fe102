//! Requests with one prompt that come before the engine could tell that it has it.

use crate::bed::{Conversation, ask};
use anyhow::{Context as _, Result};
use e2e::client::{Request, send};
use e2e::workers::WorkerConnection;
use e2e::{Setup, Stack};
use std::collections::HashSet;
use std::time::Duration;
use tokio::task::JoinSet;

/// Events 200 ms late, and requests within milliseconds on all workers.
#[tokio::test(flavor = "multi_thread")]
async fn siblings_stay_together_while_events_are_late() -> Result<()> {
    let setup = Setup::new(4, 4).precise().simulator(&["--kv-events-delay-ms", "200"]);
    let stack = Stack::start(setup).await?;
    for round in 0..3 {
        let body = Conversation::new(6000, 4).body();
        let mut clients = JoinSet::new();
        for _ in 0..8 {
            let mut connection = WorkerConnection::open(stack.listen()).await?;
            let request = Request::chat(&body);
            clients.spawn(async move { connection.served(&request).await });
        }
        let served: Result<HashSet<String>> = clients.join_all().await.into_iter().collect();
        assert_eq!(served?.len(), 1, "round {round}");
        // And a little later, still before the events.
        let late = ask(&stack, &format!("late-{round}"), &body).await?;
        assert!(late.believed() > 1000, "{:?}", late.log);
        assert!(late.cached > 1000);
    }
    Ok(())
}

/// What is never confirmed is not believed for long.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_event_confirms_is_forgotten() -> Result<()> {
    // Events come, only much too late for this test.
    let setup = Setup::new(2, 2).precise().simulator(&["--kv-events-delay-ms", "600000"]);
    let stack = Stack::start(setup).await?;
    let body = Conversation::new(4000, 1).body();
    let first = ask(&stack, "first", &body).await?;
    let second = ask(&stack, "second", &body).await?;
    assert_eq!((second.kind(), &second.engine), ("expected", &first.engine));
    let forgotten = async || {
        let blocks = stack.filter_state().await.ok()?.prefix_blocks;
        (blocks == 0).then_some(())
    };
    stack.until_for(Duration::from_secs(30), "an empty table", forgotten).await?;
    let answer = send(stack.listen(), &Request::chat(&body).id("third")).await?;
    assert_eq!(answer.status, 200);
    let log = stack.access("third").await?;
    assert_eq!(log.matched_tokens().context("no belief")?, 0, "{log:?}");
    Ok(())
}
