//! Profile handlers and deciders: whose profile a request runs, and where its prompt is computed.

use crate::bed::{Bed, long, picker_config, roles_config, short};
use anyhow::{Context as _, Result};
use e2e::client;
use e2e::prompts::fresh_text;
use e2e::{Setup, Stack};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn a_header_names_the_profile() -> Result<()> {
    let labels: [&[(&str, &str)]; 2] =
        [&[("llm-d.ai/role", "decode")], &[("llm-d.ai/role", "prefill")]];
    let config = roles_config("- type: header-profile-handler", ["decode", "prefill"]);
    let bed = Bed::start(&labels, &config).await?;
    assert_eq!(bed.served_by(&short()).await?, 0);
    assert_eq!(bed.served_by(&short().header("EPP-Profile", "prefill")).await?, 1);
    assert_eq!(bed.send(&short().header("EPP-Profile", "nobody")).await?.status, 400);
    Ok(())
}

fn disaggregated(decider: &str, order: &str) -> String {
    let deciders = if order == "decode-first" { "{prefill: decider}" } else { "{}" };
    let plugins = format!(
        "{decider}
- type: disagg-profile-handler
  parameters:
    stageOrder: {order}
    deciders: {deciders}"
    );
    roles_config(&plugins, ["decode", "prefill"])
}

/// Requests of an engine, as the simulator tells them.
async fn requests(stack: &Stack, engine: usize) -> Result<Vec<Value>> {
    let state = stack.simulator.state().await?;
    let replicas = state["replicas"].as_array().context("replicas")?;
    let of = &replicas.get(engine).context("engine")?["requests"];
    Ok(of.as_array().cloned().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_uncached_prompt_is_computed_by_a_prefill_engine() -> Result<()> {
    let role = |role: &'static str| vec![("llm-d.ai/role", role)];
    let decider =
        "- type: prefix-based-pd-decider\n  name: decider\n  parameters: {nonCachedTokens: 200}";
    let setup = Setup::new(2, 1)
        .simulator(&["--sidecars"])
        .label(&role("decode"))
        .label(&role("prefill"))
        .document(&disaggregated(decider, "decode-first"));
    let mut stack = Stack::start(setup).await?;
    let text = fresh_text(4000);
    let answer = client::send(stack.listen(), &long(&text).id("first")).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let prefills = requests(&stack, 1).await?;
    assert_eq!(prefills.len(), 1, "computed by the prefill engine: {prefills:?}");
    let decoded = requests(&stack, 0).await?;
    assert_eq!(decoded[0]["transfer"], "decode", "{decoded:?}");
    assert_eq!(stack.access("first").await?.stages.as_deref(), Some("prefill-decode"));
    // Held by the decode engine by now: nothing is left to compute elsewhere.
    let again = client::send(stack.listen(), &long(&text).id("again")).await?;
    assert_eq!(again.status, 200);
    assert_eq!(stack.access("again").await?.stages.as_deref(), Some("decode-only"));
    assert_eq!(requests(&stack, 1).await?.len(), 1);
    // Too short to be worth it.
    client::send(stack.listen(), &short().id("short")).await?;
    assert_eq!(stack.access("short").await?.stages.as_deref(), Some("decode-only"));
    let total = "llm_d_epp_disagg_decision_total";
    let counted = stack.envoy.prometheus().await?;
    let decisions: Vec<&str> = counted.lines().filter(|line| line.starts_with(total)).collect();
    let one = decisions.iter().find(|line| line.contains(r#"decision_type="prefill-decode""#));
    assert!(one.is_some_and(|line| line.ends_with(" 1")), "{decisions:?}");
    // Always, and prefill before decode.
    for (decider, order) in [
        ("- type: always-disagg-pd-decider\n  name: decider", "decode-first"),
        ("", "prefill-first"),
    ] {
        let before = stack.filter_state().await?.policy.revision;
        stack.write_documents(&format!("---\n{}\n", disaggregated(decider, order)))?;
        let seen = &stack;
        let changed =
            async || (seen.filter_state().await.ok()?.policy.revision != before).then_some(());
        stack.until("the new handler", changed).await?;
        let count = requests(&stack, 1).await?.len();
        assert_eq!(client::send(stack.listen(), &short()).await?.status, 200);
        assert_eq!(requests(&stack, 1).await?.len(), count + 1, "{order}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_encoded_by_an_encode_engine() -> Result<()> {
    let labels: [&[(&str, &str)]; 2] =
        [&[("llm-d.ai/role", "decode")], &[("llm-d.ai/role", "encode")]];
    let plugins = "
- type: always-disagg-multimodal-decider
- type: disagg-profile-handler
  parameters: {deciders: {encode: always-disagg-multimodal-decider}}";
    let bed = Bed::start(&labels, &roles_config(plugins, ["decode", "encode"])).await?;
    let image = serde_json::json!({"model": e2e::MODEL, "messages": [{"role": "user", "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
    ]}]});
    let header = async |request: &client::Request| -> Result<Option<String>> {
        let seen = bed.send(request).await?.json();
        let headers: Vec<(String, String)> = serde_json::from_value(seen["headers"].clone())?;
        Ok(headers.into_iter().find(|(name, _)| name == "x-encoder-hosts-ports").map(|(_, v)| v))
    };
    let encoder = bed.engines[1].address.to_string();
    assert_eq!(header(&client::Request::chat(&image)).await?, Some(encoder));
    assert_eq!(header(&short()).await?, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_requests_in_flight_score() -> Result<()> {
    for scorer in ["active-request-scorer", "token-load-scorer"] {
        let config = picker_config(&format!("- type: {scorer}\n  parameters: {{}}"), &[scorer]);
        let setup = Setup::new(2, 1)
            // Each takes seconds, so that they overlap.
            .simulator(&["--time-scale", "0.2"])
            .document(&config);
        let stack = Stack::start(setup).await?;
        let listen = stack.listen();
        let texts: Vec<_> = (0..4).map(|_| fresh_text(3000)).collect();
        let mut running = tokio::task::JoinSet::new();
        for (count, text) in (1u64..).zip(texts) {
            running.spawn(async move { client::send(listen, &long(&text)).await });
            let charged = async || {
                let state = stack.filter_state().await.ok()?;
                (state.in_flight == count).then_some(())
            };
            stack.until("the request in flight", charged).await?;
        }
        let mut served = std::collections::BTreeMap::<String, u32>::new();
        while let Some(answer) = running.join_next().await {
            *served.entry(answer??.engine().unwrap_or_default().to_owned()).or_default() += 1;
        }
        assert!(served.values().all(|count| *count == 2), "{scorer}: {served:?}");
    }
    Ok(())
}
