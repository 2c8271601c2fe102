//! Expositions of other engines.

mod support;

use engine_sim::metrics::format::Format;
use engine_sim::replica::SimConfig;
use serde_json::{Value, json};
use support::{Call, Sim, chat, config, get};

const FORMATS: [Format; 6] = [
    Format::Vllm,
    Format::VllmOld,
    Format::Sglang,
    Format::Trtllm,
    Format::TritonTrtllm,
    Format::Triton,
];

/// The value of the only line that begins like this.
fn value(text: &str, start: &str) -> Option<String> {
    let mut lines = text.lines().filter(|line| line.starts_with(start));
    let line = lines.next()?;
    assert_eq!(lines.next(), None, "{start}");
    line.rsplit_once(' ').map(|(_, value)| value.to_owned())
}

#[tokio::test]
async fn each_engine_tells_its_signals_under_its_names() {
    let sim =
        Sim::start(SimConfig { formats: FORMATS.to_vec(), time_scale: 1.0, ..config() }, 7).await;
    sim.command("/occupy", &json!({"replica": 3, "fraction": 0.5})).await;
    let expected = [
        ("vllm:kv_cache_usage_perc{", "vllm:num_requests_running{"),
        ("vllm:gpu_cache_usage_perc{", "vllm:num_requests_running{"),
        ("sglang:token_usage{", "sglang:num_running_reqs{"),
        ("trtllm_kv_cache_utilization{", "trtllm_num_requests_running{"),
        (
            "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"",
            "nv_trt_llm_request_metrics{request_type=\"scheduled\"",
        ),
    ];
    for (index, (usage, running)) in expected.into_iter().enumerate() {
        let text = get(sim.addr(index), "/metrics").await.unwrap().text();
        let share = if index == 3 { "0.5" } else { "0.0" };
        assert_eq!(value(&text, usage).as_deref(), Some(share), "{usage}");
        let busy = if index == 3 { "1.0" } else { "0.0" };
        assert_eq!(value(&text, running).as_deref(), Some(busy), "{running}");
    }
    // They take turns: the seventh replica is as the first.
    let text = get(sim.addr(6), "/metrics").await.unwrap().text();
    assert!(text.contains("vllm:num_requests_waiting{"));
}

#[tokio::test]
async fn faults_meet_the_signals_of_every_engine() {
    let sim = Sim::start(SimConfig { formats: FORMATS.to_vec(), ..config() }, 6).await;
    for (index, format) in FORMATS.into_iter().enumerate() {
        let [usage, waiting] = format.signals();
        sim.fault(json!({"replica": index, "fault": "metrics_nan"})).await;
        let text = get(sim.addr(index), "/metrics").await.unwrap().text();
        assert_eq!(value(&text, waiting).as_deref(), Some("NaN"), "{waiting}");
        if format != Format::Triton {
            assert_eq!(value(&text, usage).as_deref(), Some("NaN"), "{usage}");
        }
        sim.fault(json!({"replica": index, "fault": "metrics_truncate"})).await;
        let text = get(sim.addr(index), "/metrics").await.unwrap().text();
        assert!(!text.is_empty() && !text.ends_with('\n'), "cut in the middle of a line");
    }
}

#[tokio::test]
async fn adapters_beyond_the_limit_wait() {
    let mut config = SimConfig { time_scale: 1.0, ..config() };
    config.engine.max_loras = 1;
    let sim = Sim::start(config, 1).await;
    let body = |model: &str| chat("x", json!({"model": model, "max_tokens": 3000, "stream": true}));
    let mut calls = Vec::new();
    for model in ["lora-a", "lora-b", "tiny"] {
        let path = "/v1/chat/completions";
        calls.push(Call::post(sim.addr(0), path, &body(model)).await.unwrap());
    }
    sim.until(0, |state: &Value| state["running"] == 2 && state["waiting"] == 1).await;
    let text = get(sim.addr(0), "/metrics").await.unwrap().text();
    let series = text.lines().find(|line| line.starts_with("vllm:lora_requests_info{")).unwrap();
    let (running, waiting) =
        ("running_lora_adapters=\"lora-a\"", "waiting_lora_adapters=\"lora-b\"");
    let swapped = ("running_lora_adapters=\"lora-b\"", "waiting_lora_adapters=\"lora-a\"");
    assert!(series.contains("max_lora=\"1\""));
    assert!(
        (series.contains(running) && series.contains(waiting))
            || (series.contains(swapped.0) && series.contains(swapped.1)),
        "{series}"
    );
}
