//! The tenant that stands for everybody without a known credential.

use crate::bed::{KEY_A, short, tenants, usage};
use anyhow::{Context as _, Result};
use e2e::client::{self, Request};
use e2e::prompts::chat;
use e2e::state::arrival;
use e2e::{Setup, Stack};

/// A budget for three requests, and a tier.
const ANONYMOUS: &str = "---\napiVersion: warmroute/v1alpha1\nkind: TenantQuota\nmetadata: {name: anonymous}\nspec:\n  \
                         inject: {fairnessId: guests, tier: free}\n  limits: [{model: '*', rpm: 3}]\n";

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_unknown_shares_the_anonymous_tenants_budget() -> Result<()> {
    let stack = Stack::start(Setup::new(2, 4).document(&(tenants("", "") + ANONYMOUS))).await?;
    let nobody = Request::chat(&chat("Hi", 2));
    let guests = [
        nobody.clone(),
        nobody.clone().header("authorization", "Bearer sk-nobody-knows-this"),
        nobody.clone().header("x-api-key", "sk-nobody-knows-this"),
    ];
    for (at, request) in guests.into_iter().enumerate() {
        let id = format!("guest-{at}");
        let answer = client::send(stack.listen(), &request.id(&id)).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("3"));
        let engines = stack.engines().await?;
        let (_, arrived) = arrival(&engines, &id).context("its arrival")?;
        assert_eq!(arrived.header("x-llm-d-inference-fairness-id"), ["guests"]);
        assert_eq!(arrived.header("x-tenant-tier"), ["free"]);
        assert_eq!(stack.access(&id).await?.tenant.as_deref(), Some("anonymous"));
    }
    // One budget for all of them, and none of anybody else's.
    let refused = client::send(stack.listen(), &nobody.header("x-api-key", "another")).await?;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    let known = client::send(stack.listen(), &short(KEY_A, 2)).await?;
    assert_eq!((known.status, known.header("x-ratelimit-limit-requests")), (200, None));
    usage(&stack, "anonymous", |total| total["requests"] == 4).await?;
    usage(&stack, "a", |total| total["requests"] == 1).await?;
    Ok(())
}
