use super::super::Configuration;
use super::super::kv_events::Plan;
use super::super::source::Source;
use super::*;
use std::path::Path;
use warmroute_shared_state::policy::routing::Split;

fn load(text: &str) -> Result<Configuration, String> {
    let sources = [Source { path: "c.yaml".into(), text: text.into() }];
    Configuration::from_sources(Path::new("c"), &sources)
        .map_err(|issues| issues.iter().map(|i| format!("{i}\n")).collect())
}

fn pool(name: &str, picker: &str) -> String {
    format!(
        "---\napiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {{name: {name}, namespace: n}}\n\
         spec:\n  selector: {{matchLabels: {{pool: {name}}}}}\n  targetPorts: [{{number: 8000}}]\n  \
         endpointPickerRef: {{name: {picker}, failureMode: FailOpen}}\n"
    )
}

fn picker(name: &str, scorer: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: n}}\ndata:\n  any: |\n    \
         apiVersion: llm-d.ai/v1alpha1\n    kind: EndpointPickerConfig\n    plugins: [{{type: {scorer}}}]\n"
    )
}

fn route(name: &str, meta: &str, backends: &str) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}, namespace: n{meta}}}\n\
         spec:\n  rules:\n  - backendRefs: [{backends}]\n"
    )
}

fn backend(name: &str, weight: u32) -> String {
    format!(
        "{{group: inference.networking.k8s.io, kind: InferencePool, name: {name}, weight: {weight}}}"
    )
}

fn scorers(configuration: &Configuration) -> Vec<String> {
    let policy = configuration.policy("all");
    let of = |pool: &Pool| policy.schedulers[pool.scheduler].profiles[0].scorers[0].name.clone();
    policy.pools.iter().map(of).collect()
}

#[test]
fn one_pickers_configuration_serves_all_pools_whatever_its_name() {
    let all =
        load(&[pool("a", "x"), pool("b", "y"), picker("z", "queue-scorer")].concat()).unwrap();
    assert_eq!(scorers(&all), ["queue-scorer", "queue-scorer"]);
    assert_eq!(all.policy("all").schedulers.len(), 1);
}

#[test]
fn several_are_chosen_by_name_and_the_rest_is_not_used() {
    let text = [
        pool("a", "x"),
        pool("b", "y"),
        pool("c", "x"),
        picker("y-config", "queue-scorer"),
        picker("x", "load-aware-scorer"),
        picker("spare", "queue-scorer"),
    ];
    let all = load(&text.concat()).unwrap();
    assert_eq!(scorers(&all), ["load-aware-scorer", "queue-scorer", "load-aware-scorer"]);
    assert_eq!(all.policy("all").schedulers.len(), 2);
    assert_eq!(all.pickers.len(), 2);
    let told =
        all.warnings.iter().any(|w| w.to_string().contains("leads to `n/spare`; it is not used"));
    assert!(told, "{:?}", all.warnings);
}

#[test]
fn several_in_one_config_map_go_by_their_keys() {
    let map = |a: &str, b: &str| {
        let head =
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: all, namespace: n}\ndata:\n";
        let entry = |key: &str, scorer: &str| {
            format!(
                "  {key}: |\n    apiVersion: llm-d.ai/v1alpha1\n    kind: EndpointPickerConfig\n    \
                 plugins: [{{type: {scorer}}}]\n"
            )
        };
        format!("{head}{}{}", entry(a, "queue-scorer"), entry(b, "load-aware-scorer"))
    };
    let pools = [pool("a", "x"), pool("b", "y")].concat();
    let all = load(&format!("{pools}{}", map("y-config.yaml", "x.yml"))).unwrap();
    assert_eq!(scorers(&all), ["load-aware-scorer", "queue-scorer"]);
    // As llm-d's chart has it, whose picker is told by an option which one it reads.
    let issues =
        load(&format!("{}{}", pool("a", "x"), map("default.yaml", "mine.yaml"))).unwrap_err();
    assert!(issues.contains("`n/default` and `n/mine`, and it names `x`"), "{issues}");
    assert!(issues.contains("go by their keys), or remove the others"), "{issues}");
}

