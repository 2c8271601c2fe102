use super::super::document::Document;
use super::*;
use std::path::Path;
use warmroute_shared_state::policy::plugin::{
    Decider, Detector, Filter, Scorer, SessionSource, SessionStrategy,
};
use warmroute_shared_state::policy::scheduler::Handler;

const HEAD: &str = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n";

fn parse(text: &str) -> Result<PickerSpec, String> {
    let text = format!("{HEAD}{text}");
    read(&Document::new(Path::new("epp.yaml"), 0, &text), None)
        .map_err(|issues| issues.iter().map(|i| format!("{i}\n")).collect())
}

fn warnings(spec: &PickerSpec) -> String {
    spec.warnings.iter().map(|w| format!("{w}\n")).collect()
}

#[test]
fn profiles_keep_order_weights_and_names() {
    let spec = parse(
        "plugins:\n- type: queue-scorer\n- type: utilization-filter\n  name: drop\n  parameters:\n    \
           conditions: [{metric: waiting-queue, maxValue: 4}]\n- type: prefix-cache-scorer\n- type: random-picker\n\
         schedulingProfiles:\n- name: p\n  plugins:\n  - {pluginRef: prefix-cache-scorer, weight: 3}\n  \
         - pluginRef: drop\n  - pluginRef: queue-scorer\n  - pluginRef: random-picker\n",
    )
    .unwrap();
    let [profile] = spec.scheduler.profiles.as_slice() else { panic!("{spec:?}") };
    assert_eq!(profile.name, "p");
    let scorers: Vec<_> = profile.scorers.iter().map(|s| (s.name.as_str(), s.weight)).collect();
    assert_eq!(scorers, [("prefix-cache-scorer", 3.0), ("queue-scorer", 1.0)]);
    assert_eq!(profile.filters[0].name, "drop");
    assert!(matches!(profile.filters[0].plugin, Filter::Utilization(_)));
    assert_eq!(profile.picker.name, "random-picker");
    assert_eq!(spec.scheduler.handler, Handler::Single);
    assert_eq!((spec.head.name.as_str(), spec.of_any_namespace), ("epp", true));
    assert!(spec.warnings.is_empty());
}

#[test]
fn what_is_left_out_is_added_as_llm_d_does() {
    // (a) no profile: one of all filters, scorers and pickers; (b) a handler; (c) a picker; (d) weight 1.
    let spec = parse(
        "plugins: [{type: queue-scorer}, {type: decode-filter}, {type: concurrency-detector}]\n",
    )
    .unwrap();
    let [profile] = spec.scheduler.profiles.as_slice() else { panic!("{spec:?}") };
    assert_eq!((profile.name.as_str(), profile.scorers[0].weight), ("default", 1.0));
    let filters: Vec<_> = profile.filters.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(filters, ["decode-filter", "concurrency-detector"], "a detector is a filter, too");
    assert_eq!(profile.picker.name, "max-score-picker");
    assert_eq!(spec.scheduler.handler, Handler::Single);
    // (e), (f), (g).
    let flow = &spec.flow_control;
    assert_eq!(flow.default_band.ordering.name, "fcfs-ordering-policy");
    assert_eq!(flow.default_band.fairness.name, "global-strict-fairness-policy");
    assert_eq!(flow.usage_limit.name, "static-usage-limit-policy");
    assert_eq!(flow.detector.name, "utilization-detector");
    assert_eq!(spec.scheduler.detector, Detector::default(), "for shedding without flow control");
    assert!(spec.scheduler.admitters.is_empty());
    let parsers = [Parser::OpenAi, Parser::Anthropic, Parser::VllmHttp, Parser::Passthrough];
    assert_eq!(spec.scheduler.parsers, parsers);
    // (h), (i).
    assert_eq!(spec.scrapes, ScrapePlans::default());
    assert_eq!(spec.scheduler.prefix, PrefixProducer::default());
    assert_eq!(spec.scheduler.inflight, InflightLoad::default());
    // A profile without a picker gets the first that there is.
    let spec = parse(
        "plugins: [{type: weighted-random-picker}, {type: header-profile-handler}]\n\
         schedulingProfiles: [{name: decode}, {name: b, plugins: [{pluginRef: weighted-random-picker}]}]\n",
    )
    .unwrap();
    assert!(spec.scheduler.profiles.iter().all(|p| p.picker.name == "weighted-random-picker"));
}

