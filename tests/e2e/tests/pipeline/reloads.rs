//! Configuration changes while requests are served.

use crate::bed::{Bed, Load, picker_config, short};
use anyhow::Result;
use e2e::background_load::Load as Clients;
use e2e::workers::one_each;
use e2e::{Setup, Stack};

/// The shape of the article's `epp-config.yaml`.
pub(crate) const ARTICLE: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: llama-epp-config
  namespace: serving
data:
  epp-config.yaml: |
    apiVersion: llm-d.ai/v1alpha1
    kind: EndpointPickerConfig
    featureGates:
      - flowControl
    plugins:
      - type: approx-prefix-cache-producer
        parameters: {blockSizeTokens: 64, maxPrefixTokensToMatch: 16384, lruCapacityPerServer: 31250}
      - type: inflight-load-producer
      - type: prefix-cache-affinity-filter
      - type: utilization-filter
        name: drop-overloaded
        parameters:
          conditions:
            - {metric: kv-cache-utilization, maxValue: 0.9}
            - {metric: waiting-queue, maxValue: 4}
          fallbackOnEmpty: true
      - type: prefix-cache-scorer
        parameters: {matchLengthWeight: 0.3, matchLengthScaleTokens: 8192}
      - type: queue-scorer
      - type: kv-cache-utilization-scorer
      - type: lora-affinity-scorer
      - type: max-score-picker
      - type: single-profile-handler
      - type: round-robin-fairness-policy
      - type: fcfs-ordering-policy
      - type: concurrency-detector
        parameters: {maxConcurrency: 128, concurrencyMode: requests, headroom: 0.0}
    schedulingProfiles:
      - name: default
        plugins:
          - pluginRef: prefix-cache-affinity-filter
          - pluginRef: drop-overloaded
          - {pluginRef: prefix-cache-scorer, weight: 3}
          - {pluginRef: queue-scorer, weight: 2}
          - {pluginRef: kv-cache-utilization-scorer, weight: 2}
          - {pluginRef: lora-affinity-scorer, weight: 1}
          - pluginRef: max-score-picker
    flowControl:
      maxBytes: "10Gi"
      maxRequests: "1k"
      defaultRequestTTL: "60s"
      saturationDetector: {pluginRef: concurrency-detector}
      priorityBands:
        - {priority: 100, maxRequests: "500", fairnessPolicyRef: round-robin-fairness-policy, orderingPolicyRef: fcfs-ordering-policy}
        - {priority: 0, maxRequests: "200", fairnessPolicyRef: round-robin-fairness-policy, orderingPolicyRef: fcfs-ordering-policy}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_articles_configuration_drives_the_pick() -> Result<()> {
    let bed = Bed::start(&[&[], &[], &[]], ARTICLE).await?;
    // Out by its KV utilization; then the queue decides.
    bed.load(0, Load { kv_usage: 0.95, ..Load::default() }).await?;
    bed.load(1, Load { waiting: 3, kv_usage: 0.2, ..Load::default() }).await?;
    bed.load(2, Load { waiting: 1, kv_usage: 0.3, ..Load::default() }).await?;
    for _ in 0..4 {
        assert_eq!(bed.served_by(&short()).await?, 2);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_document_is_refused_and_the_old_behaviour_kept() -> Result<()> {
    let good = picker_config("- type: queue-scorer", &["queue-scorer"]);
    let mut bed = Bed::start(&[&[], &[]], &good).await?;
    bed.load(0, Load { waiting: 5, ..Load::default() }).await?;
    assert_eq!(bed.served_by(&short()).await?, 1);
    let before = bed.stack.filter_state().await?.policy.revision;
    let bad = picker_config("- type: queue-scorre", &["queue-scorre"]);
    bed.stack.write_documents(&format!("---\n{bad}\n"))?;
    let agent = bed.stack.agent.as_ref().expect("an agent");
    let log = agent.process.log();
    let refused = async || {
        let text = std::fs::read_to_string(log).ok()?;
        text.contains("queue-scorre").then_some(text)
    };
    let text = bed.stack.until("the refusal in the agent's log", refused).await?;
    assert!(text.contains("queue-scorer"), "the nearest name is told");
    assert_eq!(bed.served_by(&short()).await?, 1);
    assert_eq!(bed.stack.filter_state().await?.policy.revision, before);
    // The next good one counts at once.
    bed.configure(&picker_config("- type: random-picker", &["random-picker"])).await
}

/// Envoy's workers below.
const WORKERS: usize = 2;

const RELOADS: usize = 200;

/// After so many reloads another listener is pushed.
const PUSH_EVERY: usize = 10;

/// From here on memory must not grow.
const SETTLED: usize = 20;

/// The same scorers, weighed differently.
fn weighed(weight: usize) -> String {
    picker_config(
        "- type: queue-scorer\n- type: prefix-cache-scorer",
        &["queue-scorer", "prefix-cache-scorer"],
    )
    .replace("pluginRef: queue-scorer", &format!("{{pluginRef: queue-scorer, weight: {weight}}}"))
}

/// Changes with each push.
fn limit(push: usize) -> String {
    format!(r#", "max_body_bytes": {}"#, 1_000_000 + push)
}

/// What the largest VM takes.
async fn memory(stack: &Stack) -> Result<u64> {
    let mut most = 0;
    for worker in &mut one_each(stack.listen(), WORKERS).await? {
        most = most.max(worker.state().await?.memory_bytes);
    }
    Ok(most)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_reloads_and_twenty_pushes_fail_no_request_and_take_no_memory() -> Result<()> {
    let mut setup =
        Setup::new(2, WORKERS).simulator(&["--time-scale", "100"]).document(&weighed(1));
    // A change counts after two looks: with the default interval most of this would be waiting.
    setup = setup.agent(&["--config-interval", "30ms"]);
    setup.listener_file = true;
    // Connections of a former listener may still end in peace.
    setup.envoy_arguments = ["--drain-time-s", "2"].map(str::to_owned).to_vec();
    setup.plugin_config_extra = limit(0);
    let mut stack = Stack::start(setup).await?;
    let clients = Clients::on_new_connections(stack.listen(), 2);
    let mut revision = stack.filter_state().await?.policy.revision;
    let mut settled = 0;
    for reload in 1..=RELOADS {
        stack.write_documents(&format!("---\n{}\n", weighed(reload + 1)))?;
        let changed = async || {
            let now = stack.filter_state().await.ok()?.policy.revision;
            (now != revision).then_some(now)
        };
        revision = stack.until(&format!("reload {reload} in the filter"), changed).await?;
        if reload % PUSH_EVERY == 0 {
            let number = reload / PUSH_EVERY;
            let (from, to) = (limit(number - 1), limit(number));
            stack.push_listener_taken(|listener| listener.replace(&from, &to)).await?;
        }
        if reload == SETTLED {
            settled = memory(&stack).await?;
        }
    }
    let last = memory(&stack).await?;
    let outcomes = clients.stop().await;
    let failed: Vec<_> = outcomes.iter().filter(|outcome| !outcome.fine()).collect();
    assert!(failed.is_empty(), "{} of {}: {:?}", failed.len(), outcomes.len(), failed.first());
    assert!(outcomes.len() > RELOADS, "{} requests", outcomes.len());
    assert!(
        last * 10 <= settled * 11,
        "{settled} bytes after {SETTLED} reloads, {last} after the last"
    );
    Ok(())
}
