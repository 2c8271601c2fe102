//! Engines of several kinds, LoRA adapters, and what the agent tells of them in llm-d's words.

use crate::engine::{Engine, Mode, good, metrics};
use crate::http;
use crate::reader::{Reader, Row};
use crate::run::{Agent, Folder, list_of};
use warmroute_shared_state::endpoint::Load;
use warmroute_shared_state::signals::Adapters;

const SGLANG: &str = "sglang:num_queue_reqs 3.0\nsglang:num_running_reqs 4.0\n\
                      sglang:token_usage 0.25\n\
                      sglang:cache_config_info{num_pages=\"50\",page_size=\"64\"} 1.0\n";

/// A list whose every endpoint has this label.
fn labelled(engines: &[(&str, &Engine)], label: &str) -> String {
    list_of(engines).replace('}', &format!(", labels: {{{label}}}}}"))
}

fn of(text: &str) -> Mode {
    Mode::Answer(200, text.to_owned())
}

#[tokio::test]
async fn a_label_says_which_engine_it_is_and_may_change() {
    let engine = Engine::up(of(&(metrics(10, 7) + SGLANG))).await;
    let folder = Folder::new();
    let list = labelled(&[("a", &engine)], "llm-d.ai/engine-type: sglang");
    let agent = Agent::over(&folder, &list).await;
    let mut reader = Reader::new(agent.address);
    let expected = Load { waiting: Some(3.0), running: Some(4.0), kv_usage: Some(0.25) };
    reader.until("SGLang", |r| r.get("a").is_some_and(|a| a.load == Some(expected))).await;
    let record = reader.get("a").unwrap().record.clone();
    assert_eq!((record.block_tokens, record.kv_blocks), (64, 50));
    folder.write("pool.yaml", &labelled(&[("a", &engine)], "llm-d.ai/engine-type: vllm"));
    reader.until("vLLM", |r| r.get("a").and_then(Row::waiting) == Some(7.0)).await;
    assert_eq!(reader.get("a").unwrap().record.id, record.id);
    assert_eq!(reader.get("a").unwrap().record.block_tokens, 16);
}

#[tokio::test]
async fn adapters_reach_the_stream_and_go_with_what_told_them() {
    let lora = |running: &str, at: u32| {
        format!(
            "vllm:lora_requests_info{{max_lora=\"2\",running_lora_adapters=\"{running}\",\
             waiting_lora_adapters=\"\"}} {at}.0\n"
        )
    };
    let with = metrics(10, 7) + &lora("x", 1) + &lora("a,b", 3) + &lora("y", 2);
    let mut engine = Engine::up(of(&with)).await;
    let folder = Folder::new();
    let agent = Agent::over(&folder, &list_of(&[("a", &engine)])).await;
    let mut reader = Reader::new(agent.address);
    let active = |r: &Reader| -> Option<Vec<String>> {
        r.get("a")?.signals.adapters.as_ref().map(|Adapters { active, .. }| active.clone())
    };
    let both = Some(vec!["a".to_owned(), "b".to_owned()]);
    reader.until("adapters", |r| active(r) == both).await;
    assert_eq!(reader.get("a").unwrap().signals.adapters.as_ref().unwrap().max, 2);
    let page: serde_json::Value =
        serde_json::from_str(&http::text(agent.address, "/v1/endpoints").await).unwrap();
    let expected = serde_json::json!({ "active": ["a", "b"], "waiting": [], "max": 2 });
    assert_eq!(page["endpoints"][0]["adapters"], expected);

    engine.set(of(&(with.clone() + &lora("", 4))));
    reader.until("no adapter runs", |r| active(r) == Some(vec![])).await;
    engine.set(of(&with));
    reader.until("adapters again", |r| active(r) == both).await;
    engine.set(good(10, 7));
    reader.until("nothing is known", |r| active(r).is_none()).await;
    engine.set(of(&with));
    reader.until("adapters again", |r| active(r) == both).await;
    engine.stop().await;
    reader.until("an engine that is out has none", |r| active(r).is_none()).await;
    assert_eq!(reader.snapshots, 1);
}

#[tokio::test]
async fn figures_of_the_pool_have_llm_ds_names() {
    let engines = [Engine::up(good(1, 2)).await, Engine::up(good(1, 4)).await];
    let silent = Engine::down(good(1, 0));
    let folder = Folder::new();
    let list = list_of(&[("a", &engines[0]), ("b", &engines[1]), ("c", &silent)]);
    let agent = Agent::over(&folder, &list).await;
    let mut reader = Reader::new(agent.address);
    let known = |r: &Reader| {
        ["a", "b"].iter().all(|name| r.get(name).is_some_and(|row| row.load.is_some()))
    };
    reader.until("loads", known).await;
    let text = agent
        .until("/metrics", "failed polls", |text| {
            text.lines().any(|line| {
                line.starts_with("llm_d_epp_datalayer_poll_errors_total") && !line.ends_with(" 0")
            })
        })
        .await;
    for line in [
        "llm_d_epp_ready_endpoints{name=\"pool\"} 2",
        "llm_d_epp_average_queue_size{name=\"pool\"} 3.0",
        "llm_d_epp_std_dev_queue_size{name=\"pool\"} 1.0",
        "llm_d_epp_average_kv_cache_utilization{name=\"pool\"} 0.5",
        "llm_d_epp_average_running_requests{name=\"pool\"} 2.0",
        "llm_d_epp_per_endpoint_queue_size{name=\"pool\",model_server_endpoint=\"b\"} 4.0",
        "inference_pool_average_queue_size{name=\"pool\"} 3.0",
        "inference_pool_ready_pods{name=\"pool\"} 2",
    ] {
        assert!(text.lines().any(|seen| seen == line), "{line}\n{text}");
    }
}
