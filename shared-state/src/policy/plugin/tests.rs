//! Plugins are read strictly, with llm-d's defaults.

use super::*;
use crate::policy::scheduler::InflightLoad;
use serde_json::{Value, json};

fn plugin(name: &str, parameters: &Value) -> Plugin {
    let instance = read(name, parameters).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(instance.type_name, name);
    instance.plugin
}

fn error(name: &str, parameters: &Value) -> String {
    read(name, parameters).expect_err(&format!("{name} {parameters}")).to_string()
}

/// Types that cannot do without parameters, with the least that they take.
fn least(name: &str) -> Value {
    match name {
        "by-label" => json!({"label": "l", "validValues": ["v"]}),
        "utilization-filter" => json!({"conditions": [{"metric": "waiting-queue", "maxValue": 4}]}),
        "endpoint-attribute-filter" => json!({"attribute": "a", "algorithm":
            {"type": "threshold", "threshold": {"operator": "LessThan", "value": 3}}}),
        "endpoint-attribute-scorer" => {
            json!({"attributeKey": "a", "algorithm": {"type": "linear_lower_is_better"}})
        }
        "header-label-affinity-scorer" => json!({"headerName": "X-Tier", "labelKey": "tier"}),
        "session-id-producer" => json!({"headerName": "X-Session"}),
        "priority-holdback-policy" => json!({"minCeiling": 0.5}),
        "file-discovery" => json!({"path": "endpoints.yaml"}),
        _ => Value::Null,
    }
}

