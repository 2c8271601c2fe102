//! As many endpoints as the table has room for, and one more.

use std::collections::HashSet;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use e2e::client::{Connection, Request};
use e2e::prompts::{chat, fresh_text};
use e2e::workers::one_each;
use e2e::{Endpoint, Setup, Stack};
use serde_json::json;

/// The filter's default, and its most.
const MOST: usize = 256;

const WORKERS: usize = 2;

const REFUSED: &str = "wasmcustom.warmroute.endpoints_refused";

#[tokio::test(flavor = "multi_thread")]
async fn the_table_serves_256_endpoints_and_refuses_the_next() -> Result<()> {
    // Small engines, scraped seldom: it is their number that matters.
    let setup = Setup::new(MOST, WORKERS)
        .simulator(&["--num-blocks", "300", "--max-model-len", "4096"])
        .agent(&["--scrape-interval", "500ms"]);
    let stack = Stack::start(setup).await?;
    let mut endpoints = stack.simulated();
    let mut connection = Connection::open(stack.listen()).await?;
    let mut used = HashSet::new();
    for _ in 0..2 * MOST {
        let request = Request::chat(&chat(&fresh_text(200), 1));
        let answer = connection.send(&request).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        used.insert(answer.engine().context("x-sim-endpoint")?.to_owned());
    }
    // By chance about 221 different ones.
    assert!(used.len() > MOST * 3 / 4, "only {} endpoints are picked", used.len());

    let mut workers = one_each(stack.listen(), WORKERS).await?;
    for _ in 0..20 {
        let request = Request::chat(&chat(&fresh_text(2000), 1));
        let engine = workers[0].served(&request).await?;
        assert_eq!(workers[1].served(&request).await?, engine);
    }
    assert_eq!(stack.stat(REFUSED).await?, 0);

    let answer = stack.simulator.order("/replicas", &json!({})).await?.json();
    let address: SocketAddr = answer["endpoint"].as_str().context("its address")?.parse()?;
    endpoints.push(Endpoint::new("one-too-many", address));
    stack.write_endpoints(&endpoints)?;
    let refused = async || (stack.stat(REFUSED).await.ok()? > 0).then_some(());
    stack.until("the refusal counted", refused).await?;
    let state = stack.filter_state().await?;
    assert_eq!(state.endpoints.len(), MOST);
    assert!(state.endpoint("one-too-many").is_none());

    // With room for it, it is taken in.
    endpoints.swap_remove(0);
    stack.write_endpoints(&endpoints)?;
    let taken_in = async || {
        let state = stack.filter_state().await.ok()?;
        state.endpoints.iter().any(|endpoint| endpoint.address == address.to_string()).then_some(())
    };
    stack.until("the refused one taken in", taken_in).await?;
    assert_eq!(stack.stat("wasm.warmroute.vm_reload_success").await?, 0);
    Ok(())
}