#[test]
fn a_pickers_kv_events_are_those_of_its_pools_endpoints() {
    let engine = |namespace: &str, ip: u8| {
        format!(
            "- {{name: e, namespace: {namespace}, address: 10.0.0.{ip}, port: 8000, labels: {{pool: a}}}}\n"
        )
    };
    let endpoints = format!("---\nendpoints:\n{}{}", engine("n", 1), engine("other", 2));
    let text = [pool("a", "x"), picker("x", "precise-prefix-cache-producer"), endpoints].concat();
    let all = load(&text).unwrap();
    let plan = |n: usize| Plan::of(&all.endpoints[n], &all.kv_events);
    assert_eq!((all.endpoints[0].namespace.as_str(), plan(0).is_some()), ("n", true));
    assert_eq!(plan(1), None, "of the same labels in another namespace");
}

#[test]
fn more_tenants_than_the_filter_takes_are_refused_where_they_begin() {
    let tenants = |count: u32| -> String {
        let one = |n: u32| {
            format!(
                "---\napiVersion: warmroute/v1alpha1\nkind: TenantQuota\nmetadata: {{name: tenant-{n:05}}}\n\
                 spec:\n  identity: {{apiKeyHashes: [\"{n:064x}\"]}}\n  limits: [{{model: '*', rpm: 60, tpm: 100000}}]\n"
            )
        };
        (0..count).map(one).collect()
    };
    let all = load(&tenants(2500)).unwrap();
    assert_eq!(all.policy("all").tenants.len(), 2500);
    let issues = load(&tenants(6000)).unwrap_err();
    assert_eq!(issues.lines().count(), 1, "{issues}");
    let (line, rest) = issues.strip_prefix("c.yaml:").unwrap().split_once(": ").unwrap();
    let left: usize = rest
        .strip_prefix("no room for this tenant and those behind it, ")
        .and_then(|rest| rest.split_once(" of 6000: routes, plugins and tenants come to "))
        .and_then(|(left, _)| left.parse().ok())
        .unwrap_or_else(|| panic!("{issues}"));
    // Seven lines each, the first a marker.
    assert_eq!(line.parse(), Ok((6000 - left) * 7 + 2), "{issues}");
    let fit = u32::try_from(6000 - left).unwrap();
    assert!(load(&tenants(fit)).is_ok() && load(&tenants(fit + 1)).is_err(), "{fit}");
}

#[test]
fn a_pool_that_none_of_several_names_is_refused() {
    let text = [pool("a", "z"), picker("y", "queue-scorer"), picker("x", "queue-scorer")].concat();
    let issues = load(&text).unwrap_err();
    let expected = "c.yaml:2: InferencePool `n/a` has the choice of several EndpointPickerConfigs, `n/y` and `n/x`, \
                    and it names `z`; give";
    assert!(issues.starts_with(expected), "{issues}");
    let none = [picker("y", "queue-scorer"), picker("x", "queue-scorer")].concat();
    let issues = load(&none).unwrap_err();
    assert!(issues.contains("`n/y` and `n/x`, and no InferencePool"), "{issues}");
}

#[test]
fn without_a_configuration_it_is_llm_ds_default() {
    let policy = load(&pool("a", "x")).unwrap().policy("all");
    let [scheduler] = policy.schedulers.as_slice() else { panic!("{policy:?}") };
    let profile = &scheduler.profiles[0];
    let scorers: Vec<_> = profile.scorers.iter().map(|s| (s.name.as_str(), s.weight)).collect();
    let expected =
        [("queue-scorer", 2.0), ("kv-cache-utilization-scorer", 2.0), ("prefix-cache-scorer", 3.0)];
    assert_eq!(scorers, expected);
    assert_eq!(profile.picker.name, "max-score-picker");
}

#[test]
fn one_pool_is_the_cluster_that_there_is_and_several_have_their_own() {
    let one = load(&pool("a", "x")).unwrap().policy("all");
    assert_eq!((one.pools[0].cluster.as_str(), one.pools[0].fail_open), ("all", true));
    assert_eq!(one.routing.default_pool, Some(0));
    let h2c = pool("a", "x")
        .replace("  endpointPickerRef", "  appProtocol: kubernetes.io/h2c\n  endpointPickerRef");
    let h2c = load(&h2c).unwrap().policy("all");
    assert_eq!(h2c.pools[0].cluster, "n.a", "the cluster of all speaks HTTP/1.1");
    let two = load(&[pool("a", "x"), pool("b", "x")].concat()).unwrap();
    let clusters = |single: &str| -> Vec<String> {
        two.policy(single).pools.into_iter().map(|pool| pool.cluster).collect()
    };
    assert_eq!(clusters("all"), ["n.a", "n.b"]);
    assert_eq!(clusters("n.a"), ["n.a.pool", "n.b"]);
    assert_eq!(two.policy("all").routing.default_pool, None);
    assert!(two.warnings.iter().any(|w| w.to_string().contains("several pools and no HTTPRoute")));
}

