//! Exchanges by a compiled configuration: routes, names, control headers.

use super::tests::{Host, head_with};
use super::*;
use crate::replica::tests::record as endpoint_record;
use crate::request::spliced;
use warmroute_shared_state::endpoint::EndpointRecord;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::plugin::{
    ConcurrencyDetector, ConcurrencyMode, Detector, ProbabilisticAdmitter,
};
use warmroute_shared_state::policy::routing::{
    Backend, ModelMapping, ModelRewrite, Objective, Pool, RewriteRule, RewriteTarget, RouteMatch,
    RouteRule, Routing, Split,
};
use warmroute_shared_state::policy::scheduler::{Named, Scheduler};
use warmroute_shared_state::stream::AgentOp;

fn pool(name: &str) -> Pool {
    let cluster = name.replace('/', ".");
    Pool { name: name.into(), cluster, fail_open: false, scheduler: 0 }
}

/// Two pools of two endpoints each; 90/10 by conversation; a canary by header; adapter names 50/50.
fn policy() -> Policy {
    let backend =
        |pool: usize, weight| Backend { pool: Some(pool), name: format!("b{pool}"), weight };
    let rule =
        |name: &str, backends| RouteRule { name: name.into(), backends, ..RouteRule::default() };
    let header = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let missing = Backend { pool: None, name: "gone".into(), weight: 1 };
    Policy {
        pools: vec![pool("s/a"), pool("s/b")],
        routing: Routing {
            matches: vec![
                RouteMatch {
                    headers: header("x-canary", "true"),
                    rule: 1,
                    ..RouteMatch::default()
                },
                RouteMatch { headers: header("x-broken", "1"), rule: 2, ..RouteMatch::default() },
                RouteMatch {
                    headers: header("x-gateway-base-model-name", "base"),
                    rule: 0,
                    ..RouteMatch::default()
                },
            ],
            rules: vec![
                RouteRule {
                    timeout_ms: Some(1500),
                    ..rule("r", vec![backend(0, 90), backend(1, 10)])
                },
                rule("canary", vec![backend(1, 1)]),
                rule("broken", vec![missing]),
            ],
            default_pool: None,
        },
        model_mappings: vec![ModelMapping {
            base_model: "base".into(),
            adapters: vec!["lora".into()],
        }],
        rewrites: vec![ModelRewrite {
            name: "s/lora".into(),
            pool: Some(0),
            rules: vec![RewriteRule {
                models: vec!["lora".into()],
                generic: false,
                targets: vec![RewriteTarget { model: "lora-v1".into(), weight: Some(1) }],
            }],
            split: Split::Conversation,
        }],
        objectives: vec![Objective { name: "high".into(), pool: Some(0), priority: 100 }],
        ..Policy::default()
    }
}

fn host() -> Host {
    host_of(&policy())
}

fn host_of(policy: &Policy) -> Host {
    let mut host = Host::new(None);
    tell(&mut host, policy);
    host
}

/// The agent tells this policy, and the endpoints of both pools.
fn tell(host: &mut Host, policy: &Policy) {
    let endpoints = (0..4u16).map(|n| {
        let pools = vec![if n < 2 { "s/a".to_owned() } else { "s/b".to_owned() }];
        AgentOp::Endpoint(EndpointRecord { pools, ..endpoint_record(n) })
    });
    let policy = AgentOp::Policy(policy.to_json().into());
    host.tell(core::iter::once(policy).chain(endpoints).collect());
}

/// The canary's pool with this scheduler; its objective `low` is of the priority -1.
fn host_with(scheduler: Scheduler) -> Host {
    let low = Objective { name: "low".into(), pool: None, priority: -1 };
    let policy = Policy { schedulers: vec![scheduler], objectives: vec![low], ..policy() };
    host_of(&policy)
}

fn one_request_an_endpoint() -> Detector {
    Detector::Concurrency(ConcurrencyDetector {
        mode: ConcurrencyMode::Requests,
        max_concurrency: 1,
        max_token_concurrency: 1,
        headroom: 0.0,
    })
}

const CANARY: (&str, &str) = ("x-canary", "true");
const LOW: (&str, &str) = ("x-llm-d-inference-objective", "low");

