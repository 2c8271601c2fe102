//! What a scheduler's plugins remember, over pools, workers and configurations.

use super::workers::Envoy;
use super::*;
use warmroute_shared_state::endpoint::EndpointRecord;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::plugin::{
    Filter, SessionAffinity, SessionSource, SessionStrategy,
};
use warmroute_shared_state::policy::routing::Pool;
use warmroute_shared_state::policy::scheduler::{Named, Scheduler};

const WORKERS: usize = 3;

/// Pools `a` and `b` with the same scheduler, which keeps sessions at their endpoints.
fn policy() -> Policy {
    let sources = vec![SessionSource::Header("x-session-id".into())];
    let strategy = SessionStrategy::SessionId { sources, ttl_ms: 300_000 };
    let plugin = Filter::SessionAffinity(SessionAffinity { strategy, profile: None });
    let mut scheduler = Scheduler::default();
    scheduler.profiles[0].filters.push(Named { name: "session-affinity-filter".into(), plugin });
    let pools = ["a", "b"].map(|name| Pool {
        name: name.into(),
        cluster: name.into(),
        fail_open: false,
        scheduler: 0,
    });
    Policy { pools: pools.into(), schedulers: vec![scheduler], ..Policy::default() }
}

/// The even ones are in pool `a`, the odd ones in `b`.
fn envoy() -> Envoy {
    let in_pool = |n: u16| {
        let pool = if n.is_multiple_of(2) { "a" } else { "b" };
        EndpointRecord { pools: vec![pool.into()], ..record(n) }
    };
    Envoy::of(WORKERS as u64, (0..16).map(in_pool))
}

/// Where a worker sends a session's request to the pool at this place.
fn go(envoy: &mut Envoy, policy: &Policy, worker: usize, pool: usize, session: &str) -> u64 {
    let headers = [("x-session-id", session)];
    let ask = Ask {
        pool: policy.pools.get(pool),
        scheduler: policy.schedulers.first(),
        headers: &headers,
        ..Ask::default()
    };
    let (choice, messages) = envoy.ask(worker, &ask, &[]);
    envoy.tell_applier(&messages);
    match choice {
        Choice::Routed(routed) => routed.endpoint().0,
        other => panic!("{other:?}"),
    }
}

fn configure(envoy: &mut Envoy, policy: &Policy, seq: u64) {
    let page = Page {
        position: Position { epoch: 9, seq },
        kind: PageKind::Delta { from_seq: seq - 1 },
        ops: vec![AgentOp::Policy(policy.to_json().into())],
    };
    let outcome = envoy.vms[0].on_page(&envoy.store, &page.encode(), envoy.now).unwrap();
    assert_eq!(outcome, PageOutcome::Applied);
}

crate::tests! {
    fn a_session_is_at_an_endpoint_of_its_own_in_each_pool() {
        let (mut envoy, policy) = (envoy(), policy());
        for session in ["s", "t", "u"] {
            let homes = [0, 1].map(|pool| go(&mut envoy, &policy, 1, pool, session));
            for turn in 0..4 * WORKERS {
                let worker = 1 + turn % WORKERS;
                let now = [0, 1].map(|pool| go(&mut envoy, &policy, worker, pool, session));
                assert_eq!(now, homes, "{session} {turn}");
            }
        }
    }

    fn a_policy_without_the_plugin_ends_its_sessions_in_every_worker() {
        let (mut envoy, policy) = (envoy(), policy());
        let sessions: Vec<String> = (0..12).map(|n| format!("s{n}")).collect();
        let homes = |envoy: &mut Envoy, worker| -> Vec<u64> {
            sessions.iter().map(|session| go(envoy, &policy, worker, 0, session)).collect()
        };
        configure(&mut envoy, &policy, 2);
        let before = homes(&mut envoy, 1);
        // Another one with the plugin: nothing is lost.
        let fails_open = Policy { pools: vec![Pool { fail_open: true, ..policy.pools[0].clone() }], ..policy.clone() };
        configure(&mut envoy, &fails_open, 3);
        assert_eq!(homes(&mut envoy, 2), before);
        configure(&mut envoy, &Policy { schedulers: vec![Scheduler::default()], ..policy.clone() }, 4);
        for worker in 1..=WORKERS {
            envoy.vms[worker].tick(&envoy.store, envoy.now);
        }
        configure(&mut envoy, &policy, 5);
        let after = homes(&mut envoy, 2);
        assert_ne!(after, before);
        assert_eq!(homes(&mut envoy, 3), after);
    }
}