#[test]
fn routes_lead_to_pools_or_to_a_remark() {
    let backends = [backend("a", 90), backend("gone", 10), "{name: web}".into()].join(", ");
    let random = ", annotations: {warmroute/split: random}";
    let all = load(&[pool("a", "x"), route("r", random, &backends)].concat()).unwrap();
    let policy = all.policy("all");
    let rule = &policy.routing.rules[0];
    let pools: Vec<_> = rule.backends.iter().map(|b| (b.pool, b.weight)).collect();
    assert_eq!(pools, [(Some(0), 90), (None, 10), (None, 1)]);
    assert_eq!((rule.name.as_str(), rule.split), ("n/r/0", Split::Random));
    assert_eq!((policy.routing.matches.len(), policy.routing.default_pool), (1, None));
    let warnings: String = all.warnings.iter().map(|w| format!("{w}\n")).collect();
    assert!(warnings.contains("`n/gone` does not exist (ResolvedRefs=False)"), "{warnings}");
    assert!(
        warnings.contains("`Service n/web` is no InferencePool (ResolvedRefs=False)"),
        "{warnings}"
    );
    let empty = load(&[pool("a", "x"), route("r", "", &backend("a", 0))].concat()).unwrap();
    assert!(
        empty.warnings.iter().any(|w| w.to_string().contains("no backend with a weight above 0"))
    );
}

#[test]
fn rewrites_and_objectives_belong_to_a_pool() {
    let rewrite = |name: &str, pool: &str, created: &str| {
        format!(
            "---\napiVersion: llm-d.ai/v1alpha2\nkind: InferenceModelRewrite\nmetadata: {{name: {name}, namespace: n{created}}}\n\
             spec: {{poolRef: {{name: {pool}}}, rules: [{{targets: [{{modelRewrite: m}}]}}]}}\n"
        )
    };
    let objective = |name: &str, pool: &str| {
        format!(
            "---\napiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {{name: {name}, namespace: n}}\n\
             spec: {{priority: 5, poolRef: {{name: {pool}}}}}\n"
        )
    };
    let old = ", creationTimestamp: \"2025-01-01T00:00:00Z\"";
    let text = [
        pool("a", "x"),
        rewrite("undated", "a", ""),
        rewrite("old", "a", old),
        rewrite("lost", "gone", ""),
        objective("o", "a"),
        objective("p", "gone"),
    ]
    .concat();
    let all = load(&text).unwrap();
    let policy = all.policy("all");
    let names: Vec<_> = policy.rewrites.iter().map(|r| (r.name.as_str(), r.pool)).collect();
    assert_eq!(names, [("n/old", Some(0)), ("n/undated", Some(0))]);
    let objectives: Vec<_> =
        policy.objectives.iter().map(|o| (o.name.as_str(), o.priority)).collect();
    assert_eq!(objectives, [("o", 5)]);
    let gone =
        all.warnings.iter().filter(|w| w.to_string().contains("`n/gone` does not exist")).count();
    assert_eq!(gone, 2);
    let poolless =
        load(&[rewrite("r", "any", ""), objective("o", "any")].concat()).unwrap().policy("all");
    assert_eq!((poolless.rewrites[0].pool, poolless.objectives[0].pool), (None, None));
}

