//! Model names and pools: mapped, rewritten, restored, and split by conversation.

use crate::bed::Bed;
use anyhow::Result;
use e2e::client::Request;
use e2e::{Setup, Stack, client};
use serde_json::json;
use std::collections::BTreeMap;

/// A pool of the engines with this label.
pub(crate) fn pool(name: &str, variant: &str) -> String {
    format!(
        "
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {{name: {name}, namespace: default}}
spec:
  selector: {{matchLabels: {{variant: {variant}}}}}
  targetPorts: [{{number: 8000}}]
  endpointPickerRef: {{name: picker, port: {{number: 9002}}, failureMode: FailClose}}
---"
    )
}

fn route(weights: (u32, u32), matches: &str) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: llama, namespace: default}}
spec:
  parentRefs: [{{name: gateway}}]
  rules:
{matches}
  - matches: [{{headers: [{{name: X-Gateway-Base-Model-Name, value: llama-70b}}]}}]
    backendRefs:
    - {{group: inference.networking.k8s.io, kind: InferencePool, name: bf16, weight: {}}}
    - {{group: inference.networking.k8s.io, kind: InferencePool, name: fp8, weight: {}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: mapping, namespace: default, labels: {{inference.llm-d.ai/ipp-managed: \"true\"}}}}
data:
  baseModel: llama-70b
  adapters: |
    - support
",
        weights.0, weights.1
    )
}

const CANARY: &str = "
  - matches: [{headers: [{name: x-canary, value: always}]}]
    backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: fp8}]";

fn chat(model: &str, conversation: &str, turns: usize) -> Request {
    let mut messages = vec![
        json!({"role": "system", "content": "You are a helpful assistant."}),
        json!({"role": "user", "content": conversation}),
    ];
    for turn in 1..turns {
        messages.push(json!({"role": "assistant", "content": format!("answer {turn}")}));
        messages.push(json!({"role": "user", "content": format!("question {turn}")}));
    }
    Request::chat(&json!({"model": model, "messages": messages}))
}

/// Clients say `support`, engines `llama-70b`.
pub(crate) const REWRITE: &str = "
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {name: support, namespace: default}
spec:
  poolRef: {group: inference.networking.k8s.io, kind: InferencePool, name: bf16}
  rules:
  - matches: [{model: {type: Exact, value: support}}]
    targets: [{modelRewrite: llama-70b, weight: 90}]
";

const LABELS: [&[(&str, &str)]; 2] = [&[("variant", "bf16")], &[("variant", "fp8")]];

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_keeps_its_pool_and_a_header_directs() -> Result<()> {
    let pools = pool("bf16", "bf16") + &pool("fp8", "fp8");
    let mut bed = Bed::start(&LABELS, &(pools.clone() + &route((80, 20), CANARY))).await?;
    let mut sides = BTreeMap::new();
    for n in 0..100 {
        let text = format!("conversation {n}");
        let first = bed.served_by(&chat("llama-70b", &text, 1)).await?;
        for turns in 2..4 {
            assert_eq!(bed.served_by(&chat("llama-70b", &text, turns)).await?, first, "{text}");
        }
        sides.insert(text, first);
    }
    let small = sides.values().filter(|side| **side == 1).count();
    assert!((8..35).contains(&small), "{small} of 100 went to the pool with a fifth of the weight");
    let directed = chat("llama-70b", "conversation 0", 1).header("x-canary", "always");
    assert_eq!(bed.served_by(&directed).await?, 1);
    assert_eq!(bed.send(&chat("unknown", "x", 1)).await?.status, 404);
    // Other weights move only who must move, and in one direction.
    bed.configure(&(pools + &route((50, 50), CANARY))).await?;
    for (text, before) in sides {
        let now = bed.served_by(&chat("llama-70b", &text, 2)).await?;
        assert!(now == before || (before, now) == (0, 1), "{text}: {before} to {now}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_gets_its_name_and_the_client_its_own() -> Result<()> {
    let setup = Setup::new(2, 1).label(&[("variant", "bf16")]).label(&[("variant", "bf16")]);
    let stack = Stack::start(setup.document(&(pool("bf16", "bf16") + REWRITE))).await?;
    for stream in [false, true] {
        let mut body: serde_json::Value = serde_json::from_slice(&chat("support", "Hi", 1).body)?;
        body["stream"] = json!(stream);
        body["max_tokens"] = json!(5);
        let id = format!("stream-{stream}");
        let answer = client::send(stack.listen(), &Request::chat(&body).id(&id)).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = answer.text();
        assert!(text.contains(r#""model":"support""#), "{text}");
        assert!(!text.contains(r#""model":"llama-70b""#), "{text}");
        let access = stack.access(&id).await?;
        assert_eq!(access.model.as_deref(), Some("support"));
        assert_eq!(access.target_model.as_deref(), Some("llama-70b"));
        assert_eq!(access.cause.as_deref(), Some("completed"));
    }
    let counted = stack.envoy.prometheus().await?;
    let line =
        counted.lines().find(|line| line.starts_with("llm_d_epp_model_rewrite_decisions_total"));
    assert!(line.is_some_and(|line| line.contains(r#"target_model="llama-70b""#)), "{line:?}");
    let total: Vec<_> =
        counted.lines().filter(|l| l.starts_with("llm_d_epp_request_total")).collect();
    let ours = total.iter().find(|l| l.contains(r#"model_name="support""#)).copied();
    assert!(
        ours.is_some_and(|l| l.contains(r#"target_model_name="llama-70b""#) && l.ends_with(" 2")),
        "{total:?}"
    );
    assert!(counted.contains("llm_d_epp_request_input_tokens_bucket"), "token histograms");
    Ok(())
}
