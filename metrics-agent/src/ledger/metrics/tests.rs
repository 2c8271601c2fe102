use super::names::MAX_COMBINATIONS;
use super::*;
use crate::ledger::tests::record;

fn text(metrics: &LedgerMetrics) -> String {
    metrics.encode(&Tally::default(), &Drops::default()).unwrap()
}

fn samples(text: &str, name: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    lines.map(str::to_owned).collect()
}

/// llm-d's dashboards and alerts ask for exactly these.
#[test]
fn names_labels_and_buckets_are_llm_ds() {
    let metrics = LedgerMetrics::default();
    metrics.finished(&UsageRecord {
        status: 503,
        cause: EndCause::UpstreamError,
        output_tokens: 200,
        ttft_ms: Some(220),
        ..record(1)
    });
    let text = text(&metrics);
    let objective = "model_name=\"llama-70b\",target_model_name=\"llama-70b-v2\",priority=\"100\"";
    let model = "model_name=\"llama-70b\",target_model_name=\"llama-70b-v2\",\
                 fairness_id=\"fair-a\",priority=\"100\"";
    let streaming = format!("{model},streaming=\"true\"");
    let queue = "fairness_id=\"fair-a\",priority=\"100\",outcome=\"Dispatched\",\
                 inference_pool=\"llama\",model_name=\"llama-70b\",target_model_name=\"llama-70b-v2\"";
    let counters = [
        ("inference_objective_request_total", objective.to_owned()),
        (
            "inference_objective_request_error_total",
            format!("{objective},error_code=\"ServiceUnavailable\""),
        ),
    ];
    for (name, labels) in counters {
        assert_eq!(samples(&text, name), [format!("{name}{{{labels}}} 1")]);
    }
    let flow = "outcome=\"Dispatched\",priority=\"100\",inference_pool=\"llama\"";
    for prefix in ["llm_d_epp", "inference_extension"] {
        let name = format!("{prefix}_flow_control_requests_total");
        assert_eq!(samples(&text, &name), [format!("{name}{{{flow}}} 1")]);
    }
    // Buckets as in facts of llm-d-router 0.10, written out and not taken from the code.
    let duration = "0.005 0.025 0.05 0.1 0.2 0.4 0.6 0.8 1.0 1.25 1.5 2.0 3.0 4.0 5.0 6.0 8.0 10.0 15.0 20.0 \
                    30.0 45.0 60.0 120.0 180.0 240.0 300.0 360.0 480.0 600.0 900.0 1200.0 1800.0 2700.0 3600.0";
    let request_size =
        (6..=30).map(|power| format!("{}.0", 1u64 << power)).collect::<Vec<_>>().join(" ");
    let small = "1.0 8.0 16.0 32.0 64.0 128.0 256.0 512.0 1024.0 2048.0 4096.0 8192.0";
    let response_size = format!("{small} 16384.0 32778.0 65536.0");
    let input = format!("{response_size} 131072.0 262144.0 524288.0 1048576.0");
    let ntpot = "0.001 0.002 0.005 0.01 0.02 0.05 0.1 0.2 0.5 1.0 2.0 5.0 10.0";
    let ttft = "0.005 0.025 0.05 0.1 0.2 0.4 0.6 0.8 1.0 1.25 1.5 2.0 3.0 4.0 5.0 6.0 8.0 10.0 15.0 20.0 30.0 \
                45.0 60.0 120.0";
    let tpot = "0.0005 0.00205 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.125 0.15 0.2 0.3 0.4 0.5 0.6 0.8 1.0 2.0";
    let waiting =
        "0.0001 0.0005 0.001 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1.0 2.5 5.0 10.0 30.0 60.0";
    let epp = |rest: &str| format!("llm_d_epp_{rest}");
    let former = |rest: &str| format!("inference_objective_{rest}");
    let histograms = [
        (epp("request_duration_seconds"), model, duration, "4.2"),
        (epp("request_ntpot_seconds"), model, ntpot, "0.021"),
        (epp("request_ttft_seconds"), &streaming, ttft, "0.22"),
        (epp("request_streaming_tpot_seconds"), model, tpot, "0.02"),
        (epp("flow_control_request_queue_duration_seconds"), queue, waiting, "0.012"),
        (
            "inference_extension_flow_control_request_queue_duration_seconds".to_owned(),
            queue,
            waiting,
            "0.012",
        ),
        (former("request_duration_seconds"), objective, duration, "4.2"),
        (former("request_sizes"), objective, &request_size, "12400.0"),
        (former("response_sizes"), objective, &response_size, "52000.0"),
        (former("input_tokens"), objective, &input, "3100.0"),
        (former("prompt_cached_tokens"), objective, &input, "2048.0"),
        (former("output_tokens"), objective, small, "200.0"),
        (former("normalized_time_per_output_token_seconds"), objective, ntpot, "0.021"),
    ];
    for (name, labels, buckets, sum) in &histograms {
        assert_eq!(
            samples(&text, &format!("{name}_sum")),
            [format!("{name}_sum{{{labels}}} {sum}")]
        );
        let lines = samples(&text, &format!("{name}_bucket"));
        let le = |line: &String| line.split("le=\"").nth(1)?.split('"').next().map(str::to_owned);
        let seen: Vec<_> = lines.iter().filter_map(le).collect();
        assert_eq!(seen.join(" "), format!("{buckets} +Inf"), "{name}");
    }
    // And nothing else under these prefixes.
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let of_llm_d = types.filter(|line| !line.starts_with("warmroute_"));
    assert_eq!(of_llm_d.count(), histograms.len() + counters_of_llm_d());
}

