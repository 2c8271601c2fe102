//! Plugins around the pick: how a request is read, how endpoints are watched, who goes first.

use crate::bed::{Bed, Load, picker_config, short};
use anyhow::Result;
use e2e::client::Request;
use serde_json::json;

fn with_parsers(parsers: &[&str]) -> String {
    let mut plugins = String::from("- type: prefix-cache-scorer");
    let mut refs = String::from("requestHandler:\n  parsers:\n");
    for parser in parsers {
        plugins.push_str(&format!("\n- type: {parser}"));
        refs.push_str(&format!("  - pluginRef: {parser}\n"));
    }
    picker_config(&plugins, &["prefix-cache-scorer"]) + &refs
}

#[tokio::test(flavor = "multi_thread")]
async fn sglangs_ids_are_read_and_what_nobody_reads_passes_through() -> Result<()> {
    let ids: Vec<u32> = (0..2000).collect();
    let body = json!({"input_ids": ids, "sampling_params": {"max_new_tokens": 4}}).to_string();
    let generate = Request::post("/generate", body.clone().into());
    let generate = generate.header("content-type", "application/json");
    let raw = Request::post("/v1/rerank", "not JSON".into()).header("content-type", "text/plain");
    let mut bed = Bed::start(&[&[], &[]], &with_parsers(&["sglanghttp-parser"])).await?;
    let first = bed.served_by(&generate).await?;
    let again = bed.send(&generate.clone().id("again")).await?;
    assert_eq!(again.json()["engine"], bed.engines[first].address.to_string());
    assert_eq!(again.json()["body"], body);
    let matched = bed.stack.access("again").await?.matched_tokens();
    assert!(matched > Some(1000), "{matched:?} of 2000 ids");
    // It reads nothing else.
    assert_eq!(bed.send(&short()).await?.status, 400);
    assert_eq!(bed.send(&raw).await?.status, 400);
    bed.configure(&with_parsers(&["openai-parser", "passthrough-parser"])).await?;
    let answer = bed.send(&raw).await?;
    assert_eq!((answer.status, &answer.json()["body"]), (200, &json!("not JSON")));
    let broken = Request::post("/v1/chat/completions", "not JSON".into());
    assert_eq!(bed.send(&broken).await?.status, 400, "the other parser reads this path");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_data_layer_loads_and_the_load_is_still_scraped() -> Result<()> {
    let plugins = "
- type: metrics-data-source
  parameters: {scheme: http, path: /metrics}
- type: core-metrics-extractor
- type: models-data-source
- type: models-data-extractor
- type: file-discovery
  parameters: {path: /etc/llm-d/endpoints.yaml, watchFile: true}
- type: k8s-notification-source
- type: endpoint-notification-source
- type: queue-scorer";
    let data_layer = "
dataLayer:
  sources:
  - pluginRef: metrics-data-source
    extractors: [{pluginRef: core-metrics-extractor}]
  - pluginRef: models-data-source
    extractors: [{pluginRef: models-data-extractor}]
  - pluginRef: endpoint-notification-source
  discovery: {pluginRef: file-discovery}
";
    let config = picker_config(plugins, &["queue-scorer"]) + data_layer;
    let between = picker_config("- type: random-picker", &["random-picker"]);
    let mut bed = Bed::start(&[&[], &[]], &between).await?;
    bed.configure(&config).await?;
    for (busy, idle) in [(0, 1), (1, 0)] {
        bed.load(busy, Load { waiting: 9, ..Load::default() }).await?;
        bed.load(idle, Load::default()).await?;
        assert_eq!(bed.served_by(&short()).await?, idle);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_of_flow_control_lets_a_request_go() -> Result<()> {
    let config = |ordering: &str, fairness: &str, limit: &str| {
        format!(
            "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {{type: {ordering}}}
- {{type: {fairness}}}
- {{type: {limit}}}
- {{type: sheddable-eviction-filter}}
- {{type: priority-then-time-eviction-order-policy}}
- {{type: concurrency-detector}}
- {{type: random-picker}}
schedulingProfiles:
- name: default
  plugins: [{{pluginRef: random-picker}}]
flowControl:
  enableEviction: true
  saturationDetector: {{pluginRef: concurrency-detector}}
  usageLimitPolicyPluginRef: {limit}
  priorityBands:
  - {{priority: 0, orderingPolicyRef: {ordering}, fairnessPolicyRef: {fairness}}}
"
        )
    };
    let between = picker_config("- type: random-picker", &["random-picker"]);
    let mut bed = Bed::start(&[&[]], &between).await?;
    for (ordering, fairness, limit) in [
        ("edf-ordering-policy", "program-aware-fairness", "static-usage-limit-policy"),
        ("fcfs-ordering-policy", "global-strict-fairness-policy", "soft-reflective-ceiling-policy"),
    ] {
        bed.configure(&config(ordering, fairness, limit)).await?;
        for _ in 0..4 {
            assert_eq!(bed.served_by(&short()).await?, 0);
        }
    }
    Ok(())
}
