//! Whose request it is.

use crate::bed::{KEY_A, KEY_B, short, tenants, usage};
use anyhow::{Context as _, Result};
use e2e::client::{self, Request};
use e2e::prompts::chat;
use e2e::state::arrival;
use e2e::{Setup, Stack};
use serde_json::json;
use warmroute_demo::processes::get;

const UNKNOWN_KEY: &str = "sk-nobody-knows-this";

#[tokio::test(flavor = "multi_thread")]
async fn a_key_says_whose_request_it_is_and_goes_no_further() -> Result<()> {
    let of_a = "  inject: {fairnessId: team-a, objective: premium, tier: gold}\n  \
                limits: [{model: '*', rpm: 600, tpm: 100000}]";
    let premium = "---\napiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: premium}\n\
                   spec: {priority: 7, poolRef: {name: default}}\n";
    let setup = Setup::new(2, 4).document(&(tenants(of_a, "") + premium));
    let stack = Stack::start(setup).await?;

    // Nobody's key, and none.
    let nobody = Request::chat(&chat("Hi", 2));
    for request in [
        nobody.clone(),
        nobody.clone().header("authorization", &format!("Bearer {UNKNOWN_KEY}")),
        nobody.clone().header("x-api-key", UNKNOWN_KEY),
        nobody.clone().header("authorization", "Basic xyz"),
    ] {
        let refused = client::send(stack.listen(), &request).await?;
        assert_eq!(refused.status, 401, "{}", refused.text());
        let error = &refused.json()["error"];
        assert_eq!(error["code"], "invalid_api_key", "{}", refused.text());
        assert!(error["message"].is_string());
        assert!(!refused.text().contains(UNKNOWN_KEY));
    }

    // A's, with what it must not say of itself.
    let request = short(KEY_A, 3)
        .id("of-a")
        .header("x-gateway-inference-fairness-id", "somebody-else")
        .header("x-llm-d-inference-objective", "stolen")
        .header("x-tenant-tier", "platinum");
    let answer = client::send(stack.listen(), &request).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("600"));
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), Some("599"));
    assert_eq!(answer.header("x-ratelimit-limit-tokens"), Some("100000"));
    assert!(answer.header("x-ratelimit-reset-tokens").is_some());
    let engines = stack.engines().await?;
    let (_, arrived) = arrival(&engines, "of-a").expect("its arrival");
    assert_eq!(arrived.header("authorization"), Vec::<&str>::new());
    // The tenant's word alone, in one spelling.
    for (name, values) in [
        ("x-gateway-inference-fairness-id", &[][..]),
        ("x-llm-d-inference-fairness-id", &["team-a"]),
        ("x-gateway-inference-objective", &[]),
        ("x-llm-d-inference-objective", &["premium"]),
        ("x-tenant-tier", &["gold"]),
    ] {
        assert_eq!(arrived.header(name), values, "{name}");
    }
    let access = stack.access("of-a").await?;
    assert_eq!(access.fairness_id.as_deref(), Some("team-a"));
    assert_eq!(access.priority.as_deref(), Some("7"));

    // B's by the other header; it has no limits, hence no headers that tell of them.
    let request = Request::chat(&chat("Hi", 4)).header("x-api-key", KEY_B).id("of-b");
    let answer = client::send(stack.listen(), &request).await?;
    assert_eq!((answer.status, answer.header("x-ratelimit-limit-requests")), (200, None));
    let engines = stack.engines().await?;
    let (_, arrived) = arrival(&engines, "of-b").expect("its arrival");
    assert_eq!(arrived.header("x-api-key"), Vec::<&str>::new());

    // Both are in the ledger, as the engines counted.
    for (tenant, answer_tokens) in [("a", 3), ("b", 4)] {
        let total = usage(&stack, tenant, |total| total["requests"] == 1).await?;
        assert_eq!(total["output"], json!(answer_tokens), "{tenant}: {total}");
    }

    // No key in any log, metric or page.
    stack.access("of-b").await?;
    let agent = stack.agent.as_ref().context("no agent")?.address;
    let mut texts = vec![("Envoy's metrics".to_owned(), stack.envoy.prometheus().await?.into())];
    for path in ["/metrics", "/"] {
        let page = get(agent, path).await?;
        assert_eq!(page.status, 200, "{path}");
        texts.push((format!("the agent's {path}"), page.body.to_vec()));
    }
    for entry in std::fs::read_dir(stack.dir())? {
        let path = entry?.path();
        if path.is_file() {
            texts.push((path.display().to_string(), std::fs::read(&path)?));
        }
    }
    for (place, bytes) in texts {
        let text = String::from_utf8_lossy(&bytes);
        for key in [KEY_A, KEY_B, UNKNOWN_KEY] {
            assert!(!text.contains(key), "{place} has a key");
        }
    }
    Ok(())
}