#[test]
fn nothing_at_all_is_a_configuration() {
    let spec = parse("").unwrap();
    assert_eq!(spec.scheduler, Scheduler { name: "epp".into(), ..profiles::empty() });
    let default = PickerSpec::default().scheduler;
    let scorers: Vec<_> =
        default.profiles[0].scorers.iter().map(|s| (&s.plugin, s.weight)).collect();
    assert!(matches!(scorers[..], [(Scorer::Queue, 2.0), (_, 2.0), (Scorer::PrefixCache(_), 3.0)]));
}

#[test]
fn stages_and_deciders_are_resolved() {
    let spec = parse(
        "plugins:\n- type: disagg-profile-handler\n  parameters:\n    deciders: {prefill: pd}\n\
         - {type: prefix-based-pd-decider, name: pd, parameters: {nonCachedTokens: 64}}\n\
         schedulingProfiles: [{name: prefill}, {name: decode}]\n",
    )
    .unwrap();
    let Handler::Disagg(disagg) = &spec.scheduler.handler else { panic!("{spec:?}") };
    assert_eq!((disagg.decode, disagg.prefill, disagg.encode), (Some(1), Some(0), None));
    let decider = Decider::PrefixBased { non_cached_tokens: 64, prompt_tokens: 0 };
    assert_eq!((disagg.prefill_decider, disagg.encode_decider), (Some(decider), None));
    assert_eq!(disagg.plugin_type, "disagg-profile-handler");
    let lost = parse(
        "plugins:\n- type: disagg-profile-handler\n  parameters:\n    deciders: {prefill: always-disagg-pd-decider}\n\
         - type: always-disagg-pd-decider\nschedulingProfiles: [{name: x}]\n",
    )
    .unwrap();
    assert!(warnings(&lost).contains("no profile `decode` to decode"), "{}", warnings(&lost));
    assert!(warnings(&lost).contains("no profile `prefill`"), "{}", warnings(&lost));
}

#[test]
fn flow_control_is_read_whole() {
    let spec = parse(
        "featureGates: [flowControl]\nplugins:\n- type: round-robin-fairness-policy\n- {type: concurrency-detector, name: d}\n\
         flowControl:\n  maxBytes: 10Gi\n  maxRequests: 1k\n  defaultRequestTTL: 30s\n  saturationDetector: {pluginRef: d}\n  \
         enableEviction: true\n  defaultNegativePriorityBand: {maxRequests: 5}\n  priorityBands:\n  \
         - {priority: -1, maxBytes: 1Mi}\n  - {priority: 10, fairnessPolicyRef: round-robin-fairness-policy}\n",
    )
    .unwrap();
    let flow = &spec.flow_control;
    assert!(flow.enabled && flow.enable_eviction);
    assert_eq!((flow.max_bytes, flow.max_requests), (10 << 30, 1000));
    assert_eq!((flow.request_ttl_ms, flow.no_endpoint_ttl_ms), (30_000, 30_000));
    assert_eq!(flow.detector.name, "d");
    let bands: Vec<_> =
        flow.bands.iter().map(|b| (b.priority, b.fairness.name.as_str(), b.max_bytes)).collect();
    let expected = [
        (10, "round-robin-fairness-policy", 1_000_000_000),
        (-1, "global-strict-fairness-policy", 1 << 20),
    ];
    assert_eq!(bands, expected);
    assert_eq!(flow.default_negative_band.as_ref().unwrap().max_requests, 5);
    assert!(spec.warnings.is_empty(), "{}", warnings(&spec));
}

#[test]
fn what_sheds_without_flow_control_is_read() {
    let spec = parse(
        "plugins:\n- {type: concurrency-detector, name: d, parameters: {maxConcurrency: 7}}\n\
         - {type: probabilistic-admitter, parameters: {power: 2}}\n\
         flowControl: {saturationDetector: {pluginRef: d}}\n",
    )
    .unwrap();
    assert!(!spec.flow_control.enabled);
    let Detector::Concurrency(detector) = spec.scheduler.detector else { panic!("{spec:?}") };
    assert_eq!(detector.max_concurrency, 7);
    let [admitter] = spec.scheduler.admitters.as_slice() else { panic!("{spec:?}") };
    assert_eq!(admitter.name, "probabilistic-admitter");
    assert_eq!((admitter.plugin.power, admitter.plugin.k), (2.0, 300.0));
    assert!(parse("plugins: [{type: probabilistic-admitter, parameters: {k: 0}}]\n").is_err());
}

