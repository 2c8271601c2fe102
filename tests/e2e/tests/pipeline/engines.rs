//! Engines of every kind in one pool, and several on one host.

use crate::bed::short;
use crate::names::pool;
use anyhow::Result;
use e2e::client::{Request, send};
use e2e::echo_engine::EchoEngine;
use e2e::prompts::{chat, fresh_text};
use e2e::state::FilterState;
use e2e::{Setup, Stack};
use std::collections::BTreeSet;
use tokio::task::JoinSet;

/// KV blocks of an engine; one that tells nothing of them shows as 0.
const BLOCKS: u64 = 10_001;

/// How the simulator calls each kind, and how its label does.
const KINDS: [(&str, &str); 6] = [
    ("vllm", "vllm"),
    ("vllm-old", "vllm"),
    ("sglang", "sglang"),
    ("trtllm", "trtllm-serve"),
    ("triton-trtllm", "triton-tensorrt-llm"),
    ("triton", "triton"),
];

/// Whether `seen` is `wanted`, but for what a running request adds.
fn about(seen: Option<f64>, wanted: f64) -> bool {
    seen.is_some_and(|seen| (wanted..wanted + 0.02).contains(&seen))
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_of_every_kind_show_their_load() -> Result<()> {
    let kinds = KINDS.map(|(kind, _)| kind).join(",");
    // A request lasts for as long as the test.
    let blocks = BLOCKS.to_string();
    let arguments = ["--engine", &kinds, "--num-blocks", &blocks, "--decode-ms", "1000"];
    let mut setup = Setup::new(KINDS.len(), 1).simulator(&arguments);
    for (_, label) in KINDS {
        setup = setup.label(&[("llm-d.ai/engine-type", label)]);
    }
    let stack = Stack::start(setup).await?;
    let mut running = JoinSet::new();
    for (index, address) in stack.simulator.replicas.iter().copied().enumerate() {
        stack.simulator.occupy(index, kv_usage(index)).await?;
        for _ in 0..=index {
            let request = Request::chat(&chat(&fresh_text(100), 1000));
            running.spawn(async move { send(address, &request).await });
        }
    }
    let shown = |state: &FilterState| {
        KINDS.iter().enumerate().all(|(index, (kind, _))| {
            let Some(endpoint) = state.endpoint(&format!("engine-{index}")) else { return false };
            let cache = match *kind {
                "triton" => endpoint.kv_usage.is_none() && endpoint.kv_blocks == Some(0),
                _ => {
                    about(endpoint.kv_usage, kv_usage(index)) && endpoint.kv_blocks == Some(BLOCKS)
                }
            };
            // What occupies the cache is a request, too. Triton says how many it has served.
            let requests = if *kind == "triton" { 0 } else { index + 2 };
            let requests = f64::from(u32::try_from(requests).unwrap_or(0));
            endpoint.ready && cache && endpoint.running == Some(requests)
        })
    };
    let seen = async || stack.filter_state().await.ok().filter(shown);
    if let Err(why) = stack.until("every engine's load in the filter", seen).await {
        anyhow::bail!("{why}: {:?}", stack.filter_state().await?.endpoints);
    }
    Ok(())
}

/// A share of its KV blocks for each engine.
fn kv_usage(index: usize) -> f64 {
    0.1 * f64::from(u32::try_from(index + 1).unwrap_or(0))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_one_endpoint_for_each_target_port() -> Result<()> {
    let engines = [EchoEngine::start().await?, EchoEngine::start().await?];
    let ports = engines.each_ref().map(|engine| engine.address.port());
    let pool = pool("ranks", "ranks").replace(
        "[{number: 8000}]",
        &format!("[{{number: {}}}, {{number: {}}}]", ports[0], ports[1]),
    );
    let mut stack = Stack::start(Setup::new(0, 1).document(&pool)).await?;
    let host = |more: &str| {
        format!(
            "---\n{pool}\nendpoints:\n- {{name: pod, address: 127.0.0.1, labels: {{variant: ranks{more}}}}}\n"
        )
    };
    for (labels, ranks) in [
        (String::new(), &[0, 1][..]),
        // Only the second rank is up.
        (format!(", llm-d.ai/active-ports: \"{}\"", ports[1]), &[1]),
    ] {
        stack.write_documents(&host(&labels))?;
        let expected: Vec<(String, String)> = ranks
            .iter()
            .map(|rank| (format!("default/pod-rank-{rank}"), engines[*rank].address.to_string()))
            .collect();
        let there = async || {
            let state = stack.filter_state().await.ok()?;
            let ready = state.endpoints.into_iter().filter(|endpoint| endpoint.ready);
            let mut found: Vec<_> =
                ready.map(|endpoint| (endpoint.name, endpoint.address)).collect();
            found.sort();
            (found == expected).then_some(())
        };
        stack.until(&format!("{expected:?} in the filter"), there).await?;
        let mut served = BTreeSet::new();
        for _ in 0..20 {
            let answer = send(stack.listen(), &short()).await?;
            assert_eq!(answer.status, 200, "{}", answer.text());
            served.insert(answer.json()["engine"].as_str().unwrap_or_default().to_owned());
        }
        let expected: BTreeSet<String> = expected.into_iter().map(|(_, address)| address).collect();
        assert_eq!(served, expected);
    }
    Ok(())
}
