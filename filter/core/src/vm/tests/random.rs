//! Random histories: every way to the table gives the same table.

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Pick(u16, u64, u64),
    Restart(u16),
    Remove(u16),
    Add(u16),
    Rebuild,
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::prelude::*;
    prop_oneof![
        8 => (0u16..4, 0u64..12, 1u64..9).prop_map(|(n, c, len)| Step::Pick(n, c, len)),
        1 => (0u16..4).prop_map(Step::Restart),
        1 => (0u16..4).prop_map(Step::Remove),
        2 => (0u16..4).prop_map(Step::Add),
        1 => Just(Step::Rebuild),
    ]
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    /// Following frame by frame, following in leaps, and rebuilding from checkpoints all end in
    /// the applier's own table.
    #[test]
    fn every_way_to_the_table_gives_the_same_table(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new(4);
        let mut generations = [1u64; 4];
        let mut eager = world.fresh();
        let mut lazy = world.fresh();
        for step in steps {
            match step {
                Step::Pick(n, c, len) => {
                    if world.follower.replica.roster.get(record(n).id).is_some() {
                        world.pick(n, &chain(c, len));
                    }
                }
                Step::Restart(n) => {
                    if world.follower.replica.roster.get(record(n).id).is_some() {
                        generations[usize::from(n)] += 1;
                        let generation = generations[usize::from(n)];
                        let record = warmroute_shared_state::endpoint::EndpointRecord { generation, ..record(n) };
                        world.delta(vec![AgentOp::Endpoint(record)]);
                    }
                }
                Step::Remove(n) => world.delta(vec![AgentOp::Remove(record(n).id)]),
                Step::Add(n) => {
                    let generation = generations[usize::from(n)];
                    let record = warmroute_shared_state::endpoint::EndpointRecord { generation, ..record(n) };
                    world.delta(vec![AgentOp::Endpoint(record)]);
                }
                Step::Rebuild => {
                    world.sync(&mut lazy);
                }
            }
            world.sync(&mut eager);
        }
        world.sync(&mut lazy);
        for c in 0..12 {
            let expected = matched(&world.follower, &chain(c, 9));
            for follower in [&eager, &lazy, &world.fresh()] {
                proptest::prop_assert_eq!(&matched(follower, &chain(c, 9)), &expected);
            }
        }
    }
}