#[test]
fn mappings_of_one_base_model_are_joined_and_a_name_stands_for_one() {
    let mapping = |name: &str, base: &str, adapters: &str| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{inference.llm-d.ai/ipp-managed: 'true'}}}}\n\
             data: {{baseModel: {base}, adapters: '[{adapters}]'}}\n"
        )
    };
    let joined =
        [mapping("a", "base", "x, y"), mapping("b", "base", "y, z"), mapping("c", "other", "")];
    let policy = load(&joined.concat()).unwrap().policy("all");
    let expected = [
        ModelMapping {
            base_model: "base".into(),
            adapters: vec!["x".into(), "y".into(), "z".into()],
        },
        ModelMapping { base_model: "other".into(), adapters: vec![] },
    ];
    assert_eq!(policy.model_mappings, expected);
    for other in ["x", "base"] {
        let twice = [mapping("a", "base", "x"), mapping("b", "other", other)].concat();
        let issues = load(&twice).unwrap_err();
        let expected = format!("c.yaml:7: model name `{other}` is already used at c.yaml:2");
        assert!(issues.starts_with(&expected), "{issues}");
    }
}

#[test]
fn a_name_is_given_once_for_each_kind() {
    let issues = load(&[pool("a", "x"), pool("a", "x")].concat()).unwrap_err();
    assert!(
        issues.starts_with("c.yaml:10: InferencePool `n/a` is already used at c.yaml:2"),
        "{issues}"
    );
    let tenant = |name: &str| {
        format!(
            "---\napiVersion: warmroute/v1alpha1\nkind: TenantQuota\nmetadata: {{name: {name}}}\n\
             spec: {{identity: {{apiKeyHashes: [{}]}}, inject: {{objective: gone}}}}\n",
            "ab".repeat(32)
        )
    };
    let issues = load(&[tenant("a"), tenant("b")].concat()).unwrap_err();
    assert!(
        issues.starts_with("c.yaml:10: API key `abababab…` is already used at c.yaml:5"),
        "{issues}"
    );
    let one = load(&tenant("a")).unwrap();
    let told = one.warnings.iter().any(|w| w.to_string().contains("no InferenceObjective `gone`"));
    assert!(told, "{:?}", one.warnings);
}

#[test]
fn a_list_is_read_like_its_objects() {
    let pool = pool("a", "x");
    let items: String = pool
        .lines()
        .skip(1)
        .enumerate()
        .map(|(n, line)| format!("{}{line}\n", if n == 0 { "- " } else { "  " }))
        .collect();
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{items}");
    assert_eq!(load(&list).unwrap().objects.pools.len(), 1);
    let bad = list.replace("targetPorts", "targetPort");
    let issues = load(&bad).unwrap_err();
    assert!(
        issues.starts_with("c.yaml:9: unknown field `targetPort`; did you mean `targetPorts`?"),
        "{issues}"
    );
}

#[test]
fn tenants_and_flow_control_are_told_as_they_are_enforced() {
    let text = format!(
        "apiVersion: warmroute/v1alpha1\nkind: TenantQuota\nmetadata: {{name: t}}\nspec:\n  identity: {{apiKeyHashes: [{}], stripKey: true}}\n  \
         inject: {{tier: gold}}\n  limits: [{{model: '*', rpm: 1}}, {{model: m, tpm: 2}}]\n  accounting: {{streamDisconnect: bill_exact}}\n\
         ---\napiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\n\
         flowControl: {{maxRequests: 7, priorityBands: [{{priority: -1}}, {{priority: 5, maxRequests: 3}}]}}\n",
        "0f".repeat(32)
    );
    let policy = load(&text).unwrap().policy("all");
    let [tenant] = policy.tenants.as_slice() else { panic!("{policy:?}") };
    assert_eq!((tenant.key_hashes.as_slice(), tenant.strip_key), (&[[0x0f; 32]][..], true));
    assert_eq!((tenant.fairness_id.as_str(), tenant.tier.as_deref()), ("t", Some("gold")));
    let limits: Vec<_> = tenant.limits.iter().map(|l| (l.model.as_str(), l.rpm, l.tpm)).collect();
    assert_eq!(limits, [("m", None, Some(2)), ("*", Some(1), None)]);
    assert_eq!(tenant.accounting, warmroute_shared_state::policy::tenants::Accounting::Exact);
    let [flow] = policy.flow.as_slice() else { panic!("{policy:?}") };
    let bands: Vec<_> = flow.bands.iter().map(|b| (b.priority, b.limits.max_requests)).collect();
    assert_eq!(bands, [(5, 3), (0, 5000), (-1, 5000)]);
    assert_eq!((flow.scheduler, flow.max_requests), (0, 7));
    assert!(load(&text.replace("[flowControl]", "[]")).unwrap().policy("all").flow.is_empty());
}
