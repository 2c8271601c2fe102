//! Whose a request is, before anything is taken in of it.

use super::tests::{Host, head_with};
use super::*;
use crate::replica::tests::record as endpoint_record;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::plugin::Parser;
use warmroute_shared_state::policy::scheduler::Scheduler;
use warmroute_shared_state::policy::tenants::{Accounting, Limit, Tenant};
use warmroute_shared_state::stream::AgentOp;

/// SHA-256 of `key-a`.
const KEY_A: [u8; 32] = [
    0xf1, 0x0f, 0x78, 0x12, 0x41, 0xe2, 0x24, 0x66, 0x78, 0xb6, 0xb4, 0x5c, 0x85, 0x70, 0x69, 0x20,
    0x81, 0x52, 0xa5, 0x38, 0x63, 0xe4, 0x7f, 0xac, 0x33, 0xf6, 0x07, 0xab, 0x40, 0x50, 0x06, 0xf4,
];

fn tenant() -> Tenant {
    let limit = Limit { model: "*".into(), rpm: Some(2), ..Limit::default() };
    Tenant {
        name: "a".into(),
        key_hashes: vec![KEY_A],
        jwt: None,
        strip_key: true,
        fairness_id: "a".into(),
        objective: None,
        tier: None,
        limits: vec![limit],
        accounting: Accounting::Generated,
    }
}

fn host(policy: &[u8]) -> Host {
    let mut host = Host::new(None);
    let endpoints = (0..2).map(|n| AgentOp::Endpoint(endpoint_record(n)));
    host.tell(core::iter::once(AgentOp::Policy(policy.into())).chain(endpoints).collect());
    host
}

fn ask(host: &mut Host, headers: &[(&str, &str)]) -> (Exchange, Step) {
    let mut exchange = Exchange::default();
    let head = head_with("/v1/chat/completions", headers);
    let step = host.with(|env| exchange.on_request_headers(env, head));
    (exchange, step)
}

fn status(step: &Step) -> Option<(u16, &'static str)> {
    match step {
        Step::Reply { reply, details } => Some((reply.status, details)),
        _ => None,
    }
}

crate::tests! {
    fn nobody_unknown_is_let_in_before_the_body_and_none_fills_the_ledger() {
        let policy = Policy { tenants: vec![tenant()], ..Policy::default() };
        let mut host = host(&policy.to_json());
        for headers in [&[][..], &[("authorization", "Bearer wrong")], &[("x-api-key", "wrong")]] {
            let (mut exchange, step) = ask(&mut host, headers);
            assert_eq!(status(&step), Some((401, "warmroute_unknown_key")));
            host.with(|env| exchange.on_done(env, false));
        }
        assert!(host.ledger.is_empty());
    }

    fn where_no_parser_reads_a_path_nobody_unknown_fills_the_ledger_either() {
        let parsers = vec![Parser::OpenAi];
        let scheduler = Scheduler { parsers, ..Scheduler::default() };
        let policy = Policy { tenants: vec![tenant()], schedulers: vec![scheduler], ..Policy::default() };
        let mut host = host(&policy.to_json());
        for (key, expected) in [("wrong", (401, "warmroute_unknown_key")), ("key-a", (400, "warmroute_no_parser"))] {
            let mut exchange = Exchange::default();
            let head = head_with("/x", &[("x-api-key", key)]);
            let step = host.with(|env| exchange.on_request_headers(env, head));
            assert_eq!(status(&step), Some(expected));
            host.with(|env| exchange.on_done(env, false));
            assert_eq!(host.ledger.is_empty(), key == "wrong");
        }
    }

    fn what_is_refused_of_a_tenant_before_it_is_routed_is_the_tenants() {
        let policy = Policy { tenants: vec![tenant()], ..Policy::default() };
        let mut host = host(&policy.to_json());
        let key = ("authorization", "Bearer key-a");
        let (exchange, step) = ask(&mut host, &[key, ("content-length", "99999")]);
        assert_eq!(status(&step), Some((413, "warmroute_too_large")));
        assert_eq!(exchange.record().tenant.as_deref(), Some("a"));
    }

    fn a_key_is_known_to_a_worker_that_had_nothing_to_do_since_it_came() {
        let other = Tenant { name: "b".into(), key_hashes: vec![[0; 32]], ..tenant() };
        let before = Policy { tenants: vec![other], ..Policy::default() };
        let mut host = host(&before.to_json());
        let idle = host.another_vm();
        let policy = Policy { tenants: vec![tenant()], ..Policy::default() };
        host.tell(vec![AgentOp::Policy(policy.to_json().into())]);
        host.vm = idle;
        let (_, step) = ask(&mut host, &[("authorization", "Bearer key-a")]);
        assert_eq!(step, Step::Pause);
    }

    fn a_known_key_is_let_in_and_its_body_counts_until_it_goes() {
        let policy = Policy { tenants: vec![tenant()], ..Policy::default() };
        let mut host = host(&policy.to_json());
        let (mut exchange, step) = ask(&mut host, &[("authorization", "Bearer key-a")]);
        assert_eq!(step, Step::Pause);
        let body = br#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;
        host.with(|env| exchange.on_request_body(env, body));
        let step = host.with(|env| exchange.on_request_end(env));
        assert!(matches!(&step, Step::Forward(_) | Step::Pause), "{step:?}");
        host.with(|env| exchange.on_done(env, true));
        assert!(!host.ledger.is_empty());
    }

    fn reserved_are_token_ids_as_they_are_and_answers_as_the_engine_reads_them() {
        let policy = Policy { tenants: vec![tenant()], ..Policy::default() };
        for (path, body, reserved) in [
            ("/v1/completions", r#"{"model":"m","prompt":[1,2,3],"max_tokens":10}"#, 3 + 10),
            ("/v1/completions", r#"{"model":"m","prompt":[[1,2],[3]],"max_tokens":"10"}"#, 3 + 2 * 10),
            ("/v1/completions", r#"{"model":"m","prompt":"12345678","max_tokens":"10","n":" 4.0 "}"#, 2 + 4 * 10),
        ] {
            let mut host = host(&policy.to_json());
            let mut exchange = Exchange::default();
            let head = head_with(path, &[("authorization", "Bearer key-a")]);
            host.with(|env| exchange.on_request_headers(env, head));
            host.with(|env| exchange.on_request_body(env, body.as_bytes()));
            host.with(|env| exchange.on_request_end(env));
            assert_eq!(exchange.account.budget.reserved, reserved, "{body}");
            host.with(|env| exchange.on_done(env, true));
        }
    }

    fn a_policy_that_cannot_be_read_lets_nobody_in() {
        let mut host = host(b"{\"pools\": 3}");
        let (mut exchange, step) = ask(&mut host, &[]);
        assert_eq!(status(&step), Some((503, "warmroute_policy_unreadable")));
        host.with(|env| exchange.on_done(env, false));
        assert!(host.ledger.is_empty());
    }
}
