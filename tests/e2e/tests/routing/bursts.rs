//! Many requests at the same moment, on all workers, before any engine could tell of its load.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use anyhow::Result;
use e2e::client::Request;
use e2e::prompts::{chat, fresh_text};
use e2e::workers::WorkerConnection;
use e2e::{Setup, Stack};
use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const ENGINES: usize = 8;
const WORKERS: usize = 4;
const BURST: usize = 64;
const REPEATS: usize = 5;

/// Eight equal engines whose metrics stay those of an engine at rest.
async fn stack() -> Result<Stack> {
    let stack = Stack::start(Setup::new(ENGINES, WORKERS)).await?;
    for replica in 0..ENGINES {
        stack.simulator.fault(&json!({"replica": replica, "fault": "metrics_freeze"})).await?;
    }
    Ok(stack)
}

/// Sends all requests at once, over connections that are open before, and counts who served how many.
async fn burst(stack: &Stack, requests: Vec<Request>) -> Result<BTreeMap<String, usize>> {
    let idle = async || (stack.filter_state().await.ok()?.in_flight == 0).then_some(());
    stack.until("nothing is in flight", idle).await?;
    let start = Arc::new(Barrier::new(requests.len()));
    let mut workers = HashSet::new();
    let mut clients = JoinSet::new();
    for request in requests {
        let mut connection = WorkerConnection::open(stack.listen()).await?;
        workers.insert(connection.incarnation.clone());
        let start = Arc::clone(&start);
        clients.spawn(async move {
            start.wait().await;
            connection.served(&request).await
        });
    }
    assert_eq!(workers.len(), WORKERS, "the connections are not spread over the workers");
    let mut served = BTreeMap::new();
    for engine in clients.join_all().await {
        *served.entry(engine?).or_insert(0) += 1;
    }
    Ok(served)
}

#[tokio::test(flavor = "multi_thread")]
async fn different_cold_prompts_spread_evenly() -> Result<()> {
    let stack = stack().await?;
    for _ in 0..REPEATS {
        let requests = (0..BURST).map(|_| Request::chat(&chat(&fresh_text(1000), 4))).collect();
        let served = burst(&stack, requests).await?;
        let busiest = served.values().max();
        // One and a half times the fair share of eight.
        assert!(busiest <= Some(&12), "{served:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn siblings_of_one_new_prompt_stay_together() -> Result<()> {
    let stack = stack().await?;
    for _ in 0..REPEATS {
        let sibling = Request::chat(&chat(&fresh_text(8000), 4));
        let served = burst(&stack, vec![sibling; BURST]).await?;
        assert!(served.len() <= 2, "{served:?}");
    }
    Ok(())
}
