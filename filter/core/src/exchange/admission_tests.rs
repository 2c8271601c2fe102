//! What is asked, read and estimated on the way to a request's turn, and how long it waits for it.

use super::encoding_tests::anonymous;
use super::tests::{Host, head_with};
use super::*;
use crate::flow_control::protocol::{DropReason, Refused};
use crate::flow_control::tests::control;
use crate::flow_control::worker::Event;
use crate::replica::tests::record as endpoint_record;
use crate::vm::Message;
use warmroute_shared_state::endpoint::EndpointRecord;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::flow::{DEFAULT_REQUEST_TTL_MS, FlowControl};
use warmroute_shared_state::policy::plugin::Fairness;
use warmroute_shared_state::policy::routing::{Objective, Pool, Routing};
use warmroute_shared_state::policy::scheduler::Scheduler;
use warmroute_shared_state::policy::tenants::{JwtClaim, Limit, Tenant};
use warmroute_shared_state::stream::AgentOp;

const LOW: (&str, &str) = ("x-llm-d-inference-objective", "low");

fn policy_op(policy: &Policy) -> AgentOp {
    AgentOp::Policy(policy.to_json().into())
}

fn host(policy: &Policy) -> Host {
    let mut host = Host::new(None);
    host.tell(vec![policy_op(policy), AgentOp::Endpoint(endpoint_record(0))]);
    host
}

fn head(host: &mut Host, exchange: &mut Exchange, headers: &[(&str, &str)]) -> Step {
    let head = head_with("/v1/chat/completions", headers);
    host.with(|env| exchange.on_request_headers(env, head))
}

fn body(host: &mut Host, exchange: &mut Exchange, text: &str) -> Step {
    let body = format!(
        r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#
    );
    host.with(|env| exchange.on_request_body(env, body.as_bytes()));
    host.with(|env| exchange.on_request_end(env))
}

/// A tenant whose requests have to ask for their turn, without any flow control.
fn limited() -> Policy {
    let limit = Limit { model: "*".into(), rpm: Some(100), ..Limit::default() };
    let tenant = Tenant { limits: vec![limit], ..anonymous() };
    Policy { tenants: vec![tenant], ..Policy::default() }
}

