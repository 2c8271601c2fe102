//! Many requests at the same moment, on all workers, before any engine could tell of its load.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::client::Request;
use e2e::prompts::{chat, fresh_text};
use e2e::stack::PATIENCE;
use e2e::workers::{WorkerConnection, one_each};
use e2e::{Setup, Stack};
use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const ENGINES: usize = 8;
const WORKERS: usize = 4;
const BURST: usize = 64;
const REPEATS: usize = 5;

/// Eight equal engines whose metrics stay those of an engine at rest.
async fn stack(prefill_rate: &str) -> Result<Stack> {
    let setup = Setup::new(ENGINES, WORKERS).simulator(&["--prefill-rate", prefill_rate]);
    let stack = Stack::start(setup).await?;
    freeze(&stack, ENGINES).await?;
    Ok(stack)
}

async fn freeze(stack: &Stack, engines: usize) -> Result<()> {
    for replica in 0..engines {
        stack.simulator.fault(&json!({"replica": replica, "fault": "metrics_freeze"})).await?;
    }
    Ok(())
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
    let stack = stack("16000").await?;
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
    // Siblings that come before the first one is computed are computed as well: 360,000 tokens.
    let stack = stack("300000").await?;
    for _ in 0..REPEATS {
        let sibling = Request::chat(&chat(&fresh_text(8000), 4));
        let served = burst(&stack, vec![sibling; BURST]).await?;
        assert!(served.len() <= 2, "{served:?}");
    }
    Ok(())
}

/// No scrape tells of them, and no prompt is shared: only the picks themselves can.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_worker_picked_counts_on_the_others() -> Result<()> {
    const ENGINES: usize = 4;
    // Prompts that take seconds, so that all are still in flight when the last one is picked.
    let stack =
        Stack::start(Setup::new(ENGINES, WORKERS).simulator(&["--prefill-rate", "200"])).await?;
    freeze(&stack, ENGINES).await?;
    let mut clients = JoinSet::new();
    for (before, mut worker) in one_each(stack.listen(), WORKERS).await?.into_iter().enumerate() {
        // This worker has heard of the picks of those before it.
        let limit = tokio::time::Instant::now() + PATIENCE;
        while worker.state().await?.in_flight < before as u64 {
            ensure!(tokio::time::Instant::now() < limit, "pick {before} is not seen");
        }
        clients
            .spawn(async move { worker.served(&Request::chat(&chat(&fresh_text(1000), 1))).await });
    }
    let served: Result<HashSet<String>> = clients.join_all().await.into_iter().collect();
    assert_eq!(served?.len(), ENGINES);
    Ok(())
}
