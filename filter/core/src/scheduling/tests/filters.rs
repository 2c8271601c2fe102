//! Who stays a candidate, beyond llm-d's vectors.

use super::*;
use serde_json::json;

const ROLE: &str = "llm-d.ai/role";

crate::tests! {
    fn roles_are_kept_by_label() {
        let roles: Vec<_> = [
            "decode", "prefill", "encode", "prefill-decode", "both", "encode-prefill",
            "encode-prefill-decode", "encode-decode", "x",
        ].iter().map(|role| labels(&[(ROLE, role)])).collect();
        let mut all: Vec<_> = (0..).zip(&roles)
            .map(|(n, labels)| Candidate { labels, ..candidate(n) })
            .collect();
        all.push(candidate(9));
        for (filter, expected) in [
            ("decode-filter", vec![0, 3, 4, 6, 9]),
            ("prefill-filter", vec![1, 3, 4, 5, 6]),
            ("encode-filter", vec![2, 5, 6]),
        ] {
            assert_eq!(kept(filter, Value::Null, &[], &all), expected, "{filter}");
        }
    }

    fn label_selectors_are_those_of_kubernetes() {
        let sets = [
            labels(&[("gpu", "h100"), ("zone", "a")]),
            labels(&[("gpu", "l4"), ("zone", "b")]),
            labels(&[("zone", "a")]),
        ];
        let all: Vec<_> =
            (0..).zip(&sets).map(|(n, labels)| Candidate { labels, ..candidate(n) }).collect();
        let expression = |operator: &str, values: Value| {
            json!({"matchExpressions": [{"key": "gpu", "operator": operator, "values": values}]})
        };
        for (parameters, expected) in [
            (json!({}), vec![0, 1, 2]),
            (json!({"matchLabels": {"zone": "a"}}), vec![0, 2]),
            (json!({"matchLabels": {"zone": "a", "gpu": "h100"}}), vec![0]),
            (expression("In", json!(["h100", "a100"])), vec![0]),
            (expression("NotIn", json!(["h100"])), vec![1, 2]),
            (expression("Exists", Value::Null), vec![0, 1]),
            (expression("DoesNotExist", Value::Null), vec![2]),
        ] {
            let read = kept("label-selector-filter", parameters.clone(), &[], &all);
            assert_eq!(read, expected, "{parameters}");
        }
        let by_label = |parameters| kept("by-label", parameters, &[], &all);
        assert_eq!(by_label(json!({"label": "gpu", "validValues": ["l4"]})), [1]);
        assert_eq!(by_label(json!({"label": "gpu", "allowsNoLabel": true})), [2]);
        assert_eq!(by_label(json!({"label": "gpu", "validValues": [""]})), [2]);
    }

    fn what_an_engine_did_not_report_takes_nobody_away() {
        let full = Candidate { kv_usage: Some(0.95), waiting: Some(9.0), running: Some(9.0), ..candidate(1) };
        let mut nan = candidate(2);
        nan.kv_usage = Some(f32::NAN);
        for metric in ["kv-cache-utilization", "waiting-queue", "running-requests"] {
            let parameters = json!({"conditions": [{"metric": metric, "maxValue": 0.9}]});
            let kept = kept("utilization-filter", parameters, &[], &[candidate(0), full.clone(), nan.clone()]);
            assert_eq!(kept, [0, 2], "{metric}");
        }
    }

    fn picks_since_the_scrape_count_as_waiting() {
        let burst = Candidate { waiting_since_scrape: 5, ..candidate(0) };
        let parameters = json!({"conditions": [{"metric": "waiting-queue", "maxValue": 4}]});
        assert_eq!(kept("utilization-filter", parameters, &[], &[burst, candidate(1)]), [1]);
    }

    fn if_nobody_is_left_everybody_can_be() {
        let full = [0, 1].map(|n| Candidate { kv_usage: Some(0.95), ..candidate(n) });
        for (fallback, expected) in [(true, vec![0, 1]), (false, vec![])] {
            let parameters = json!({
                "conditions": [{"metric": "kv-cache-utilization", "maxValue": 0.9}],
                "fallbackOnEmpty": fallback,
            });
            assert_eq!(kept("utilization-filter", parameters, &[], &full), expected);
        }
    }

    fn attributes_are_compared_and_the_missing_pass_or_fail() {
        let signals = [1.0, 2.0, 3.0].map(|value| Signals {
            adapters: None,
            attributes: vec![("temp".into(), value)],
        });
        let mut all: Vec<_> =
            (0..).zip(&signals).map(|(n, signals)| Candidate { signals, ..candidate(n) }).collect();
        all.push(candidate(3));
        for (operator, on_missing, expected) in [
            ("LessThan", "Pass", vec![0, 3]),
            ("LessThanOrEqual", "Fail", vec![0, 1]),
            ("GreaterThan", "Fail", vec![2]),
            ("GreaterThanOrEqual", "Fail", vec![1, 2]),
            ("Equal", "Fail", vec![1]),
            ("NotEqual", "Pass", vec![0, 2, 3]),
        ] {
            let parameters = json!({
                "attribute": "temp",
                "onMissing": on_missing,
                "algorithm": {"type": "threshold", "threshold": {"operator": operator, "value": 2}},
            });
            let kept = kept("endpoint-attribute-filter", parameters, &[], &all);
            assert_eq!(kept, expected, "{operator}");
        }
    }

    fn a_session_sticks_to_its_endpoint_while_that_is_there() {
        let parameters = json!({"strategy": "session_id", "sessionIdConfig": {"evictionTtlSeconds": 10}});
        let scheduler = single(&[("session-affinity-filter", parameters, 1.0)]);
        let mut state = SchedulerState::default();
        let mut random = random();
        let headers = [("x-session-id", "s")];
        let mut go = |candidates: &[Candidate<'_>], now_ms| {
            let request = request(0, &headers);
            let decision =
                schedule(&scheduler, &request, candidates, &state, now_ms, &mut random).unwrap();
            state.remember(&decision, now_ms);
            decision.primary.ranked[0].0
        };
        let all: Vec<_> = (0..8).map(candidate).collect();
        let home = go(&all, 0);
        for turn in 1..50 {
            assert_eq!(go(&all, turn * 9000), home);
        }
        // Its endpoint is gone: it gets another one, and stays there when the first is back.
        let others: Vec<_> = all.iter().filter(|c| c.id.0 != home).cloned().collect();
        let second = go(&others, 450_000);
        assert_ne!(second, home);
        for turn in 0..50 {
            assert_eq!(go(&all, 450_000 + turn * 9000), second);
        }
    }

    fn a_test_may_name_the_endpoints() {
        let at = |n, address| Candidate { address, ..candidate(n) };
        let all = [at(0, "10.0.0.1:8000"), at(1, "10.0.0.1:8001"), at(2, "10.0.0.2:8000")];
        for (header, expected) in [
            ("10.0.0.1", vec![0, 1]),
            ("10.0.0.1:8001, 10.0.0.2", vec![1, 2]),
            ("", vec![]),
        ] {
            let headers = [("test-epp-endpoint-selection", header)];
            assert_eq!(kept("header-based-testing-filter", Value::Null, &headers, &all), expected);
        }
    }

    fn detectors_in_a_profile_keep_who_has_room() {
        let busy = |n, requests, tokens| Candidate {
            active_requests: requests,
            uncached_tokens: tokens,
            ..candidate(n)
        };
        let all = [busy(0, 9, 5), busy(1, 10, 5), busy(2, 11, 500)];
        for (mode, headroom, expected) in [
            ("requests", 0.0, vec![0]),
            ("requests", 0.15, vec![0, 1]),
            ("tokens", 0.0, vec![0, 1]),
            ("hybrid", 0.5, vec![0, 1]),
        ] {
            let parameters = json!({
                "maxConcurrency": 10, "maxTokenConcurrency": 100, "headroom": headroom, "concurrencyMode": mode,
            });
            assert_eq!(kept("concurrency-detector", parameters, &[], &all), expected, "{mode}");
        }
        assert!(kept("concurrency-detector", json!({"maxConcurrency": 1}), &[], &all).is_empty());
    }

    fn a_detector_in_a_profile_takes_metrics_as_flow_control_does() {
        let parameters =
            || json!({"queueDepthThreshold": 5, "kvCacheUtilThreshold": 0.5, "metricsStalenessThreshold": "100ms"});
        let told = |n, waiting, kv_usage, age| Candidate {
            waiting,
            kv_usage,
            scrape_age_ms: age,
            ..candidate(n)
        };
        let since = |since, candidate| Candidate { waiting_since_scrape: since, ..candidate };
        for (name, other, stays) in [
            ("below", told(1, Some(4.0), Some(0.25), Some(100)), true),
            ("full queue", told(1, Some(5.0), Some(0.25), Some(0)), false),
            ("full cache", told(1, Some(4.0), Some(0.5), Some(0)), false),
            ("old", told(1, Some(4.0), Some(0.25), Some(101)), false),
            ("no scrape", told(1, Some(4.0), Some(0.25), None), false),
            ("says nothing", told(1, None, Some(f32::NAN), Some(0)), false),
            // One of the two is enough; what it did not say counts as 0.
            ("queue alone", told(1, Some(4.0), None, Some(0)), true),
            ("full queue alone", told(1, Some(5.0), None, Some(0)), false),
            ("cache alone", told(1, None, Some(0.25), Some(0)), true),
            ("picked since", since(4, told(1, None, Some(0.25), Some(0))), true),
            ("too many since", since(5, told(1, None, Some(0.25), Some(0))), false),
            ("in the figure already", since(4, told(1, Some(4.0), Some(0.25), Some(0))), true),
        ] {
            // One that always stays: a detector that leaves nobody keeps all.
            let all = [told(0, Some(0.0), Some(0.0), Some(0)), other];
            let expected: &[u64] = if stays { &[0, 1] } else { &[0] };
            assert_eq!(kept("utilization-detector", parameters(), &[], &all), expected, "{name}");
        }
    }
}
