//! A folder of all kinds, in the shape of the article's.

use crate::bed::Bed;
use crate::former_names::check_config;
use anyhow::{Context as _, Result};
use e2e::client::Request;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const KEY: &str = "sk-tenant-a-secret";

/// Name and text of each file.
const FILES: [(&str, &str); 7] = [
    (
        "inferencepool.yaml",
        "
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: llama-bf16, namespace: default}
spec:
  selector:
    matchLabels:
      app: vllm-llama
      variant: bf16
  targetPorts:
    - number: 8000
  appProtocol: http
  endpointPickerRef:
    kind: Service
    name: llama-epp
    port:
      number: 9002
    failureMode: FailClose
",
    ),
    (
        "httproute.yaml",
        "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: llama, namespace: default}
spec:
  parentRefs:
    - group: gateway.networking.k8s.io
      kind: Gateway
      name: inference-gateway
      namespace: gateway-system
      sectionName: http
  rules:
    - matches:
        - path: {type: PathPrefix, value: /v1}
          headers:
            - name: X-Gateway-Base-Model-Name
              value: llama
      backendRefs:
        - group: inference.networking.k8s.io
          kind: InferencePool
          name: llama-bf16
          weight: 100
      timeouts:
        request: 0s          # a stream may last
",
    ),
    (
        "model-mapping.yaml",
        r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: llama-model-mapping
  namespace: default
  labels:
    inference.llm-d.ai/ipp-managed: "true"
data:
  baseModel: "llama"
  adapters: |
    - helper
    - helper-v1
    - helper-v2
"#,
    ),
    (
        "modelrewrite.yaml",
        "
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {name: helper, namespace: default}
spec:
  poolRef:
    group: inference.networking.k8s.io
    kind: InferencePool
    name: llama-bf16
  rules:
    - matches:
        - model: {type: Exact, value: helper}
      targets:
        - modelRewrite: helper-v1
          weight: 50
        - modelRewrite: helper-v2
          weight: 50
",
    ),
    (
        "objectives.yaml",
        "
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: premium-traffic, namespace: default}
spec:
  priority: 100
  poolRef:
    name: llama-bf16
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: best-effort-traffic, namespace: default}
spec:
  priority: -10
  poolRef:
    name: llama-bf16
",
    ),
    (
        "tenants/quota-a.yaml",
        r#"
apiVersion: mini-platform.local/v1alpha1
kind: TenantQuota
metadata:
  name: tenant-a
spec:
  identity:
    apiKeyHashes:
      - "a103784af7dad8eb12b288439e45a31fab09b4e001395940a78c61902d4499d6"
    jwtClaims:
      issuer: https://sso.example.internal
      tenantClaim: org
      tenantValue: product-team
  inject:
    fairnessId: tenant-a
    objective: premium-traffic
  limits:
    - model: helper
      rpm: 3000
      tpm: 3000000
      concurrency: 600
      maxCompletionTokensDefault: 1024
    - model: "*"
      rpm: 300
      tpm: 300000
      concurrency: 60
  accounting:
    preDebit: input_plus_max_output
    settleOn: usage_or_chunk_count
    streamDisconnect: bill_generated
"#,
    ),
    ("epp-config.yaml", crate::reloads::ARTICLE),
];

const ENDPOINTS: &str = "
endpoints:
- {name: engine-0, address: 127.0.0.1, port: 8000, labels: {app: vllm-llama, variant: bf16}}
";

#[test]
fn a_whole_folder_is_understood() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("tenants"))?;
    for (name, text) in FILES.iter().chain([&("endpoints.yaml", ENDPOINTS)]) {
        std::fs::write(folder.path().join(name), text)?;
    }
    let (code, printed, errors) = check_config(folder.path())?;
    assert_eq!(code, Some(0), "{errors}");
    let last = printed.lines().last().context("nothing was printed")?;
    let counts = "8 files, 1 endpoint list, 1 endpoint, 0 KVEvents documents, 0 models, \
                  1 EndpointPickerConfig, 1 InferencePool, 1 HTTPRoute, 1 InferenceModelRewrite, \
                  2 InferenceObjectives, 1 model mapping, 1 TenantQuota";
    assert!(last.contains(counts), "{last}\n{errors}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_folder_decides_what_becomes_of_a_request() -> Result<()> {
    let documents = FILES.map(|(_, text)| text.trim_start_matches('\n')).join("\n---\n");
    let ours: &[(&str, &str)] = &[("app", "vllm-llama"), ("variant", "bf16")];
    let bed = Bed::start(&[&[("app", "other")], ours, ours], &documents).await?;
    let ask = |model: &str, conversation: usize| {
        let body = json!({
            "model": model,
            "messages": [{"role": "user", "content": format!("Question {conversation}")}],
        });
        Request::chat(&body)
    };
    let keyed = |request: Request| request.header("authorization", &format!("Bearer {KEY}"));
    assert_eq!(bed.send(&ask("helper", 0)).await?.status, 401, "whose request it is must be known");
    let mut targets = BTreeSet::new();
    for conversation in 0..12 {
        let id = format!("conversation-{conversation}");
        let answer = bed.send(&keyed(ask("helper", conversation)).id(&id)).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("3000"));
        let seen = answer.json();
        assert_ne!(seen["engine"], bed.engines[0].address.to_string(), "not of the pool");
        let body: Value = serde_json::from_str(seen["body"].as_str().context("a body")?)?;
        let log = bed.stack.access(&id).await?;
        assert_eq!(log.model.as_deref(), Some("helper"));
        assert_eq!(log.target_model.as_deref(), body["model"].as_str());
        assert_eq!(log.fairness_id.as_deref(), Some("tenant-a"));
        assert_eq!(log.priority.as_deref(), Some("100"));
        targets.extend(log.target_model);
    }
    assert_eq!(targets, ["helper-v1", "helper-v2"].map(str::to_owned).into());
    // No route for a model that is not mapped.
    assert_eq!(bed.send(&keyed(ask("unheard-of", 0))).await?.status, 404);
    Ok(())
}
