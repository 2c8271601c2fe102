//! Equal engines: chance decides, in each worker by itself.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use e2e::client::{Request, send};
use e2e::prompts::{chat, fresh_text};
use e2e::workers::one_each;
use e2e::{Setup, Stack};

/// Shorter than a block: no prefix decides.
fn request() -> Request {
    Request::chat(&chat(&fresh_text(20), 1))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_at_a_time_reaches_all_engines_alike() -> Result<()> {
    const REQUESTS: usize = 400;
    let stack = Stack::start(Setup::new(4, 4).simulator(&["--time-scale", "20"])).await?;
    let mut served = BTreeMap::new();
    for _ in 0..REQUESTS {
        let answer = send(stack.listen(), &request()).await?;
        let engine = answer.engine().context("not served")?.to_owned();
        *served.entry(engine).or_insert(0) += 1;
    }
    // 15 of 100. With 400 a fair choice misses that once in a hundred thousand runs.
    assert!(served.len() == 4 && served.values().all(|&n| n >= REQUESTS * 15 / 100), "{served:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_do_not_roll_the_same_dice() -> Result<()> {
    const WORKERS: usize = 4;
    const ROUNDS: usize = 16;
    let stack = Stack::start(Setup::new(4, WORKERS).simulator(&["--time-scale", "20"])).await?;
    let mut workers = one_each(stack.listen(), WORKERS).await?;
    // No engine has got anything since its last scrape: all are equal again.
    let equal = async || {
        let state = stack.filter_state().await.ok()?;
        state
            .endpoints
            .iter()
            .all(|e| e.in_flight.waiting == 0 && e.waiting == Some(0.0))
            .then_some(())
    };
    let (mut same, mut pairs) = (0, 0);
    for _ in 0..ROUNDS {
        let mut picks: Vec<String> = Vec::new();
        for worker in &mut workers {
            stack.until("equal engines", equal).await?;
            picks.push(worker.served(&request()).await?);
        }
        for (index, pick) in picks.iter().enumerate() {
            same += picks[..index].iter().filter(|other| *other == pick).count();
            pairs += index;
        }
    }
    // A quarter by chance; half is six standard deviations off. With one seed for all it would be all.
    assert!(same * 2 < pairs, "{same} of {pairs} pairs of workers chose the same engine");
    Ok(())
}
