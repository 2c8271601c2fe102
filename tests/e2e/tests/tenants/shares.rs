//! Two tenants that both push as hard as they can.

use crate::bed::{KEY_A, KEY_B, keyed, tenants};
use crate::queues::flow_control_with;
use anyhow::Result;
use e2e::client::Connection;
use e2e::prompts::{chat, fresh_text};
use e2e::state::EngineState;
use e2e::{Setup, Stack};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::JoinSet;

/// Enough that each tenant always has requests that wait.
const CLIENTS: usize = 16;
const REPLY_TOKENS: u32 = 10;
/// Bytes of the prompts: B's are long.
const PROMPT_A: usize = 200;
const PROMPT_B: usize = 2500;

/// What the engines got of a tenant: requests, and tokens of prompts and answers.
#[derive(Clone, Copy, Debug, Default)]
struct Got {
    requests: u64,
    tokens: u64,
}

fn got(engines: &[EngineState], tenant: &str) -> Got {
    let mut got = Got::default();
    for request in engines.iter().flat_map(|engine| &engine.requests) {
        if request.header("x-llm-d-inference-fairness-id") == [tenant] {
            got.requests += 1;
            got.tokens += request.prompt_tokens + u64::from(REPLY_TOKENS);
        }
    }
    got
}

/// What both got while both had requests that waited, until B got some `requests`.
async fn compete(fairness: &str, requests: usize) -> Result<(Got, Got)> {
    let name = fairness.split([',', ' ']).next().unwrap_or_default();
    let bands = format!("  priorityBands: [{{priority: 0, fairnessPolicyRef: {name}}}]\n");
    let policy = format!("- {{type: {fairness}}}\n");
    let setup = Setup::new(2, 4)
        .document(&(tenants("", "") + &flow_control_with(&policy, 3, &bands)))
        .simulator(&["--time-scale", "5", "--record-requests", "100000"]);
    let stack = Stack::start(setup).await?;
    let done = Arc::<AtomicUsize>::default();
    let mut clients = JoinSet::new();
    for (key, bytes) in [(KEY_A, PROMPT_A), (KEY_B, PROMPT_B)] {
        for _ in 0..CLIENTS {
            let (listen, done) = (stack.listen(), Arc::clone(&done));
            clients.spawn(async move {
                let mut connection = Connection::open(listen).await?;
                loop {
                    let request = keyed(key, &chat(&fresh_text(bytes), REPLY_TOKENS));
                    let answer = connection.send(&request).await?;
                    anyhow::ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
                    if key == KEY_B {
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                }
                #[allow(unreachable_code)]
                Ok(())
            });
        }
    }
    let of_b = async |count: usize| {
        let enough = async || (done.load(Ordering::SeqCst) >= count).then_some(());
        stack.until_for(2 * e2e::stack::PATIENCE, &format!("{count} of B's"), enough).await
    };
    of_b(8).await?;
    let before = stack.engines().await?;
    of_b(8 + requests).await?;
    let after = stack.engines().await?;
    while let Some(ended) = clients.try_join_next() {
        ended??;
    }
    clients.shutdown().await;
    let between = |tenant: &str| {
        let (before, after) = (got(&before, tenant), got(&after, tenant));
        Got { requests: after.requests - before.requests, tokens: after.tokens - before.tokens }
    };
    Ok((between("a"), between("b")))
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::cast_precision_loss)]
async fn tokens_are_shared_by_weight() -> Result<()> {
    let fairness = "weighted-token-fairness-policy, parameters: {weights: {a: 3, b: 1}}";
    let (a, b) = compete(fairness, 50).await?;
    let share = a.tokens as f64 / (a.tokens + b.tokens) as f64;
    assert!((share - 0.75).abs() < 0.75 * 0.05, "A has {share}: {a:?}, B: {b:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_are_equal_in_round_robin() -> Result<()> {
    let (a, b) = compete("round-robin-fairness-policy", 100).await?;
    assert!(a.requests.abs_diff(b.requests) <= 5, "A: {a:?}, B: {b:?}");
    assert!(b.tokens > 5 * a.tokens, "A: {a:?}, B: {b:?}");
    Ok(())
}