fn chat(model: &str, text: &str) -> Vec<u8> {
    format!(r#"{{"model":"{model}","messages":[{{"role":"system","content":"s"}},{{"role":"user","content":"{text}"}}]}}"#).into_bytes()
}

fn send(host: &mut Host, headers: &[(&str, &str)], body: &[u8]) -> (Exchange, Step) {
    let mut exchange = Exchange::default();
    let head = head_with("/v1/chat/completions", headers);
    let step = host.with(|env| exchange.on_request_headers(env, head));
    assert_eq!(step, Step::Pause);
    host.with(|env| exchange.on_request_body(env, body));
    let step = host.with(|env| exchange.on_request_end(env));
    (exchange, step)
}

fn forward(step: Step) -> Forward {
    match step {
        Step::Forward(forward) => *forward,
        other => panic!("{other:?}"),
    }
}

fn header<'f>(forward: &'f Forward, name: &str) -> Option<&'f str> {
    forward.set_headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn status(step: &Step) -> (u16, &'static str) {
    match step {
        Step::Reply { reply, details } => (reply.status, details),
        other => panic!("{other:?}"),
    }
}

/// The head of a whole answer.
fn json_answer(encoding: Option<&str>) -> ResponseHead<'_> {
    ResponseHead {
        status: 200,
        content_type: Some(b"application/json"),
        content_encoding: encoding.map(str::as_bytes),
        from_engine: true,
        attempts: 1,
        end_of_stream: false,
    }
}