crate::tests! {
    fn tokens_are_estimated_by_what_the_requests_own_pool_learned() {
        let pool = |name: &str| Pool { name: name.into(), cluster: "p".into(), fail_open: false, scheduler: 0 };
        let policy = |default_pool| Policy {
            pools: vec![pool("a"), pool("b")],
            routing: Routing { default_pool: Some(default_pool), ..Routing::default() },
            tenants: vec![anonymous()],
            ..Policy::default()
        };
        // 2000 bytes: 1000 tokens where two bytes are one, 500 at the default of four. One more is asked for.
        for (pool, expected) in [(0, 950..=1075), (1, 500..=525)] {
            let mut host = Host::new(None);
            let endpoint = |n: u16, pool: &str| {
                AgentOp::Endpoint(EndpointRecord { pools: vec![pool.into()], ..endpoint_record(n) })
            };
            host.tell(vec![policy_op(&policy(pool)), endpoint(0, "a"), endpoint(1, "b")]);
            let endpoint = endpoint_record(0).id;
            host.with(|env| {
                for _ in 0..200 {
                    let usage = Message::Usage { endpoint, prompt_bytes: 2000, prompt_tokens: 1000 };
                    env.vm.on_messages(env.store, core::iter::once(usage), env.now_ms);
                }
            });
            let mut exchange = Exchange::default();
            head(&mut host, &mut exchange, &[]);
            let step = body(&mut host, &mut exchange, &"x".repeat(2000));
            assert!(matches!(step, Step::Forward(_)), "{step:?}");
            let reserved = exchange.record().reserved_tokens.unwrap();
            assert!(expected.contains(&reserved), "pool {pool}: {reserved}");
        }
    }

    fn a_request_is_identified_once_unless_the_policy_changes_meanwhile() {
        let claim = JwtClaim { issuer: "sso".into(), claim: "org".into(), value: "x".into() };
        let policy = |tier: Option<&str>| {
            let tier = tier.map(str::to_owned);
            let tenant = Tenant { name: "a".into(), jwt: Some(claim.clone()), ..anonymous() };
            Policy { tenants: vec![tenant, Tenant { tier, ..anonymous() }], ..Policy::default() }
        };
        for (changes, asked) in [(false, 1), (true, 2)] {
            let mut host = host(&policy(None));
            let mut exchange = Exchange::default();
            head(&mut host, &mut exchange, &[]);
            if changes {
                host.tell(vec![policy_op(&policy(Some("gold"))), AgentOp::Endpoint(endpoint_record(0))]);
            }
            let step = body(&mut host, &mut exchange, "x");
            assert!(matches!(step, Step::Forward(_)), "{step:?}");
            assert_eq!(host.claims_asked(), asked, "changes: {changes}");
        }
    }

    fn shared_data_is_read_once_for_a_decision_and_once_for_a_grant() {
        let low = Objective { name: "low".into(), pool: None, priority: -1 };
        let plain = Policy { schedulers: vec![Scheduler::default()], objectives: vec![low], ..Policy::default() };
        for (name, policy, headers, grants) in
            [("plain", &plain, &[][..], false), ("sheddable", &plain, &[LOW], false), ("waits", &limited(), &[], true)]
        {
            let mut host = host(policy);
            let mut exchange = Exchange::default();
            host.now_ms += 1;
            let (heads, totals) = host.reads();
            head(&mut host, &mut exchange, headers);
            let mut step = body(&mut host, &mut exchange, "x");
            assert_eq!(host.reads(), (heads + 1, totals + 1), "{name}");
            if grants {
                let events = host.later(700);
                let Some(Event::Granted { ticket, .. }) = events.first() else { panic!("{events:?}") };
                let (heads, totals) = host.reads();
                step = host.with(|env| exchange.on_grant(env, *ticket, 700));
                assert_eq!(host.reads(), (heads + 1, totals + 1), "{name}: its grant");
            }
            assert!(matches!(step, Step::Forward(_)), "{name}: {step:?}");
        }
    }

    fn shared_data_is_read_once_a_millisecond_however_many_requests_come() {
        let mut host = host(&Policy { schedulers: vec![Scheduler::default()], ..Policy::default() });
        let mut reads = |after_ms: u64| {
            host.now_ms += after_ms;
            let before = host.reads();
            for text in ["x", "y"] {
                let mut exchange = Exchange::default();
                head(&mut host, &mut exchange, &[]);
                assert!(matches!(body(&mut host, &mut exchange, text), Step::Forward(_)));
            }
            (host.reads().0 - before.0, host.reads().1 - before.1)
        };
        reads(0);
        assert_eq!([reads(0), reads(1)], [(0, 0), (1, 1)]);
    }

    fn what_waits_for_its_budget_alone_does_not_wait_for_ever() {
        let flow = FlowControl { request_ttl_ms: 0, ..control(1, Fairness::GlobalStrict) };
        let for_ever = Policy { flow: vec![flow], ..limited() };
        for (name, policy, waits_ms, expires) in [
            ("budget only", &limited(), DEFAULT_REQUEST_TTL_MS - 1, false),
            ("budget only", &limited(), DEFAULT_REQUEST_TTL_MS, true),
            ("flow control says so", &for_ever, DEFAULT_REQUEST_TTL_MS, false),
        ] {
            let mut host = host(policy);
            // Another worker, whose dispatcher is away.
            host.with(|env| {
                *env.vm = VmState::new(2, env.config.settings());
                env.vm.attach(env.store);
            });
            let mut exchange = Exchange::default();
            head(&mut host, &mut exchange, &[]);
            assert_eq!(body(&mut host, &mut exchange, "x"), Step::Pause);
            let expired = Refused::Queue { reason: DropReason::TtlExpired, retry_after_ms: 1000 };
            let events = host.later(waits_ms);
            let refused = events.contains(&Event::Refused { context: 7, refused: expired });
            assert_eq!(refused, expires, "{name}, {waits_ms} ms: {events:?}");
        }
    }
}