crate::tests! {
    fn every_type_is_read_or_refused_by_name() {
        for known in types() {
            match known.standing {
                Standing::Unsupported(instead) => {
                    let expected = PluginError::Unsupported { given: known.name.into(), instead };
                    assert_eq!(read(known.name, &Value::Null), Err(expected));
                }
                Standing::Known | Standing::Deprecated(_) => {
                    let read = read(known.name, &least(known.name)).unwrap();
                    assert!(!read.plugin.kinds().is_empty());
                    let deprecated = matches!(known.standing, Standing::Deprecated(_));
                    let told = read.remarks.iter().any(|remark| remark.contains("deprecated"));
                    assert_eq!(told, deprecated, "{}", known.name);
                    // No type takes what none of its parameters is called.
                    let unknown = error(known.name, &json!({"zzzzzzzzzz": 1}));
                    assert_eq!(unknown, "there is no parameter `zzzzzzzzzz`");
                    let shape = error(known.name, &json!([1]));
                    assert_eq!(shape, "parameters must be an object");
                }
            }
        }
        let mut names: Vec<_> = types().iter().map(|known| known.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    fn an_unknown_name_is_refused_with_the_nearest() {
        for (name, expected) in [
            ("queue-scorrer", "there is no plugin type `queue-scorrer`; did you mean `queue-scorer`?"),
            ("max-score-pickr", "there is no plugin type `max-score-pickr`; did you mean `max-score-picker`?"),
            ("frobnicator", "there is no plugin type `frobnicator`"),
        ] {
            assert_eq!(error(name, &Value::Null), expected);
        }
    }

    fn an_unknown_parameter_is_refused_with_its_path_and_the_nearest() {
        for (name, parameters, expected) in [
            (
                "prefix-cache-scorer",
                json!({"matchLengthWeigth": 0.3}),
                "there is no parameter `matchLengthWeigth`; did you mean `matchLengthWeight`?",
            ),
            (
                "utilization-filter",
                json!({"conditions": [{"metric": "waiting-queue", "maxValu": 4}]}),
                "there is no parameter `conditions[0].maxValu`; did you mean `maxValue`?",
            ),
            (
                "disagg-profile-handler",
                json!({"profiles": {"prefil": "p"}}),
                "there is no parameter `profiles.prefil`; did you mean `prefill`?",
            ),
            (
                "core-metrics-extractor",
                json!({"engineConfigs": [{"name": "x", "customMetrics": [{"key": "a"}]}]}),
                "there is no parameter `engineConfigs[0].customMetrics[0].key`",
            ),
        ] {
            assert_eq!(error(name, &parameters), expected);
        }
    }

    fn a_value_that_cannot_be_is_refused_with_what_would_be_right() {
        for (name, parameters, expected) in [
            ("max-score-picker", json!({"maxNumOfEndpoints": "3"}), "parameter `maxNumOfEndpoints` must be a whole number"),
            ("prefix-cache-scorer", json!({"matchLengthWeight": 1.5}), "parameter `matchLengthWeight` must be a number from 0 to 1"),
            ("prefix-cache-scorer", json!({"matchLengthWeight": 0.1, "matchLengthScaleTokens": 0}), "parameter `matchLengthScaleTokens` must be tokens, above 0 where `matchLengthWeight` is"),
            ("utilization-filter", json!({"conditions": [{"metric": "kv", "maxValue": 1}]}), "parameter `conditions[0].metric` must be `active-requests` or `running-requests` or `waiting-queue` or `kv-cache-utilization`"),
            ("by-label", json!({"label": "a"}), "parameter `validValues` must be at least one value, or `allowsNoLabel: true`"),
            ("label-selector-filter", json!({"matchExpressions": [{"key": "a", "operator": "In"}]}), "parameter `matchExpressions[0].values` must be at least one value for In and NotIn"),
            ("label-selector-filter", json!({"matchLabels": {"a": 1}}), "parameter `matchLabels` must be names with text values"),
            ("session-affinity-filter", json!({"strategy": "cookie"}), "parameter `strategy` must be `encoded_endpoint_header` or `session_id`"),
            ("session-id-producer", json!({"headerName": "a", "cookieName": "b"}), "parameter `headerName` must be a name here or in `cookieName`, not in both"),
            ("disagg-profile-handler", json!({"stageOrder": "prefill_first", "deciders": {"prefill": "d"}}), "parameter `deciders` must be no prefill decider with `stageOrder: prefill-first`"),
            ("disagg-profile-handler", json!({"profiles": {"decode": "d"}, "decodeProfile": "d"}), "parameter `decodeProfile` must be no `decodeProfile` beside `profiles`: one form of the parameters only"),
            ("endpoint-attribute-scorer", json!({"attributeKey": "a", "algorithm": {"type": "linear_lower_is_better", "normalization": {"fixedRange": {"min": 3, "max": 3}}}}), "parameter `algorithm.normalization.fixedRange.max` must be a number above `min`"),
            ("approx-prefix-cache-producer", json!({"autoTune": false, "blockSizeTokens": 0}), "parameter `blockSizeTokens` must be tokens, above 0 without `autoTune`"),
            ("metrics-data-source", json!({"interval": "50"}), "parameter `interval` must be a duration like `200ms` or `1m30s`"),
            ("core-metrics-extractor", json!({"engineConfigs": [{"name": "x", "kvUsageSpec": "a{b"}]}), "parameter `engineConfigs[0].kvUsageSpec` must be a metric like `name` or `name{label=value}`"),
            ("core-metrics-extractor", json!({"defaultEngine": "x"}), "parameter `defaultEngine` must be the name of an engine: vllm, sglang, trtllm-serve, triton-tensorrt-llm, triton, or one of engineConfigs"),
            ("weighted-token-fairness-policy", json!({"weights": {"a": 0}}), "parameter `weights.a` must be a number from 0.001 to 1000000"),
        ] {
            assert_eq!(error(name, &parameters), expected);
        }
    }

    fn the_articles_plugins_mean_what_they_say() {
        let prefix = json!({"blockSizeTokens": 64, "maxPrefixTokensToMatch": 16384, "lruCapacityPerServer": 31250});
        let Plugin::Producer(Producer::ApproxPrefix(prefix)) =
            plugin("approx-prefix-cache-producer", &prefix) else { panic!() };
        assert_eq!(prefix.caps(), PrefixProducer {
            max_prefix_tokens: Some(16_384),
            capacity_tokens: Some(2_000_000),
            auto_tune: true,
        });
        let conditions = json!({"conditions": [
            {"metric": "kv-cache-utilization", "maxValue": 0.9},
            {"metric": "waiting-queue", "maxValue": 4},
        ], "fallbackOnEmpty": true});
        assert_eq!(plugin("utilization-filter", &conditions), Plugin::Filter(Filter::Utilization(Utilization {
            conditions: vec![
                Condition { metric: Metric::KvCacheUtilization, max_value: 0.9 },
                Condition { metric: Metric::WaitingQueue, max_value: 4.0 },
            ],
            fallback_on_empty: true,
        })));
        let length = json!({"matchLengthWeight": 0.3, "matchLengthScaleTokens": 8192});
        assert_eq!(plugin("prefix-cache-scorer", &length), Plugin::Scorer(Scorer::PrefixCache(PrefixCache {
            match_length_weight: 0.3,
            match_length_scale_tokens: 8192,
        })));
        let detector = json!({"maxConcurrency": 128, "concurrencyMode": "requests", "headroom": 0.0});
        assert_eq!(plugin("concurrency-detector", &detector), Plugin::Detector(Detector::Concurrency(ConcurrencyDetector {
            mode: ConcurrencyMode::Requests,
            max_concurrency: 128,
            max_token_concurrency: 1_000_000,
            headroom: 0.0,
        })));
    }

    fn what_is_not_given_is_llm_ds_default() {
        let Plugin::Filter(Filter::PrefixCacheAffinity(affinity)) =
            plugin("prefix-cache-affinity-filter", &Value::Null) else { panic!() };
        assert_eq!(affinity, PrefixCacheAffinity {
            affinity_threshold: 0.8,
            exploration_probability: 0.0,
            max_ttft_penalty_ms: 18_000.0,
            ttft_source: TtftSource::PrefillThroughput,
            peak_prefill_throughput: 15_928.0,
        });
        assert_eq!(plugin("header-profile-handler", &json!({})), Plugin::Handler(ProfileHandler::Header {
            header: "epp-profile".into(),
            default_profile: "decode".into(),
        }));
        assert_eq!(plugin("inflight-load-producer", &Value::Null),
            Plugin::Producer(Producer::InflightLoad(InflightLoad::default())));
        assert_eq!(plugin("session-affinity-scorer", &json!({"strategy": "session_id"})),
            Plugin::Scorer(Scorer::SessionAffinity(SessionAffinity {
                strategy: SessionStrategy::SessionId {
                    sources: vec![SessionSource::Header("x-session-id".into())],
                    ttl_ms: 300_000,
                },
                profile: None,
            })));
        assert_eq!(plugin("utilization-detector", &Value::Null),
            Plugin::Detector(Detector::Utilization(UtilizationDetector::default())));
        // Numbers that are not above 0 stand for the default.
        for given in [json!({"maxNumOfEndpoints": 0}), json!({"maxNumOfEndpoints": -1}), Value::Null] {
            assert_eq!(plugin("max-score-picker", &given), Plugin::Picker(Picker::default()));
        }
        assert_eq!(plugin("load-aware-scorer", &json!({"threshold": -5})),
            Plugin::Scorer(Scorer::LoadAware { threshold: 128 }));
        // `null` is not given.
        assert_eq!(plugin("load-aware-scorer", &json!({"threshold": null})),
            Plugin::Scorer(Scorer::LoadAware { threshold: 128 }));
    }

    fn prefix_caps_are_whole_blocks_of_64_tokens_or_more() {
        for (parameters, expected) in [
            (json!({}), Some(131_072)),
            (json!({"maxPrefixTokensToMatch": 100}), Some(64)),
            (json!({"maxPrefixTokensToMatch": 63}), Some(0)),
            (json!({"blockSizeTokens": 128, "maxPrefixTokensToMatch": 300}), Some(256)),
            (json!({"blockSize": 256, "maxPrefixTokensToMatch": 300}), Some(256)),
            (json!({"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 10}), Some(640)),
            (json!({"maxPrefixTokensToMatch": 0}), Some(131_072)),
            (json!({"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 0}), None),
        ] {
            let Plugin::Producer(Producer::ApproxPrefix(prefix)) =
                plugin("approx-prefix-cache-producer", &parameters) else { panic!() };
            assert_eq!(prefix.caps().max_prefix_tokens, expected, "{parameters}");
        }
    }

    fn both_forms_of_disagg_parameters_are_the_same() {
        let nested = json!({"stageOrder": "decode_first", "profiles": {"prefill": "p"},
            "deciders": {"prefill": "d", "encode": "e"}});
        let flat = json!({"prefillProfile": "p", "deciderPluginName": "d", "encodeDeciderPluginName": "e"});
        assert_eq!(
            plugin("disagg-profile-handler", &nested),
            plugin("disagg-profile-handler", &flat)
        );
        let names = |parameters| {
            let read = read("disagg-profile-handler", parameters).unwrap();
            read.references.into_iter().map(|r| (r.at, r.name, r.kind)).collect::<Vec<_>>()
        };
        assert_eq!(names(&nested), [
            ("deciders.prefill".into(), "d".into(), Kind::Decider),
            ("deciders.encode".into(), "e".into(), Kind::Decider),
        ]);
        assert_eq!(names(&flat).len(), 2);
    }

    fn a_plugin_can_be_more_than_one_thing() {
        let length = plugin("context-length-aware", &Value::Null);
        assert!(length.is(Kind::Filter) && length.is(Kind::Scorer));
        assert!(length.filter().is_none() && length.scorer().is_some());
        let length = plugin("context-length-aware", &json!({"enableFiltering": true}));
        assert!(length.filter().is_some() && length.scorer().is_some());
        let precise = plugin("precise-prefix-cache-scorer", &Value::Null);
        assert!(precise.is(Kind::PrefixProducer) && precise.scorer().is_some());
        let detector = plugin("utilization-detector", &Value::Null);
        assert!(detector.is(Kind::SaturationDetector) && detector.filter().is_some());
    }

    fn kinds_that_are_needed_have_a_default_that_is_of_that_kind() {
        for known in types() {
            let Ok(instance) = read(known.name, &least(known.name)) else { continue };
            for kind in instance.plugin.needs() {
                let default = kind.default_type().unwrap();
                assert!(plugin(default, &Value::Null).is(*kind), "{default}");
            }
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod any_parameters {
    use super::*;
    use proptest::prelude::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z{=}-]{0,12}".prop_map(Value::from),
        ];
        let names = types().iter().flat_map(|known| known.parameters()).copied();
        let names: Vec<&'static str> = names
            .chain(["name", "metric", "maxValue", "type", "threshold", "sources", "header"])
            .collect();
        leaf.prop_recursive(4, 24, 5, move |inner| {
            let name = proptest::sample::select(names.clone()).prop_map(str::to_owned);
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((name, inner), 0..4)
                    .prop_map(|members| members.into_iter().collect::<Value>()),
            ]
        })
    }

    proptest! {
        /// Whatever the parameters are: an answer, whose message can be written.
        #[test]
        fn are_read_or_refused(at in 0..types().len(), parameters in any_value()) {
            match read(types()[at].name, &parameters) {
                Ok(instance) => prop_assert!(!instance.plugin.kinds().is_empty()),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
