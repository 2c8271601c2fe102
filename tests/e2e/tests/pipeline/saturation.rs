//! Pools that are full by what their engines show: who waits, and who is refused.

use crate::bed::{Bed, Load, short};
use anyhow::{Result, bail};
use e2e::client::{self, Request, Response};
use std::time::Instant;
use tokio::task::JoinHandle;

const TRUSTED: &str = r#", "trustControlHeaders": true"#;

const BUSY: Load = Load { waiting: 20, running: 1, kv_usage: 0.1 };
const FULL_CACHE: Load = Load { waiting: 0, running: 1, kv_usage: 0.95 };
const FREE: Load = Load { waiting: 0, running: 0, kv_usage: 0.1 };

/// On a busy machine a scrape may take longer than the detector believes the last one by default.
const DETECTOR: &str =
    "- {type: utilization-detector, parameters: {metricsStalenessThreshold: 20s}}\n";

/// A picker with these plugins (YAML list items), and these fields beside them; objectives `batch` of priority -1 and
/// `urgent` of priority 1.
fn configured(plugins: &str, fields: &str) -> String {
    let objective = |name: &str, priority: i32| {
        format!(
            "---\napiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {{name: {name}}}\n\
             spec: {{priority: {priority}, poolRef: {{name: default}}}}\n"
        )
    };
    format!(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n{plugins}- type: random-picker\n\
         schedulingProfiles: [{{name: default, plugins: [{{pluginRef: random-picker}}]}}]\n{fields}{}{}",
        objective("batch", -1),
        objective("urgent", 1)
    )
}

fn of(objective: &str) -> Request {
    short().header("x-llm-d-inference-objective", objective)
}

/// What is answered to each objective's request, and the reason that is given.
async fn answers(bed: &Bed) -> Result<Vec<(u16, Option<String>)>> {
    let mut seen = Vec::new();
    for objective in ["batch", "none", "urgent"] {
        let answer = bed.send(&of(objective)).await?;
        let reason = answer.header("x-llm-d-request-dropped-reason").map(str::to_owned);
        assert_eq!(reason.is_some(), answer.header("retry-after").is_some(), "{objective}");
        seen.push((answer.status, reason));
    }
    Ok(seen)
}

fn shed() -> Vec<(u16, Option<String>)> {
    vec![(429, Some("rejected-saturated".to_owned())), (200, None), (200, None)]
}

fn served() -> Vec<(u16, Option<String>)> {
    vec![(200, None); 3]
}

/// Sends requests until one waits: places that were lent to the worker before may be used for a moment.
async fn one_that_waits(bed: &Bed) -> Result<JoinHandle<Result<Response>>> {
    let since = Instant::now();
    while since.elapsed() < e2e::stack::PATIENCE {
        let listen = bed.stack.listen();
        let request = tokio::spawn(async move { client::send(listen, &short()).await });
        let waits = async || {
            let state = bed.stack.filter_state().await.ok()?;
            let waits = (state.parked_here, state.turns_here) == (1, 0);
            (waits || request.is_finished()).then_some(waits)
        };
        if bed.stack.until("a request that waits, or goes", waits).await? {
            return Ok(request);
        }
    }
    bail!("every request goes, though the engines are full")
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_while_all_engines_show_that_they_are_full() -> Result<()> {
    let fields = "featureGates: [flowControl]\nflowControl:\n  saturationDetector: {pluginRef: utilization-detector}\n";
    let bed = Bed::start(&[&[], &[]], &configured(DETECTOR, fields)).await?;
    for full in [BUSY, FULL_CACHE] {
        for engine in 0..2 {
            bed.load(engine, full).await?;
        }
        let waiting = one_that_waits(&bed).await?;
        for engine in 0..2 {
            bed.load(engine, FREE).await?;
        }
        let answer = waiting.await??;
        assert_eq!(answer.status, 200, "{}", answer.text());
        // Now that there is room nobody waits.
        assert_eq!(bed.send(&short()).await?.status, 200);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_flow_control_a_full_pool_refuses_what_is_below_zero() -> Result<()> {
    let fields = "flowControl:\n  saturationDetector: {pluginRef: utilization-detector}\n";
    for fields in ["", fields] {
        let config = configured(DETECTOR, fields);
        let bed = Bed::start_with(&[&[]], &config, TRUSTED).await?;
        for (load, expected) in
            [(FREE, served()), (BUSY, shed()), (FULL_CACHE, shed()), (FREE, served())]
        {
            bed.load(0, load).await?;
            assert_eq!(answers(&bed).await?, expected, "{load:?}, {fields:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probabilistic_admitter_refuses_before_the_pool_is_full() -> Result<()> {
    // By the detector a queue of 4 is not full.
    let nearly = Load { waiting: 4, running: 1, kv_usage: 0.0 };
    let plugins = &format!("{DETECTOR}- type: probabilistic-admitter\n");
    for gate in ["", "featureGates: [flowControl]\n"] {
        let bed = Bed::start_with(&[&[]], &configured(plugins, gate), TRUSTED).await?;
        assert_eq!(answers(&bed).await?, served(), "{gate:?}");
        bed.load(0, nearly).await?;
        assert_eq!(answers(&bed).await?, shed(), "{gate:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probabilistic_admitter_leaves_it_to_chance() -> Result<()> {
    // A cache that is half of what counts as full.
    let half = Load { waiting: 0, running: 1, kv_usage: 0.4 };
    let admitter = "- {type: probabilistic-admitter, parameters: {power: 1, k: 1}}\n";
    let bed = Bed::start_with(&[&[]], &configured(admitter, ""), TRUSTED).await?;
    bed.load(0, half).await?;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..60 {
        seen.insert(bed.send(&of("batch")).await?.status);
    }
    assert_eq!(seen, [200, 429].into());
    Ok(())
}
