//! Two Envoys on one agent: a budget each, and one ledger.

use crate::bed::{KEY_A, short, tenants, usage};
use anyhow::Result;
use e2e::client;
use e2e::state::FilterState;
use e2e::{Setup, Stack};

#[tokio::test(flavor = "multi_thread")]
async fn each_envoy_has_a_budget_of_its_own_and_the_ledger_has_both() -> Result<()> {
    let of_a = "  limits: [{model: '*', rpm: 3}]";
    let stack = Stack::start(Setup::new(2, 2).document(&tenants(of_a, ""))).await?;
    let another = stack.another_envoy().await?;
    let told = async || {
        let state = FilterState::ask(another.listen).await.ok()?;
        (state.endpoints.iter().filter(|endpoint| endpoint.ready).count() == 2).then_some(())
    };
    stack.until("a table in the other Envoy", told).await?;
    for listen in [stack.listen(), another.listen] {
        for expected in [200, 200, 200, 429] {
            let answer = client::send(listen, &short(KEY_A, 2)).await?;
            assert_eq!(answer.status, expected, "{}", answer.text());
        }
    }
    let total = usage(&stack, "a", |total| total["requests"] == 8).await?;
    assert_eq!(total["output"], 12, "{total}");
    Ok(())
}
