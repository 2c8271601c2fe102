//! Prefill and decode at different endpoints, and sessions over several workers.

use super::workers::Envoy;
use super::*;
use crate::scheduling::PREFILL_HEADER;
use warmroute_shared_state::endpoint::EndpointRecord;
use warmroute_shared_state::policy::plugin::{
    Decider, Filter, Picker, Role, SessionAffinity, SessionSource, SessionStrategy,
};
use warmroute_shared_state::policy::scheduler::{Disagg, Handler, Named, Profile, Scheduler};

fn profile(name: &str, filter: Filter) -> Profile {
    let named = |name: &str| name.to_owned();
    Profile {
        name: named(name),
        filters: vec![Named { name: named("filter"), plugin: filter }],
        scorers: Vec::new(),
        picker: Named { name: named("picker"), plugin: Picker::default() },
    }
}

/// Endpoints 0 and 1 decode, 2 and 3 prefill; more than 320 uncached tokens are prefilled elsewhere.
fn disaggregated() -> Scheduler {
    Scheduler {
        profiles: vec![
            profile("decode", Filter::Role(Role::Decode)),
            profile("prefill", Filter::Role(Role::Prefill)),
        ],
        handler: Handler::Disagg(Disagg {
            plugin_type: "disagg-profile-handler".into(),
            name: "disagg-profile-handler".into(),
            prefill_first: false,
            decode: Some(0),
            prefill: Some(1),
            encode: None,
            prefill_decider: Some(Decider::PrefixBased {
                non_cached_tokens: 320,
                prompt_tokens: 0,
            }),
            encode_decider: None,
            primary_port: None,
        }),
        ..Scheduler::default()
    }
}

fn with_role(n: u16) -> EndpointRecord {
    let role = if n < 2 { "decode" } else { "prefill" };
    EndpointRecord { labels: vec![("llm-d.ai/role".into(), role.into())], ..record(n) }
}

fn routed(choice: Choice) -> Routed {
    match choice {
        Choice::Routed(routed) => *routed,
        other => panic!("{other:?}"),
    }
}

crate::tests! {
    fn both_stages_are_charged_and_the_prefill_is_done_at_the_first_token() {
        let mut envoy = Envoy::of(1, (0..4).map(with_role));
        let scheduler = disaggregated();
        let ask = Ask { scheduler: Some(&scheduler), ..Ask::default() };
        let (choice, messages) = envoy.ask(1, &ask, &chain(1, 20));
        let mut request = routed(choice);
        let prefiller = request.headers.iter().find(|(name, _)| *name == PREFILL_HEADER).unwrap();
        let prefill = (2..4).map(record).find(|r| r.address == prefiller.1).unwrap().id;
        let decode = request.endpoint();
        assert!((0..2).any(|n| record(n).id == decode));
        assert_eq!(messages.len(), 2, "both will hold the prompt");
        envoy.tell_applier(&messages);
        let of = |envoy: &Envoy, id| envoy.vms[1].ledger().counts(id);
        assert_eq!((of(&envoy, decode).requests, of(&envoy, prefill).requests), (1, 1));
        assert_eq!(of(&envoy, prefill).uncached_tokens, 640);
        let now = envoy.now;
        envoy.vms[1].answered(&envoy.store, &mut request, now);
        assert!(of(&envoy, prefill).is_zero());
        assert_eq!(of(&envoy, decode).requests, 1);
        envoy.vms[1].finish(&envoy.store, request, None, now);
        assert!(envoy.vms[1].ledger().is_idle());
        // The same prompt again: the decode endpoint holds it by now, and does all of it.
        let (choice, _) = envoy.ask(1, &ask, &chain(1, 20));
        let again = routed(choice);
        if again.endpoint() == decode {
            assert_eq!(again.headers, []);
        }
        envoy.vms[1].finish(&envoy.store, again, None, now);
        assert!(envoy.vms[1].ledger().is_idle());
    }

    fn a_short_prompt_is_prefilled_where_it_is_decoded() {
        let mut envoy = Envoy::of(1, (0..4).map(with_role));
        let scheduler = disaggregated();
        let ask = Ask { scheduler: Some(&scheduler), ..Ask::default() };
        let request = routed(envoy.ask(1, &ask, &chain(1, 9)).0);
        assert_eq!(request.headers, []);
        assert_eq!(request.disaggregation.map(|d| d.as_str()), Some("decode-only"));
    }

    fn without_a_decode_endpoint_the_request_is_refused_as_saturated() {
        let mut envoy = Envoy::of(1, (2..4).map(with_role));
        let scheduler = disaggregated();
        let ask = Ask { scheduler: Some(&scheduler), ..Ask::default() };
        assert!(matches!(envoy.ask(1, &ask, &chain(1, 9)).0, Choice::Saturated));
    }

    fn a_session_stays_at_its_endpoint_whichever_worker_sees_it() {
        let mut envoy = Envoy::new(3, 8);
        let sources = vec![SessionSource::Header("x-session-id".into())];
        let strategy = SessionStrategy::SessionId { sources, ttl_ms: 300_000 };
        let affinity = Filter::SessionAffinity(SessionAffinity { strategy, profile: None });
        let scheduler = Scheduler { profiles: vec![profile("default", affinity)], ..Scheduler::default() };
        for session in ["a", "b", "c", "d"] {
            let headers = [("x-session-id", session)];
            let ask = Ask { scheduler: Some(&scheduler), headers: &headers, ..Ask::default() };
            let mut seen = Vec::new();
            for turn in 0..9 {
                let (choice, messages) = envoy.ask(1 + turn % 3, &ask, &[]);
                seen.push(routed(choice).endpoint());
                envoy.tell_applier(&messages);
            }
            assert!(seen.iter().all(|endpoint| *endpoint == seen[0]), "{session}: {seen:?}");
        }
    }
}
