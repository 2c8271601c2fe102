//! Splits by chance, for those who ask for them.

use crate::bed::{Bed, short};
use crate::names::pool;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::BTreeSet;

/// So many times the same conversation: that it always goes one way by chance happens once in 10^12.
const TIMES: usize = 40;

/// Half of all to each of two pools.
fn route(annotations: &str) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: llama, namespace: default{annotations}}}
spec:
  parentRefs: [{{name: gateway}}]
  rules:
  - backendRefs:
    - {{group: inference.networking.k8s.io, kind: InferencePool, name: bf16, weight: 1}}
    - {{group: inference.networking.k8s.io, kind: InferencePool, name: fp8, weight: 1}}
"
    )
}

/// Half of all to each of two models.
fn rewrite(annotations: &str) -> String {
    format!(
        "
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {{name: versions, namespace: default{annotations}}}
spec:
  poolRef: {{group: inference.networking.k8s.io, kind: InferencePool, name: bf16}}
  rules:
  - matches: [{{model: {{type: Exact, value: {}}}}}]
    targets: [{{modelRewrite: one, weight: 1}}, {{modelRewrite: two, weight: 1}}]
",
        e2e::MODEL
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn one_conversation_goes_one_way_or_by_chance() -> Result<()> {
    let labels: [&[(&str, &str)]; 2] = [&[("variant", "bf16")], &[("variant", "fp8")]];
    let pools = || pool("bf16", "bf16") + &pool("fp8", "fp8");
    let sticky = pools() + &route("") + "---" + &rewrite("");
    let random = ", annotations: {warmroute/split: random}";
    let mut bed = Bed::start(&labels, &sticky).await?;
    for (documents, engines, models) in [
        (None, 1, 1),
        (Some(pools() + &route(random)), 2, 1),
        (Some(pool("bf16", "bf16") + &rewrite(random)), 1, 2),
    ] {
        if let Some(documents) = documents {
            bed.configure(&documents).await?;
        }
        let (mut served, mut asked) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..TIMES {
            let answer = bed.send(&short()).await?;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let seen = answer.json();
            served.insert(seen["engine"].to_string());
            let body: Value = serde_json::from_str(seen["body"].as_str().context("a body")?)?;
            asked.insert(body["model"].to_string());
        }
        assert_eq!((served.len(), asked.len()), (engines, models), "{served:?} {asked:?}");
    }
    Ok(())
}
