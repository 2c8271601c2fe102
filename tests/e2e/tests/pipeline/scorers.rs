//! One test for each scorer and picker: the engine that its formula prefers serves.

use crate::bed::{Bed, Load, long, picker_config, short};
use anyhow::Result;
use e2e::client::Request;
use e2e::prompts::fresh_text;
use std::collections::BTreeSet;

async fn always(bed: &Bed, request: &Request, expected: usize) -> Result<()> {
    for _ in 0..4 {
        assert_eq!(bed.served_by(request).await?, expected);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn load_decides() -> Result<()> {
    let config = |name: &str| picker_config(&format!("- type: {name}"), &[name]);
    let mut bed = Bed::start(&[&[], &[], &[]], &config("queue-scorer")).await?;
    let loads = [(5, 0, 0.5), (1, 9, 0.9), (9, 5, 0.1)];
    for (engine, (waiting, running, kv_usage)) in loads.into_iter().enumerate() {
        bed.load(engine, Load { waiting, running, kv_usage }).await?;
    }
    always(&bed, &short(), 1).await?;
    for (scorer, expected) in [
        ("running-requests-size-scorer", 0),
        ("kv-cache-utilization-scorer", 2),
        ("load-aware-scorer", 1),
    ] {
        bed.configure(&config(scorer)).await?;
        always(&bed, &short(), expected).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_prefix_scores_and_cold_prompts_are_spread() -> Result<()> {
    let config = |name: &str| picker_config(&format!("- type: {name}"), &[name]);
    let mut bed = Bed::start(&[&[], &[], &[], &[]], &config("prefix-cache-scorer")).await?;
    let text = fresh_text(3000);
    let first = bed.served_by(&long(&text)).await?;
    always(&bed, &long(&text), first).await?;
    bed.configure(&config("no-hit-lru-scorer")).await?;
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        seen.insert(bed.served_by(&long(&fresh_text(1000))).await?);
    }
    assert_eq!(seen.len(), 4, "four cold prompts go to four endpoints: {seen:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lora_tiers_go_active_then_room_then_waiting() -> Result<()> {
    let plugins = "- type: lora-affinity-scorer";
    let bed =
        Bed::start(&[&[], &[], &[]], &picker_config(plugins, &["lora-affinity-scorer"])).await?;
    let show = |engine: usize, running: &str, waiting: &str, max: u32| {
        let info = format!(
            "vllm:lora_requests_info{{max_lora=\"{max}\",running_lora_adapters=\"{running}\",\
             waiting_lora_adapters=\"{waiting}\"}} 1700000000.0\n"
        );
        bed.engines[engine].show(Load::default().metrics() + &info);
    };
    // 0: full, without it; 1: waiting for it and full; 2: full, without it.
    show(0, "x,y", "", 2);
    show(1, "x,y", "tuned", 2);
    show(2, "y,z", "", 2);
    let tuned = Request::chat(&serde_json::json!({
        "model": "tuned", "messages": [{"role": "user", "content": "Hi"}],
    }));
    let goes_to = async |expected: usize| {
        let there = async || {
            for _ in 0..6 {
                if bed.served_by(&tuned).await.ok()? != expected {
                    return None;
                }
            }
            Some(())
        };
        bed.stack.until(&format!("requests at engine {expected}"), there).await
    };
    goes_to(1).await?;
    // Room for one more beats waiting.
    show(0, "x", "", 2);
    goes_to(0).await?;
    // Running beats room.
    show(2, "tuned,z", "", 2);
    goes_to(2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_prefers_a_label() -> Result<()> {
    let plugins =
        "- type: header-label-affinity-scorer\n  parameters: {headerName: x-zone, labelKey: zone}";
    let labels: [&[(&str, &str)]; 3] = [&[("zone", "a")], &[("zone", "b")], &[]];
    let bed =
        Bed::start(&labels, &picker_config(plugins, &["header-label-affinity-scorer"])).await?;
    always(&bed, &short().header("x-zone", "b"), 1).await?;
    always(&bed, &short().header("x-zone", "a"), 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pickers_spread_by_chance() -> Result<()> {
    let mut bed =
        Bed::start(&[&[], &[], &[]], &picker_config("- type: random-picker", &["random-picker"]))
            .await?;
    let weighted = "- type: kv-cache-utilization-scorer\n- type: weighted-random-picker";
    let used = ["kv-cache-utilization-scorer", "weighted-random-picker"];
    for round in 0..2 {
        if round == 1 {
            bed.configure(&picker_config(weighted, &used)).await?;
            bed.load(0, Load { kv_usage: 1.0, ..Load::default() }).await?;
        }
        let mut counts = [0; 3];
        for _ in 0..60 {
            counts[bed.served_by(&short()).await?] += 1;
        }
        assert!(counts[1] > 5 && counts[2] > 5, "{counts:?}");
        assert_eq!(counts[0] == 0, round == 1, "{counts:?}");
    }
    Ok(())
}