/// Requests and their errors under their deprecated names (the others are Envoy's), requests by outcome under both.
fn counters_of_llm_d() -> usize {
    4
}

#[test]
fn what_was_not_computed_is_no_observation() {
    let metrics = LedgerMetrics::default();
    let (status, cause) = (429, EndCause::Rejected);
    metrics.finished(&UsageRecord { status, cause, ttft_ms: None, flow: None, ..record(1) });
    metrics.finished(&UsageRecord {
        input_tokens: 0,
        output_tokens: 0,
        ttft_ms: None,
        streamed: false,
        flow: None,
        ..record(2)
    });
    metrics.finished(&UsageRecord { output_tokens: 1, streamed: false, ..record(3) });
    let text = text(&metrics);
    let count = |name: &str| {
        let lines = samples(&text, &format!("{name}_count"));
        lines.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    let seen = [
        "inference_objective_request_sizes",
        "llm_d_epp_request_duration_seconds",
        "inference_objective_input_tokens",
        "inference_objective_prompt_cached_tokens",
        "llm_d_epp_request_ttft_seconds",
        "llm_d_epp_request_streaming_tpot_seconds",
        "llm_d_epp_flow_control_request_queue_duration_seconds",
    ]
    .map(count);
    assert_eq!(seen, [3, 2, 1, 1, 1, 0, 1]);
    assert!(text.contains("streaming=\"false\""));
}

#[test]
fn failures_have_llm_ds_words() {
    use EndCause::{Disconnect, Evicted, Natural, Rejected, Timeout, UpstreamError};
    let cases = [
        (200, Natural, None),
        (200, Disconnect, None),
        (0, Disconnect, None),
        (200, UpstreamError, Some("ModelServerError")),
        (503, UpstreamError, Some("ServiceUnavailable")),
        (502, UpstreamError, Some("Unknown")),
        (504, Timeout, Some("Unknown")),
        (200, Evicted, Some("ResourceExhausted")),
        (400, Rejected, Some("BadRequest")),
        (401, Rejected, Some("Unauthorized")),
        (403, Rejected, Some("Forbidden")),
        (404, Natural, Some("NotFound")),
        (412, Natural, Some("PreconditionFailed")),
        (429, Rejected, Some("ResourceExhausted")),
        (500, Natural, Some("Internal")),
    ];
    for (status, cause, expected) in cases {
        let found = error_code(&UsageRecord { status, cause, ..record(1) });
        assert_eq!(found, expected, "{status} {cause:?}");
    }
}

/// Told of every record with all labels.
const QUEUED: &str = "llm_d_epp_flow_control_request_queue_duration_seconds_count";

#[test]
fn labels_that_clients_choose_are_bounded() {
    let metrics = LedgerMetrics::default();
    for n in 0..3000 {
        let model = format!("refused-{n}");
        metrics.finished(&UsageRecord { model, cause: EndCause::Rejected, ..record(n) });
    }
    let seen = samples(&text(&metrics), QUEUED);
    assert_eq!(seen.len(), 1, "what was refused adds no name");
    assert!(seen[0].contains("model_name=\"other\",") && seen[0].ends_with(" 3000"), "{seen:?}");

    for n in 0..1500 {
        let (model, fairness_id) = (format!("m{n}"), format!("f{n}"));
        let target_model = model.clone();
        metrics.finished(&UsageRecord { model, target_model, fairness_id, ..record(n) });
    }
    let known = metrics.names.lock().unwrap();
    assert_eq!((known.models.len(), known.fairness_ids.len()), (1000, 1000));
    drop(known);
    for priority in 0..5000 {
        metrics.finished(&UsageRecord { priority, ..record(1) });
    }
    let text = text(&metrics);
    let seen = samples(&text, QUEUED);
    // Beyond the bound one more, and one with the refused requests' pool.
    assert_eq!(seen.len(), MAX_COMBINATIONS + 2);
    assert!(seen.iter().any(|line| line.contains("fairness_id=\"other\",priority=\"other\"")));
}
