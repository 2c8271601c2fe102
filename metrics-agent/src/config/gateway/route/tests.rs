use super::*;
use std::path::Path;
use warmroute_shared_state::policy::routing::PathMatch;

fn parse(spec: &str) -> Result<RouteSpec, String> {
    let text = format!(
        "apiVersion: x\nkind: HTTPRoute\nmetadata: {{name: r, namespace: n}}\nspec:\n{spec}"
    );
    read(&Document::new(Path::new("r.yaml"), 0, &text)).map_err(|issue| issue.to_string())
}

const POOL: &str = "group: inference.networking.k8s.io, kind: InferencePool";

#[test]
fn a_route_as_gateway_api_writes_it() {
    let spec = format!(
        "  parentRefs: [{{group: g, kind: Gateway, name: gw, namespace: x, sectionName: http, port: 80}}]\n  \
           hostnames: [API.example.com, '*.example.org']\n  \
           rules:\n  \
           - name: first\n    \
             matches:\n    \
             - path: {{type: PathPrefix, value: /v1/}}\n      \
               headers: [{{name: X-Canary, value: 'yes'}}, {{type: Exact, name: x-canary, value: 'no'}}]\n      \
               queryParams: [{{name: q, value: '1'}}]\n      \
               method: POST\n    \
             - path: {{type: Exact, value: /v1/models}}\n    \
             filters:\n    \
             - type: RequestHeaderModifier\n      \
               requestHeaderModifier:\n        \
                 set: [{{name: X-A, value: a}}]\n        \
                 add: [{{name: X-B, value: b}}]\n        \
                 remove: [X-C]\n    \
             backendRefs:\n    \
             - {{{POOL}, name: p, weight: 90}}\n    \
             - {{{POOL}, name: q, namespace: other, port: 80}}\n    \
             - {{name: s}}\n    \
             timeouts: {{request: 1m30s, backendRequest: 0s}}\n"
    );
    let route = parse(&spec).unwrap();
    assert_eq!(route.hosts, ["api.example.com", "*.example.org"]);
    let [rule] = route.rules.as_slice() else { panic!("{route:?}") };
    let [first, second] = rule.matches.as_slice() else { panic!("{rule:?}") };
    assert_eq!(first.path, PathMatch::Prefix("/v1".into()));
    assert_eq!(first.headers, [("x-canary".to_owned(), "yes".to_owned())]);
    assert_eq!(first.query, [("q".to_owned(), "1".to_owned())]);
    assert_eq!(first.method.as_deref(), Some("POST"));
    assert_eq!(second.path, PathMatch::Exact("/v1/models".into()));
    assert_eq!(rule.set, [("x-a".to_owned(), "a".to_owned())]);
    assert_eq!(rule.add, [("x-b".to_owned(), "b".to_owned())]);
    assert_eq!(rule.remove, ["x-c"]);
    assert_eq!(rule.timeout_ms, Some(90_000));
    let backends: Vec<_> =
        rule.backends.iter().map(|b| (b.name.as_str(), b.is_pool, b.weight)).collect();
    assert_eq!(backends, [("n/p", true, 90), ("other/q", true, 1), ("Service n/s", false, 1)]);
    assert!(route.warnings.is_empty());
}

#[test]
fn what_is_left_out_matches_everything_and_leads_nowhere() {
    for spec in ["  rules: [{}]\n", "  {}\n"] {
        let route = parse(spec).unwrap();
        assert_eq!(
            route.rules,
            [RuleSpec { matches: vec![RouteMatch::default()], ..RuleSpec::default() }]
        );
    }
}

#[test]
fn a_backend_given_twice_is_one_with_both_weights() {
    let backends = format!("[{{{POOL}, name: p, weight: 2}}, {{{POOL}, name: p, weight: 3}}]");
    let route = parse(&format!("  rules: [{{backendRefs: {backends}}}]\n")).unwrap();
    assert_eq!(route.rules[0].backends.len(), 1);
    assert_eq!(route.rules[0].backends[0].weight, 5);
}

#[test]
fn a_timeout_of_one_attempt_is_a_warning() {
    let route = parse("  rules:\n  - timeouts: {request: 10s, backendRequest: 5s}\n").unwrap();
    assert!(route.warnings[0].to_string().starts_with("r.yaml:6: `backendRequest` is not applied"));
}

#[test]
fn durations_are_gateway_apis() {
    let cases = [
        ("0s", Some(0)),
        ("10s", Some(10_000)),
        ("500ms", Some(500)),
        ("1h30m", Some(5_400_000)),
        ("1h1m1s1ms", Some(3_661_001)),
        ("99999h", Some(359_996_400_000)),
        ("1h1m1s1ms1ms", None),
        ("100000s", None),
        ("1.5s", None),
        ("s", None),
        ("10", None),
        ("-1s", None),
        ("", None),
    ];
    for (text, millis) in cases {
        assert_eq!(parse_duration(text), millis, "{text}");
    }
}

#[test]
fn each_fault_names_its_line() {
    let cases = [
        ("  rule: []\n", "r.yaml:5: unknown field `rule`; did you mean `rules`?"),
        ("  hostnames: ['*']\n", "r.yaml:5: `hostnames` is `*`"),
        ("  hostnames: [a_b]\n", "r.yaml:5: `hostnames` is `a_b`"),
        (
            "  rules:\n  - matches:\n    - path: {type: RegularExpression, value: /v.}\n",
            "r.yaml:7: path type `RegularExpression` is not supported; give `Exact` or `PathPrefix`",
        ),
        ("  rules:\n  - matches:\n    - path: {value: v1}\n", "r.yaml:7: `path` is `v1`; give"),
        (
            "  rules:\n  - matches:\n    - path: {value: /a//b}\n",
            "r.yaml:7: `path` is `/a//b`; give",
        ),
        (
            "  rules:\n  - matches:\n    - headers: [{type: RegularExpression, name: x, value: y}]\n",
            "r.yaml:7: header type `RegularExpression` is not supported; give `Exact`",
        ),
        (
            "  rules:\n  - matches:\n    - headers: [{name: 'x y', value: y}]\n",
            "r.yaml:7: `name` is `x y`",
        ),
        ("  rules:\n  - matches:\n    - method: post\n", "r.yaml:7: `method` is `post`"),
        (
            "  rules:\n  - filters:\n    - type: RequestRedirect\n      requestRedirect: {}\n",
            "r.yaml:7: filter `RequestRedirect` is not supported; of the filters only",
        ),
        (
            "  rules:\n  - filters:\n    - type: RequestHeaderModifier\n",
            "r.yaml:7: field `requestHeaderModifier` is missing",
        ),
        ("  rules:\n  - backendRefs: [{name: p, weight: -1}]\n", "r.yaml:6: `weight` is `-1`"),
        (
            "  rules:\n  - backendRefs: [{name: p, filters: [{type: X}]}]\n",
            "r.yaml:6: a filter of one backend is not supported",
        ),
        ("  rules:\n  - timeouts: {request: 5}\n", "r.yaml:6: `timeouts` is `5`; give a duration"),
        ("  rules:\n  - retry: {}\n", "r.yaml:6: unknown field `retry`"),
    ];
    for (spec, message) in cases {
        let shown = parse(spec).unwrap_err();
        assert!(shown.starts_with(message), "{spec}\n{shown}");
    }
    let many = format!("  rules: [{}]\n", "{},".repeat(65));
    assert!(parse(&many).unwrap_err().contains("`rules` is `65 entries`"));
}