#[test]
fn deprecated_and_meaningless_things_are_remarks() {
    let spec = parse(
        "featureGates: [flowControls, haPopulateNonLeaderDatastore=false]\n\
         plugins:\n- {type: file-discovery, parameters: {path: /etc/x.yaml}}\n- type: utilization-detector\n- type: openai-parser\n\
         - type: tokenizer\nschedulingProfiles: [{name: p, plugins: [{pluginRef: tokenizer}]}]\n\
         saturationDetector: {pluginRef: utilization-detector}\nparser: {pluginRef: openai-parser}\n\
         flowControl: {maxRequests: 5}\ndataLayer: {injectDefaults: false, discovery: {pluginRef: file-discovery}}\n",
    )
    .unwrap();
    let warnings = warnings(&spec);
    for message in [
        "epp.yaml:3: feature gate `flowControls` is not known and means nothing; did you mean `flowControl`?",
        "epp.yaml:5: the agent does not open `/etc/x.yaml`",
        "epp.yaml:8: plugin `tokenizer`: `tokenizer` is deprecated",
        "epp.yaml:9: plugin `tokenizer` is no filter, scorer or picker",
        "epp.yaml:10: top-level `saturationDetector` is deprecated",
        "epp.yaml:11: top-level `parser` is deprecated",
        "epp.yaml:12: the feature gate `flowControl` is off",
        "epp.yaml:13: the agent scrapes all endpoints anyway",
    ] {
        assert!(warnings.contains(message), "{message}\n{warnings}");
    }
    assert_eq!(spec.scheduler.parsers, [Parser::OpenAi]);
}

#[test]
fn a_precise_producer_says_whose_events_are_followed() {
    let spec = parse(
        "plugins:\n- type: precise-prefix-cache-producer\n  parameters:\n    kvEventsConfig: {podDiscoveryConfig: {socketPort: 6000}}\n",
    );
    let events = spec.unwrap().kv_events.unwrap();
    assert_eq!(events.ports.map(|ports| ports.live), Some(6000));
    assert!(events.discover && events.endpoint_labels.is_empty());
}

