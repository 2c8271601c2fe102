//! Plugins that llm-d gives up, or has for tests only, still do what they did; those that are not there are refused.

use crate::bed::{Bed, Load, picker_config, roles_config, short};
use anyhow::{Context as _, Result, ensure};
use e2e::client::{self, Request, Response};
use e2e::prompts::{chat, fresh_text};
use e2e::{Setup, Stack};
use std::path::Path;
use std::process::Command;
use tokio::task::JoinSet;
use warmroute_demo::processes::{Programs, workspace_root};

/// A header as the engine got it.
fn arrived(answer: &Response, name: &str) -> Option<String> {
    let headers: Vec<(String, String)> =
        serde_json::from_value(answer.json()["headers"].clone()).unwrap_or_default();
    headers.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_behind_one_port_is_told_in_a_header() -> Result<()> {
    let spread = picker_config("- type: queue-scorer", &["queue-scorer"]);
    let mut bed = Bed::start(&[&[], &[]], &spread).await?;
    bed.load(0, Load { waiting: 7, ..Load::default() }).await?;
    let [first, second] = [0, 1].map(|engine| bed.engines[engine].address);
    let plugins = format!(
        "- type: data-parallel-profile-handler\n  parameters: {{primaryPort: {}}}\n- type: queue-scorer",
        first.port()
    );
    bed.configure(&picker_config(&plugins, &["queue-scorer"])).await?;
    // The second is picked, and reached by the first one's port.
    let answer = bed.send(&short().header("x-data-parallel-host-port", "192.0.2.1:1")).await?;
    assert_eq!(answer.json()["engine"], first.to_string(), "{}", answer.text());
    assert_eq!(arrived(&answer, "x-data-parallel-host-port"), Some(second.to_string()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_handler_tells_where_to_prefill() -> Result<()> {
    let labels: [&[(&str, &str)]; 2] =
        [&[("llm-d.ai/role", "prefill")], &[("llm-d.ai/role", "decode")]];
    let config = |handler: &str| roles_config(handler, ["decode", "prefill"]);
    let always = "
- type: always-disagg-pd-decider
- type: pd-profile-handler
  parameters: {deciderPluginName: always-disagg-pd-decider}
- type: prefill-header-handler";
    let never = "
- type: prefix-based-pd-decider
- type: pd-profile-handler
- type: disagg-headers-handler
  parameters: {prefillProfile: prefill}";
    let mut bed = Bed::start(&labels, &config(always)).await?;
    let [prefill, decode] = [0, 1].map(|engine| bed.engines[engine].address.to_string());
    let answer = bed.send(&short()).await?;
    assert_eq!(answer.json()["engine"], decode, "{}", answer.text());
    assert_eq!(arrived(&answer, "x-prefiller-host-port"), Some(prefill));
    // The default decider's threshold is 0: never.
    bed.configure(&config(never)).await?;
    let answer = bed.send(&short()).await?;
    assert_eq!(answer.json()["engine"], decode, "{}", answer.text());
    assert_eq!(arrived(&answer, "x-prefiller-host-port"), None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_chooses_by_header_and_a_selector_by_label() -> Result<()> {
    let labels: [&[(&str, &str)]; 3] = [&[("tier", "a")], &[("tier", "b")], &[("tier", "b")]];
    let testing = "- type: header-based-testing-filter\n- type: random-picker";
    let used = ["header-based-testing-filter", "random-picker"];
    let mut bed = Bed::start(&labels, &picker_config(testing, &used)).await?;
    let chosen = |engines: &[usize]| {
        let addresses: Vec<_> =
            engines.iter().map(|engine| bed.engines[*engine].address.to_string()).collect();
        short().header("test-epp-endpoint-selection", &addresses.join(","))
    };
    for engine in [0, 1, 2, 0] {
        assert_eq!(bed.served_by(&chosen(&[engine])).await?, engine);
    }
    for _ in 0..8 {
        assert_ne!(bed.served_by(&chosen(&[0, 2])).await?, 1);
    }
    assert_eq!(bed.send(&short()).await?.status, 429, "nobody is chosen");
    let selector =
        "- type: by-label-selector\n  parameters: {matchLabels: {tier: a}}\n- type: random-picker";
    bed.configure(&picker_config(selector, &["by-label-selector", "random-picker"])).await?;
    for _ in 0..8 {
        assert_eq!(bed.served_by(&short()).await?, 0);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_utilization_detector_leaves_out_who_is_full() -> Result<()> {
    let plugins = "
- type: utilization-detector
  parameters: {queueDepthThreshold: 4, kvCacheUtilThreshold: 0.8, metricsStalenessThreshold: 1m}
- type: random-picker";
    let used = ["utilization-detector", "random-picker"];
    let bed = Bed::start(&[&[], &[], &[]], &picker_config(plugins, &used)).await?;
    bed.load(0, Load { kv_usage: 0.85, ..Load::default() }).await?;
    bed.load(1, Load { waiting: 4, ..Load::default() }).await?;
    for _ in 0..10 {
        assert_eq!(bed.served_by(&short()).await?, 2);
    }
    // With everybody full, all of them count again.
    bed.load(2, Load { waiting: 4, ..Load::default() }).await?;
    let mut seen = [false; 3];
    for _ in 0..40 {
        seen[bed.served_by(&short()).await?] = true;
    }
    assert_eq!(seen, [true; 3]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concurrency_detector_leaves_out_who_is_full() -> Result<()> {
    let plugins = "- type: concurrency-detector\n  parameters: {maxConcurrency: 1}";
    let config = picker_config(plugins, &["concurrency-detector"]);
    // Requests last for as long as the test.
    let setup = Setup::new(2, 1).simulator(&["--decode-ms", "1000"]).document(&config);
    let stack = Stack::start(setup).await?;
    let listen = stack.listen();
    let request = || Request::chat(&chat(&fresh_text(100), 500));
    let mut running = JoinSet::new();
    for _ in 0..2 {
        let request = request();
        running.spawn(async move { client::send(listen, &request).await });
        let count = running.len() as u64;
        let charged = async || (stack.filter_state().await.ok()?.in_flight == count).then_some(());
        stack.until("the request in flight", charged).await?;
    }
    let state = stack.filter_state().await?;
    let each: Vec<_> = state.endpoints.iter().map(|e| e.in_flight.requests).collect();
    assert_eq!(each, [1, 1]);
    // This filter leaves nobody, if nobody has room.
    let refused = client::send(listen, &request()).await?;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.header("x-llm-d-request-dropped-reason"), Some("rejected-saturated"));
    Ok(())
}

/// Exit code, what was printed, and what was complained of.
pub(crate) fn check_config(path: &Path) -> Result<(Option<i32>, String, String)> {
    let programs = Programs::find(&workspace_root()?)?;
    let output = Command::new(&programs.agent).arg("check-config").arg(path).output()?;
    let text = |bytes| String::from_utf8(bytes);
    Ok((output.status.code(), text(output.stdout)?, text(output.stderr)?))
}

#[test]
fn what_is_not_there_is_refused_by_name() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("epp.yaml");
    for (absent, instead) in [
        ("latency-scorer", "token-load-scorer"),
        ("topology-affinity-filter", "label-selector-filter"),
        ("multicluster-queue-scorer", "without `multicluster-`"),
        ("burst-prefix-cache-producer", "leave it out"),
        ("vllmgrpc-parser", "vllmhttp-parser"),
        ("latency-slo-admitter", "probabilistic-admitter"),
        ("disaggregatedset-rollout-screener", "HTTPRoute"),
    ] {
        let plugins = format!("- type: queue-scorer\n- type: {absent}");
        std::fs::write(&path, picker_config(&plugins, &["queue-scorer"]))?;
        let (code, printed, errors) = check_config(&path)?;
        assert_eq!((code, printed.as_str()), (Some(1), "refused: 1 error\n"), "{absent}: {errors}");
        let line = errors.lines().find(|line| line.contains(absent)).context("no word of it")?;
        assert!(line.contains("epp.yaml:5:") && line.contains(instead), "{line}");
    }
    // The same file without it is fine.
    std::fs::write(&path, picker_config("- type: queue-scorer", &["queue-scorer"]))?;
    let (code, _, errors) = check_config(&path)?;
    ensure!(code == Some(0), "{errors}");
    Ok(())
}
