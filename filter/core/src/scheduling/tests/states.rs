//! What plugins remember: each pool for itself, as long as the policy has them.

use super::*;
use crate::flow_control::protocol::PoolKey;
use serde_json::json;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::routing::Pool;

fn pool(name: &str, scheduler: usize) -> Pool {
    Pool { name: name.into(), cluster: name.into(), fail_open: false, scheduler }
}

/// The same instances' names in both.
fn with_plugins(name: &str) -> Scheduler {
    let by_session = json!({"strategy": "session_id"});
    let plugins =
        [("no-hit-lru-scorer", Value::Null, 1.0), ("session-affinity-scorer", by_session, 0.1)];
    Scheduler { name: name.into(), ..single(&plugins) }
}

/// The pick of a cold request of session `s`, remembered.
fn pick(states: &mut PoolStates, pool: &str, scheduler: &Scheduler, ids: [u64; 2]) -> u64 {
    let (candidates, pool) = (ids.map(idle), PoolKey::of(pool));
    let headers = [("x-session-id", "s")];
    let request = request(1, &headers);
    let state = states.of(pool);
    let decision = schedule(scheduler, &request, &candidates, state, 0, &mut random()).unwrap();
    states.remember(pool, &decision, 0);
    decision.primary.ranked[0].0
}

/// Where a pool's session `s` is, by another worker.
fn home(states: &PoolStates, pool: &str) -> Option<u64> {
    let session = xxhash_rust::xxh3::xxh3_64(b"s");
    let table = states.of(PoolKey::of(pool)).sessions("session-affinity-scorer")?;
    table.get(session, 0, u64::MAX).map(|id| id.0)
}

crate::tests! {
    fn pools_share_nothing_though_their_plugins_have_the_same_names() {
        let (one, other) = (with_plugins("one"), with_plugins("other"));
        let mut states = PoolStates::default();
        // Never used, 0 goes first in each pool; then 1.
        assert_eq!(pick(&mut states, "a", &one, [0, 1]), 0);
        assert_eq!(pick(&mut states, "b", &one, [0, 1]), 0);
        assert_eq!(pick(&mut states, "c", &other, [0, 1]), 0);
        assert_eq!(pick(&mut states, "a", &one, [0, 1]), 1);
        // A session of the same name in each, at its own endpoint.
        states.bind(PoolKey::of("a"), "session-affinity-scorer", xxhash_rust::xxh3::xxh3_64(b"s"), EndpointId(7), 0);
        assert_eq!((home(&states, "a"), home(&states, "b")), (Some(7), Some(0)));
    }

    fn a_new_policy_forgets_what_it_does_not_have_and_nothing_else() {
        let plain = single(&[("queue-scorer", Value::Null, 1.0)]);
        let (one, other) = (with_plugins("one"), with_plugins("other"));
        let policy = |pools: Vec<Pool>, schedulers: &[&Scheduler]| Policy {
            pools,
            schedulers: schedulers.iter().map(|s| (*s).clone()).collect(),
            ..Policy::default()
        };
        let before = policy(vec![pool("a", 0), pool("b", 1)], &[&one, &other]);
        // Pools known afterwards, of `a`, `b` and the one without a name.
        for (after, expected) in [
            (before.clone(), [true, true, true]),
            // Their places changed.
            (policy(vec![pool("b", 0), pool("a", 1)], &[&other, &one]), [true, true, true]),
            (policy(vec![pool("a", 0)], &[&one]), [true, false, true]),
            (policy(vec![pool("a", 0), pool("b", 1)], &[&one, &plain]), [true, false, true]),
            (policy(vec![pool("a", 1), pool("b", 0)], &[&plain, &one]), [true, false, false]),
            (policy(vec![], &[&other]), [false, false, true]),
            (policy(vec![], &[]), [false, false, false]),
        ] {
            let mut states = PoolStates::default();
            states.follow(1, &before);
            for name in ["a", "b", ""] {
                assert_eq!(pick(&mut states, name, &one, [0, 1]), 0);
            }
            states.follow(1, &Policy::default());
            assert_eq!(home(&states, "b"), Some(0), "the same policy");
            states.follow(2, &after);
            let kept = ["a", "b", ""].map(|name| home(&states, name).is_some());
            assert_eq!(kept, expected, "{:?} {:?}", after.pools, after.schedulers);
            let next = ["a", "b", ""].map(|name| pick(&mut states, name, &one, [0, 1]) == 1);
            assert_eq!(next, expected, "cold picks are forgotten with them");
        }
    }
}