#[test]
fn each_fault_names_its_line_and_the_nearest_name() {
    let two = "schedulingProfiles: [{name: a}, {name: b}]\n";
    let cases = [
        ("pluginz: []\n".to_owned(), "epp.yaml:3: unknown field `pluginz`; did you mean `plugins`?"),
        ("plugins:\n- type: queue-scorrer\n".into(), "epp.yaml:4: plugin type `queue-scorrer` is not known; did you mean `queue-scorer`?"),
        ("plugins:\n- type: zzzzzz\n".into(), "epp.yaml:4: plugin type `zzzzzz` is not known; valid here: decode-filter"),
        ("plugins:\n- name: x\n".into(), "epp.yaml:4: field `type` is missing"),
        ("plugins:\n- type: latency-scorer\n".into(), "epp.yaml:4: plugin type `latency-scorer` is not supported"),
        (
            "plugins:\n- type: utilization-filter\n  parameters:\n    conditions:\n    - metric: waiting-queue\n      maxValeu: 4\n".into(),
            "epp.yaml:8: plugin `utilization-filter` of type `utilization-filter`: there is no parameter `conditions[0].maxValeu`; did you mean `maxValue`?",
        ),
        (
            "plugins:\n- type: prefix-cache-scorer\n  parameters:\n    matchLengthWeight: 2\n".into(),
            "epp.yaml:6: plugin `prefix-cache-scorer` of type `prefix-cache-scorer`: parameter `matchLengthWeight` must be",
        ),
        ("plugins:\n- type: queue-scorer\n- type: queue-scorer\n".into(), "epp.yaml:5: plugin name `queue-scorer` is already used at epp.yaml:4"),
        (
            "plugins: [{type: queue-scorer}]\nschedulingProfiles:\n- name: p\n  plugins:\n  - pluginRef: queue-scorr\n".into(),
            "epp.yaml:7: plugin `queue-scorr` is not known; did you mean `queue-scorer`?",
        ),
        ("schedulingProfiles:\n- plugins: []\n".into(), "epp.yaml:4: field `name` is missing"),
        ("schedulingProfiles: [{name: a}, {name: a}]\n".into(), "epp.yaml:3: `name` is `a`; give each profile a name"),
        (two.into(), "epp.yaml:1: several scheduling profiles and no profile handler"),
        (format!("plugins:\n- type: single-profile-handler\n{two}"), "epp.yaml:4: `single-profile-handler` runs one scheduling profile and there are 2"),
        (
            "plugins:\n- type: single-profile-handler\n- type: header-profile-handler\n".into(),
            "epp.yaml:5: `single-profile-handler` and `header-profile-handler` are both profile handlers",
        ),
        (
            "plugins: [{type: random-picker}, {type: max-score-picker}]\nschedulingProfiles:\n- name: p\n  plugins:\n  - pluginRef: random-picker\n  - pluginRef: max-score-picker\n".into(),
            "epp.yaml:8: profile `p` has two pickers, `random-picker` and `max-score-picker`",
        ),
        ("requestHandler: {parsers: [{pluginRef: openai-parser}]}\n".into(), "epp.yaml:3: plugin `openai-parser` is not known; add it under `plugins`"),
        (
            "plugins: [{type: queue-scorer}]\nsaturationDetector: {pluginRef: queue-scorer}\n".into(),
            "epp.yaml:4: plugin `queue-scorer` is no saturation detector; valid here: utilization-detector",
        ),
        ("flowControl: {maxRequests: -1}\n".into(), "epp.yaml:3: `maxRequests` is `-1`; give a quantity"),
        ("flowControl: {defaultRequestTTL: 60}\n".into(), "epp.yaml:3: `defaultRequestTTL` is `60`; give a duration"),
        ("flowControl:\n  priorityBands:\n  - priority: 1\n  - priority: 1\n".into(), "epp.yaml:6: `priority` is `1`; give each priority once"),
        ("featureGates: [flowControl=maybe]\n".into(), "epp.yaml:3: `featureGates` is `flowControl=maybe`"),
        (
            "plugins:\n- type: metrics-data-source\n  parameters:\n    scheme: https\n".into(),
            "epp.yaml:6: scraping over TLS is not supported",
        ),
        (
            "plugins:\n- type: disagg-profile-handler\n  parameters:\n    deciders:\n      prefill: nobody\nschedulingProfiles: [{name: decode}]\n".into(),
            "epp.yaml:7: plugin `nobody` is not known; add it under `plugins`",
        ),
        (
            "plugins:\n- type: session-affinity-filter\n  parameters:\n    strategy: session_id\n    sessionIdConfig:\n      sources:\n      - attribute: session-id\n".into(),
            "epp.yaml:9: plugin `session-id-producer` is not known; add it under `plugins`",
        ),
        (
            "plugins:\n- type: session-affinity-filter\n  parameters:\n    strategy: session_id\n    sessionIdConfig:\n      sources: [{attribute: agent-identity}]\n".into(),
            "epp.yaml:8: plugin `agent-identity` is not known; add it under `plugins`",
        ),
        (
            "plugins:\n- type: core-metrics-extractor\n  parameters:\n    defaultEngine: none\n".into(),
            "epp.yaml:6:",
        ),
    ];
    for (text, message) in cases {
        let shown = parse(&text).unwrap_err();
        assert!(shown.starts_with(message), "{text}\n{shown}");
    }
}

#[test]
fn a_sessions_id_comes_from_the_producer_that_there_is() {
    let source = |plugins: &str, source: &str| {
        let spec = parse(&format!(
            "plugins:\n{plugins}- type: session-affinity-filter\n  parameters:\n    strategy: session_id\n    \
             sessionIdConfig: {{sources: [{source}]}}\n"
        ));
        let spec = spec.unwrap();
        let Filter::SessionAffinity(affinity) = &spec.scheduler.profiles[0].filters[0].plugin
        else {
            panic!("{spec:?}")
        };
        let SessionStrategy::SessionId { sources, .. } = &affinity.strategy else {
            panic!("{spec:?}")
        };
        let SessionSource::Attribute { producer, .. } = &sources[0] else { panic!("{spec:?}") };
        (producer.clone(), spec.scheduler.session_ids.iter().any(|known| known.name == *producer))
    };
    let header = "parameters: {headerName: x-s}";
    let unnamed = format!("- {{type: session-id-producer, {header}}}\n");
    assert_eq!(
        source(&unnamed, "{attribute: session-id}"),
        ("session-id-producer".to_owned(), true)
    );
    let named = format!("- {{type: session-id-producer, name: mine, {header}}}\n");
    let given = "{attribute: session-id, producer: mine}";
    assert_eq!(source(&named, given), ("mine".to_owned(), true));
    let agent = "- {type: agent-identity, name: who}\n";
    assert_eq!(source(agent, "{attribute: agent-identity}"), (String::new(), false));
}

#[test]
fn all_bad_plugins_are_told_at_once() {
    let shown = parse("plugins: [{type: a}, {type: b}, {type: queue-scorer}]\n").unwrap_err();
    assert_eq!(shown.lines().count(), 2, "{shown}");
}