crate::tests! {
    fn a_conversation_stays_in_its_pool_and_only_its_endpoints_are_picked() {
        let mut host = host();
        let mut to_b = 0;
        for n in 0..400 {
            let mut sides = Vec::new();
            for turn in 0..3 {
                let more = r#","x":1"#.repeat(turn);
                let body = String::from_utf8(chat("base", &format!("conversation {n}"))).unwrap();
                let body = body.replacen(r#"{"model""#, &format!(r#"{{"t":0{more},"model""#), 1);
                let (mut exchange, step) = send(&mut host, &[], body.as_bytes());
                let forward = forward(step);
                let cluster = header(&forward, "x-warmroute-cluster").unwrap().to_owned();
                let first = forward.destinations().unwrap().split(',').next().unwrap();
                let in_b = ["9002", "9003"].iter().any(|port| first.ends_with(port));
                assert_eq!(in_b, cluster == "s.b", "{first} {cluster}");
                assert_eq!(header(&forward, "x-envoy-upstream-rq-timeout-ms"), Some("1500"));
                assert_eq!(header(&forward, "x-gateway-base-model-name"), Some("base"));
                sides.push(cluster);
                host.with(|env| exchange.on_done(env, false));
            }
            assert!(sides.iter().all(|side| *side == sides[0]), "{sides:?}");
            to_b += u32::from(sides[0] == "s.b");
        }
        assert!((20..60).contains(&to_b), "{to_b}");
    }

    fn a_split_that_begins_while_bodies_come_takes_them_by_chance() {
        let mut host = host_of(&Policy::default());
        let body = chat("base", "always the same");
        let begun: Vec<_> = (0..40)
            .map(|_| {
                let mut exchange = Exchange::default();
                host.with(|env| exchange.on_request_headers(env, head_with("/v1/chat/completions", &[])));
                host.with(|env| exchange.on_request_body(env, &body));
                exchange
            })
            .collect();
        let mut even = policy();
        even.routing.rules[0].backends.iter_mut().for_each(|backend| backend.weight = 1);
        tell(&mut host, &even);
        host.now_ms += 10;
        let mut clusters: Vec<String> = Vec::new();
        for mut exchange in begun {
            let step = host.with(|env| exchange.on_request_end(env));
            clusters.push(header(&forward(step), "x-warmroute-cluster").unwrap().to_owned());
        }
        let to_a = clusters.iter().filter(|cluster| *cluster == "s.a").count();
        assert!((5..35).contains(&to_a), "{clusters:?}");
    }

    fn a_header_directs_to_the_canary_and_what_leads_nowhere_is_said() {
        let mut host = host();
        let (_, step) = send(&mut host, &[("x-canary", "true")], &chat("base", "x"));
        assert_eq!(header(&forward(step), "x-warmroute-cluster"), Some("s.b"));
        let (_, step) = send(&mut host, &[("x-broken", "1")], &chat("base", "x"));
        assert_eq!(status(&step), (500, "warmroute_no_backend"));
        let (_, step) = send(&mut host, &[], &chat("unmapped", "x"));
        assert_eq!(status(&step), (404, "warmroute_no_route"));
        // The client cannot name the base model itself, not even where control headers are trusted.
        let (_, step) = send(&mut host, &[("x-gateway-base-model-name", "base")], &chat("unmapped", "x"));
        assert_eq!(status(&step), (404, "warmroute_no_route"));
    }

    fn the_model_is_renamed_on_the_way_in_and_back() {
        let mut host = host();
        // One whose conversation is in pool a, where the rewrite holds.
        let in_a = |host: &mut Host, n: usize| {
            let (exchange, step) = send(host, &[], &chat("lora", &format!("hello {n}")));
            let forward = forward(step);
            (header(&forward, "x-warmroute-cluster") == Some("s.a")).then_some((exchange, forward, n))
        };
        let (mut exchange, forward, n) = (0..50).find_map(|n| in_a(&mut host, n)).unwrap();
        assert_eq!(header(&forward, "x-gateway-base-model-name"), Some("base"));
        assert_eq!(header(&forward, "x-gateway-model-name"), Some("lora"));
        let body = chat("lora", &format!("hello {n}"));
        let body = spliced(&body, &mut forward.splices.clone()).unwrap();
        assert_eq!(body, chat("lora-v1", &format!("hello {n}")));
        let head = json_answer(None);
        let edit = host.with(|env| exchange.on_response_headers(env, &head, || None));
        assert!(edit.changes_length);
        let answer = br#"{"model":"lora-v1","choices":[{"message":{"content":"I am \"model\":\"lora-v1\""}}]}"#;
        let mut got = Vec::new();
        for (at, byte) in answer.iter().enumerate() {
            let last = at + 1 == answer.len();
            let slice = [*byte];
            let instead = host.with(|env| exchange.on_response_body(env, &slice, last));
            got.extend(instead.unwrap_or_else(|| slice.to_vec()));
        }
        let expected = String::from_utf8(answer.to_vec()).unwrap().replacen("lora-v1", "lora", 1);
        assert_eq!(String::from_utf8(got).unwrap(), expected);
        assert_eq!(exchange.record().target_model.as_deref(), Some("lora-v1"));
    }

    fn an_answer_is_renamed_unless_it_is_compressed() {
        for (encoding, renamed) in [(None, true), (Some(""), true), (Some(" Identity "), true), (Some("gzip"), false)] {
            let mut host = host();
            let asked = [("x-canary", "true"), ("x-llm-d-model-name-rewrite", "other")];
            let (mut exchange, step) = send(&mut host, &asked, &chat("m", "x"));
            forward(step);
            let head = json_answer(encoding);
            let edit = host.with(|env| exchange.on_response_headers(env, &head, || None));
            assert_eq!(edit.changes_length, renamed, "{encoding:?}");
        }
    }

    fn a_long_name_of_a_model_is_cut_in_the_record_and_not_put_back() {
        let mut host = host();
        let (name, other) = ("é".repeat(1000), "ö".repeat(1000));
        let asked = [("x-canary", "true"), ("x-llm-d-model-name-rewrite", &*other)];
        let body = chat(&name, "x");
        let (mut exchange, step) = send(&mut host, &asked, &body);
        let renamed = spliced(&body, &mut forward(step).splices).unwrap();
        assert_eq!(renamed, chat(&other, "x"));
        assert_eq!(exchange.record().model, Some("é".repeat(128)));
        assert_eq!(exchange.record().target_model, Some("ö".repeat(128)));
        let head = json_answer(None);
        let edit = host.with(|env| exchange.on_response_headers(env, &head, || None));
        assert!(!edit.changes_length, "nothing of the client's name is kept for the answer");
    }

    fn trusted_control_headers_give_priority_subset_and_name() {
        let mut host = host();
        let (exchange, _) = send(&mut host, &[("x-canary", "true"), ("x-llm-d-inference-objective", "high")], &chat("m", "x"));
        assert_eq!(exchange.record().priority, 0, "the objective is another pool's");
        let only = [("x-canary", "true"), ("x-gateway-destination-endpoint-subset", "10.9.9.9:1")];
        let (_, step) = send(&mut host, &only, &chat("m", "x"));
        assert_eq!(status(&step), (503, "warmroute_no_endpoint"));
        let asked = [("x-canary", "true"), ("x-llm-d-model-name-rewrite", "other")];
        let (exchange, step) = send(&mut host, &asked, &chat("m", "x"));
        assert_eq!(forward(step).splices.len(), 1);
        assert_eq!(exchange.record().target_model.as_deref(), Some("other"));
    }

    fn a_full_pool_without_flow_control_sheds_what_is_below_0() {
        let detector = one_request_an_endpoint();
        let mut host = host_with(Scheduler { detector, ..Scheduler::default() });
        let (mut first, step) = send(&mut host, &[CANARY, LOW], &chat("m", "1"));
        assert!(forward(step).destinations().is_some());
        let (_second, step) = send(&mut host, &[CANARY, LOW], &chat("m", "2"));
        assert!(forward(step).destinations().is_some(), "one of two endpoints is free");
        let (shed, step) = send(&mut host, &[CANARY, LOW], &chat("m", "3"));
        assert_eq!(status(&step), (429, "warmroute_shed"));
        let Step::Reply { reply, .. } = step else { panic!() };
        let headers: Vec<_> = reply.headers.iter().map(|(name, value)| (*name, &**value)).collect();
        assert!(headers.contains(&("x-llm-d-request-dropped-reason", "rejected-saturated")), "{headers:?}");
        assert!(headers.contains(&("retry-after", "1")), "{headers:?}");
        assert_eq!(shed.record().dropped, Some("rejected-saturated"));
        let (mut third, step) = send(&mut host, &[CANARY], &chat("m", "3"));
        assert!(forward(step).destinations().is_some(), "others are never refused");
        for exchange in [&mut first, &mut third] {
            host.with(|env| exchange.on_done(env, false));
        }
        let (_, step) = send(&mut host, &[CANARY, LOW], &chat("m", "3"));
        assert!(forward(step).destinations().is_some());
    }

    fn a_subset_that_nobody_is_in_is_no_matter_of_shedding() {
        let detector = one_request_an_endpoint();
        let mut host = host_with(Scheduler { detector, ..Scheduler::default() });
        let only = ("x-gateway-destination-endpoint-subset", "10.9.9.9:1");
        let (exchange, step) = send(&mut host, &[CANARY, LOW, only], &chat("m", "x"));
        assert_eq!(status(&step), (503, "warmroute_no_endpoint"));
        assert_eq!(exchange.record().dropped, Some("rejected-no-endpoints"));
    }

    fn an_admitter_denies_requests_below_0_before_the_pool_is_full() {
        let admitter = ProbabilisticAdmitter {
            queue_depth_threshold: 5.0, kv_cache_util_threshold: 0.8, power: 1.0, k: 1000.0,
        };
        let admitters = vec![Named { name: "probabilistic-admitter".into(), plugin: admitter }];
        let mut host = host_with(Scheduler { admitters, ..Scheduler::default() });
        let (mut first, step) = send(&mut host, &[CANARY, LOW], &chat("m", "1"));
        assert!(forward(step).destinations().is_some(), "nothing is in flight");
        // No metrics: one request of 200 that two endpoints take, so 0.005 × 1000, which is certain.
        let (_, step) = send(&mut host, &[CANARY, LOW], &chat("m", "2"));
        assert_eq!(status(&step), (429, "warmroute_shed"));
        let (mut other, step) = send(&mut host, &[CANARY], &chat("m", "2"));
        assert!(forward(step).destinations().is_some());
        for exchange in [&mut first, &mut other] {
            host.with(|env| exchange.on_done(env, false));
        }
        let (_, step) = send(&mut host, &[CANARY, LOW], &chat("m", "2"));
        assert!(forward(step).destinations().is_some());
    }

    fn if_available_is_refused_where_nobody_holds_the_prompt() {
        let mut host = host();
        let long = "x".repeat(600);
        let prefer = [("x-canary", "true"), ("prefer", "if-available")];
        let (_, step) = send(&mut host, &prefer, &chat("m", &long));
        assert_eq!(status(&step), (412, "warmroute_not_cached"));
        let (_, step) = send(&mut host, &prefer[..1], &chat("m", &long));
        assert!(forward(step).destinations().is_some());
        let (_, step) = send(&mut host, &prefer, &chat("m", &long));
        assert!(forward(step).destinations().is_some());
    }
}
