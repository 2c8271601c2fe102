//! What a client is ready to take compressed, where the answer has to be read or changed on its way back.

use super::tests::{Host, head_with};
use super::*;
use crate::flow_control::tests::control;
use crate::flow_control::worker::Event;
use crate::replica::tests::record as endpoint_record;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::plugin::Fairness;
use warmroute_shared_state::policy::routing::{ModelRewrite, RewriteRule, RewriteTarget, Split};
use warmroute_shared_state::policy::tenants::{Accounting, Tenant};
use warmroute_shared_state::stream::AgentOp;

/// Without a key, everybody is this tenant.
pub(super) fn anonymous() -> Tenant {
    Tenant {
        name: crate::identity::ANONYMOUS.into(),
        key_hashes: Vec::new(),
        jwt: None,
        strip_key: false,
        fairness_id: "a".into(),
        objective: None,
        tier: None,
        limits: Vec::new(),
        accounting: Accounting::Generated,
    }
}

fn rewrite() -> ModelRewrite {
    let targets = vec![RewriteTarget { model: "m-v2".into(), weight: None }];
    ModelRewrite {
        name: "r".into(),
        pool: None,
        rules: vec![RewriteRule { models: vec!["m".into()], generic: false, targets }],
        split: Split::Conversation,
    }
}

fn host(policy: &Policy) -> Host {
    let mut host = Host::new(None);
    let policy = AgentOp::Policy(policy.to_json().into());
    host.tell(vec![policy, AgentOp::Endpoint(endpoint_record(0))]);
    // The dispatcher's opening is over.
    host.later(700);
    host
}

/// Whether `accept-encoding` is taken off a request to `path`; without `body`, of a GET.
fn takes_off(policy: &Policy, path: &str, body: Option<&str>) -> bool {
    let mut host = host(policy);
    let mut exchange = Exchange::default();
    let method: &[(&str, &str)] = if body.is_some() { &[] } else { &[(":method", "GET")] };
    let headers = [&[("accept-encoding", "gzip")], method].concat();
    let head = RequestHead { end_of_stream: body.is_none(), ..head_with(path, &headers) };
    let mut step = host.with(|env| exchange.on_request_headers(env, head));
    if let Some(body) = body {
        host.with(|env| exchange.on_request_body(env, body.as_bytes()));
        step = host.with(|env| exchange.on_request_end(env));
    }
    if step == Step::Pause {
        for event in host.later(5) {
            let Event::Granted { ticket, .. } = event else { panic!("{event:?}") };
            step = host.with(|env| exchange.on_grant(env, ticket, 5));
        }
    }
    host.with(|env| exchange.on_done(env, true));
    let Step::Forward(forward) = step else { panic!("{step:?}") };
    forward.remove_headers.iter().any(|name| name == "accept-encoding")
}

crate::tests! {
    fn what_has_to_be_read_or_changed_is_not_compressed() {
        const CHAT: &str = "/v1/chat/completions";
        let body = |more: &str| format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}]{more}}}"#);
        let bodies = [
            body(""),
            body(r#","stream":true"#),
            body(r#","stream":true,"stream_options":{"include_usage":true}"#),
        ];
        let plain = Policy::default();
        let tenants = Policy { tenants: vec![anonymous()], ..Policy::default() };
        let flow = Policy { flow: vec![control(4, Fairness::GlobalStrict)], ..Policy::default() };
        let renamed = Policy { rewrites: vec![rewrite()], ..Policy::default() };
        for (name, policy, off) in
            [("plain", &plain, false), ("tenants", &tenants, true), ("flow", &flow, true), ("renamed", &renamed, true)]
        {
            for body in &bodies {
                assert_eq!(takes_off(policy, CHAT, Some(body)), off, "{name} {body}");
            }
            assert!(!takes_off(policy, "/v1/models", None), "{name}: nobody reads its answer");
        }
    }
}
