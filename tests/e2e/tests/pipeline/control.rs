//! Headers by which an outer gateway, or a client, says what is to become of a request.

use crate::bed::{Bed, long, picker_config, pool_config, short};
use anyhow::{Context as _, Result};
use e2e::client::{Request, Response};
use e2e::prompts::fresh_text;
use serde_json::Value;

const TRUSTED: &str = r#", "trustControlHeaders": true"#;

const OBJECTIVES: &str = "
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: urgent, namespace: default}
spec: {priority: 100, poolRef: {group: inference.networking.k8s.io, name: llama}}
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: batch, namespace: default}
spec: {priority: -10, poolRef: {group: inference.networking.k8s.io, name: llama}}
";

async fn bed(plugin: &str) -> Result<Bed> {
    Bed::start_with(&[&[("app", "llama")]], &pool_config(OBJECTIVES), plugin).await
}

/// A header as the engine got it.
fn arrived(answer: &Response, name: &str) -> Option<String> {
    let headers: Vec<(String, String)> =
        serde_json::from_value(answer.json()["headers"].clone()).unwrap_or_default();
    headers.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// The model of the body that the engine got.
fn asked_model(answer: &Response) -> Result<String> {
    let body = answer.json();
    let body: Value = serde_json::from_str(body["body"].as_str().context("a body")?)?;
    Ok(body["model"].as_str().context("a model")?.to_owned())
}

/// `pairs` as headers of a short request.
fn with(pairs: &[(&str, &str)]) -> Request {
    pairs.iter().fold(short(), |request, (name, value)| request.header(name, value))
}

/// What the access log says: priority, fairness ID, target model.
type Logged = (Option<&'static str>, Option<&'static str>, Option<&'static str>);

#[tokio::test(flavor = "multi_thread")]
async fn control_headers_count_if_they_are_trusted() -> Result<()> {
    let cases: [(&[(&str, &str)], Logged); 8] = [
        (&[], (None, None, None)),
        (&[("x-llm-d-inference-objective", "urgent")], (Some("100"), None, None)),
        (&[("x-gateway-inference-objective", "batch")], (Some("-10"), None, None)),
        // The new name goes before the old one; nobody's objective has priority 0.
        (
            &[
                ("x-gateway-inference-objective", "batch"),
                ("x-llm-d-inference-objective", "urgent"),
            ],
            (Some("100"), None, None),
        ),
        (&[("x-llm-d-inference-objective", "nobodys")], (None, None, None)),
        (&[("x-llm-d-inference-fairness-id", "acme")], (None, Some("acme"), None)),
        (
            &[
                ("x-gateway-inference-fairness-id", "acme"),
                ("x-gateway-model-name-rewrite", "other"),
            ],
            (None, Some("acme"), Some("other")),
        ),
        (&[("x-llm-d-model-name-rewrite", "other")], (None, None, Some("other"))),
    ];
    for trusted in [true, false] {
        let bed = bed(if trusted { TRUSTED } else { "" }).await?;
        for (case, (headers, expected)) in cases.iter().enumerate() {
            let id = format!("case-{case}");
            let answer = bed.send(&with(headers).id(&id)).await?;
            assert_eq!(answer.status, 200, "{headers:?}: {}", answer.text());
            let log = bed.stack.access(&id).await?;
            let seen =
                (log.priority.as_deref(), log.fairness_id.as_deref(), log.target_model.as_deref());
            let expected = if trusted { *expected } else { (None, None, None) };
            assert_eq!(seen, expected, "trusted: {trusted}, {headers:?}");
            assert_eq!(asked_model(&answer)?, expected.2.unwrap_or(e2e::MODEL), "{headers:?}");
            for (name, _) in *headers {
                assert_eq!(arrived(&answer, name), None, "{name} goes no further");
            }
        }
        // A subset that no endpoint is in, and one by its address.
        let subset = |value: &str| with(&[("x-gateway-destination-endpoint-subset", value)]);
        let none = bed.send(&subset("192.0.2.1:8000")).await?;
        assert_eq!(none.status, if trusted { 503 } else { 200 }, "{}", none.text());
        assert_eq!(bed.send(&subset("192.0.2.1,127.0.0.1:1")).await?.status, 200);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_ask_to_be_served_from_a_cache_only() -> Result<()> {
    let config = picker_config("- type: prefix-cache-scorer", &["prefix-cache-scorer"]);
    let bed = Bed::start(&[&[], &[]], &config).await?;
    let prompt = long(&fresh_text(2000));
    let cached = prompt.clone().header("prefer", "respond-async, if-available");
    let cold = bed.send(&cached.clone().id("cold")).await?;
    assert_eq!((cold.status, &cold.json()["error"]["code"]), (412, &Value::from(412)));
    assert_eq!(bed.stack.access("cold").await?.cause.as_deref(), Some("warmroute_not_cached"));
    // A refused request teaches nothing.
    assert_eq!(bed.send(&cached).await?.status, 412);
    let first = bed.served_by(&prompt).await?;
    assert_eq!(bed.served_by(&cached).await?, first);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_context_reaches_the_engine() -> Result<()> {
    let bed = Bed::start(&[&[]], &picker_config("- type: queue-scorer", &["queue-scorer"])).await?;
    let trace = [
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("tracestate", "vendor=value"),
        ("baggage", "user=42"),
    ];
    let answer = bed.send(&with(&trace)).await?;
    for (name, value) in trace {
        assert_eq!(arrived(&answer, name).as_deref(), Some(value), "{name}");
    }
    Ok(())
}
