//! One test for each filter.

use crate::bed::{Bed, Load, long, picker_config, short};
use anyhow::Result;
use e2e::prompts::fresh_text;

/// Sends until every one of `expected` has answered, and nobody else.
async fn only(bed: &Bed, expected: &[usize]) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..12 {
        seen.insert(bed.served_by(&short()).await?);
    }
    assert!(seen.iter().all(|engine| expected.contains(engine)), "{seen:?} {expected:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_decide_who_may_serve() -> Result<()> {
    let labels: [&[(&str, &str)]; 4] = [
        &[("tier", "a"), ("llm-d.ai/role", "decode")],
        &[("tier", "b"), ("llm-d.ai/role", "prefill")],
        &[("tier", "b"), ("llm-d.ai/role", "encode")],
        &[],
    ];
    let selector = "- type: label-selector-filter\n  parameters:\n    matchLabels: {tier: b}\n    \
                    matchExpressions:\n    - {key: llm-d.ai/role, operator: NotIn, values: [encode]}";
    let mut bed = Bed::start(&labels, &picker_config(selector, &["label-selector-filter"])).await?;
    only(&bed, &[1]).await?;
    let by_label =
        "- type: by-label\n  parameters: {label: tier, validValues: [a], allowsNoLabel: true}";
    for (plugins, name, expected) in [
        ("- type: decode-filter", "decode-filter", &[0, 3][..]),
        ("- type: prefill-filter", "prefill-filter", &[1]),
        ("- type: encode-filter", "encode-filter", &[2]),
        (by_label, "by-label", &[0, 3]),
    ] {
        bed.configure(&picker_config(plugins, &[name])).await?;
        only(&bed, expected).await?;
    }
    // Nobody left: as llm-d says it.
    let nobody = "- type: label-selector-filter\n  parameters: {matchLabels: {tier: z}}";
    bed.configure(&picker_config(nobody, &["label-selector-filter"])).await?;
    let refused = bed.send(&short()).await?;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("x-llm-d-request-dropped-reason"), Some("rejected-saturated"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn loaded_endpoints_are_left_out() -> Result<()> {
    let plugins = "
- type: utilization-filter
  name: drop-overloaded
  parameters:
    conditions:
    - {metric: kv-cache-utilization, maxValue: 0.9}
    - {metric: waiting-queue, maxValue: 4}
    fallbackOnEmpty: true
- type: random-picker";
    let used = ["drop-overloaded", "random-picker"];
    let bed = Bed::start(&[&[], &[], &[]], &picker_config(plugins, &used)).await?;
    bed.load(0, Load { kv_usage: 0.95, ..Load::default() }).await?;
    bed.load(1, Load { waiting: 5, ..Load::default() }).await?;
    only(&bed, &[2]).await?;
    // With everybody over a limit, all of them count again.
    bed.load(2, Load { waiting: 9, ..Load::default() }).await?;
    only(&bed, &[0, 1, 2]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_prefix_draws_until_its_endpoint_is_far_behind() -> Result<()> {
    let plugins = "- type: prefix-cache-affinity-filter\n- type: queue-scorer";
    let used = ["prefix-cache-affinity-filter", "queue-scorer"];
    let bed = Bed::start(&[&[], &[], &[]], &picker_config(plugins, &used)).await?;
    let text = fresh_text(2000);
    let first = bed.served_by(&long(&text)).await?;
    bed.load(first, Load { waiting: 3, ..Load::default() }).await?;
    for _ in 0..6 {
        assert_eq!(bed.served_by(&long(&text)).await?, first);
    }
    // Another prompt goes by the queue alone.
    assert_ne!(bed.served_by(&long(&fresh_text(2000))).await?, first);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_token_brings_a_client_back() -> Result<()> {
    let plugins = "- type: session-affinity-filter\n- type: queue-scorer";
    let used = ["session-affinity-filter", "queue-scorer"];
    let mut bed = Bed::start(&[&[], &[], &[]], &picker_config(plugins, &used)).await?;
    let answer = bed.send(&short()).await?;
    let token = answer.header("x-session-token").expect("a session token").to_owned();
    let first = answer.json()["engine"].as_str().unwrap().to_owned();
    let first = bed.engines.iter().position(|e| e.address.to_string() == first).unwrap();
    bed.load(first, Load { waiting: 7, ..Load::default() }).await?;
    let back = short().header("x-session-token", &token);
    for _ in 0..5 {
        assert_eq!(bed.served_by(&back).await?, first);
    }
    assert_ne!(bed.served_by(&short()).await?, first);
    // By an ID: the endpoint is remembered, whatever the others' queues are.
    let plugins = "- type: session-affinity-scorer\n  parameters: {strategy: session_id}\n- type: queue-scorer";
    bed.configure(&picker_config(plugins, &["session-affinity-scorer", "queue-scorer"])).await?;
    let mine = short().header("x-session-id", "s-1");
    let at = bed.served_by(&mine).await?;
    for _ in 0..5 {
        assert_eq!(bed.served_by(&mine).await?, at);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metric_of_ones_own_filters_and_scores() -> Result<()> {
    let extractor = "
- type: metrics-data-source
- type: core-metrics-extractor
  parameters:
    engineConfigs:
    - name: vllm
      queuedRequestsSpec: vllm:num_requests_waiting
      runningRequestsSpec: vllm:num_requests_running
      kvUsageSpec: vllm:kv_cache_usage_perc
      customMetrics:
      - {attributeKey: temperature, metricSpec: my_temperature}";
    let filter = format!(
        "{extractor}
- type: endpoint-attribute-filter
  parameters:
    attribute: temperature
    algorithm: {{type: threshold, threshold: {{operator: LessThan, value: 80}}}}
- type: random-picker"
    );
    let source = "\ndataLayer:\n  sources:\n  - pluginRef: metrics-data-source\n    extractors:\n    - pluginRef: core-metrics-extractor\n";
    let config = picker_config(&filter, &["endpoint-attribute-filter", "random-picker"]) + source;
    let mut bed = Bed::start(&[&[], &[], &[]], &config).await?;
    for (engine, degrees) in bed.engines.iter().zip([90, 70, 60]) {
        engine.show(format!("{}my_temperature {degrees}\n", Load::default().metrics()));
    }
    let cool = async || {
        let mut seen = Vec::new();
        for _ in 0..8 {
            seen.push(bed.served_by(&short()).await.ok()?);
        }
        (!seen.contains(&0)).then_some(())
    };
    bed.stack.until("the hot engine left out", cool).await?;
    let scorer = format!(
        "{extractor}
- type: endpoint-attribute-scorer
  parameters: {{attributeKey: temperature, algorithm: {{type: linear_lower_is_better}}}}"
    );
    bed.configure(&(picker_config(&scorer, &["endpoint-attribute-scorer"]) + source)).await?;
    for _ in 0..4 {
        assert_eq!(bed.served_by(&short()).await?, 2);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_go_where_their_length_belongs() -> Result<()> {
    let label = "llm-d.ai/context-length-range";
    let labels: [&[(&str, &str)]; 2] = [&[(label, "0-200")], &[(label, "200-100000")]];
    let plugins = "- type: context-length-aware\n  parameters: {enableFiltering: true}";
    let mut bed = Bed::start(&labels, &picker_config(plugins, &["context-length-aware"])).await?;
    for plugins in [plugins, "- type: context-length-aware"] {
        if plugins.len() < 40 {
            bed.configure(&picker_config(plugins, &["context-length-aware"])).await?;
        }
        assert_eq!(bed.served_by(&short()).await?, 0);
        assert_eq!(bed.served_by(&long(&fresh_text(4000))).await?, 1);
    }
    Ok(())
}
