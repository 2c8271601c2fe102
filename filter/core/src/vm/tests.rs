//! Several VMs on one store: what one tells, the others know; whoever dies is replaced.

use super::*;
use crate::replica::tests::record;
use warmroute_shared_state::endpoint::{Availability, Load};
use warmroute_shared_state::frame::{Column, HashList};
use warmroute_shared_state::stream::{AgentOp, Page, PageKind, Position};

struct World {
    store: MemoryStore,
    keys: Keys,
    applier: Applier,
    follower: Follower,
    seq: u64,
}

const NOW: u64 = 1_000_000;

impl World {
    fn new(endpoints: u16) -> Self {
        let (store, keys) = (MemoryStore::default(), Keys::new(16));
        create_keys(&store, &keys);
        assert!(Lease::take(&store, &keys, 1, NOW, 0));
        let follower = Follower::default();
        let applier = Applier::new(&store, &keys, &follower, Settings::default());
        let mut world = Self { store, keys, applier, follower, seq: 0 };
        let ops = (0..endpoints).map(|n| AgentOp::Endpoint(record(n))).collect();
        world.page(PageKind::Snapshot { page: 0, pages: 1 }, ops);
        world
    }

    fn page(&mut self, kind: PageKind, ops: Vec<AgentOp>) -> PageOutcome {
        self.seq += 1;
        let page = Page { position: Position { epoch: 9, seq: self.seq }, kind, ops };
        let outcome = self.applier.on_page(&mut self.follower, &page.encode(), NOW).unwrap();
        self.publish();
        outcome
    }

    fn delta(&mut self, ops: Vec<AgentOp>) {
        let kind = PageKind::Delta { from_seq: self.seq };
        assert_eq!(self.page(kind, ops), PageOutcome::Applied);
    }

    fn publish(&mut self) {
        self.applier.publish(&self.store, &self.keys, 1, &mut self.follower).unwrap();
    }

    fn pick(&mut self, n: u16, chain: &[u64]) {
        let column = self.follower.replica.roster.get(record(n).id).unwrap().column;
        let message = Message::Picked { column, chain: HashList::Slice(chain) };
        self.applier.on_message(&mut self.follower, &message, NOW);
        self.publish();
    }

    fn sync(&self, follower: &mut Follower) -> SyncOutcome {
        follower.sync(&self.store, &self.keys)
    }

    fn fresh(&self) -> Follower {
        let mut follower = Follower::default();
        self.sync(&mut follower);
        follower
    }
}

/// What a replica believes of a chain: endpoint number and blocks.
fn matched(follower: &Follower, chain: &[u64]) -> Vec<(String, usize)> {
    let roster = &follower.replica.roster;
    let mut all: Vec<_> = follower
        .replica
        .table
        .walk(chain, roster.live())
        .iter()
        .map(|m| (roster.by_column(m.column).unwrap().record.name.clone(), m.blocks))
        .collect();
    all.sort();
    all
}

fn chain(of: u64, len: u64) -> Vec<u64> {
    (1..=len).map(|i| (of * 1_000_003 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect()
}

fn named(n: u16, blocks: usize) -> (String, usize) {
    (record(n).name, blocks)
}

crate::tests! {
    fn what_the_applier_tells_every_vm_knows() {
        let mut world = World::new(3);
        let mut other = Follower::default();
        assert_ne!(world.sync(&mut other), SyncOutcome::Behind);
        world.pick(1, &chain(1, 5));
        assert_eq!(world.sync(&mut other), SyncOutcome::Applied(1));
        assert_eq!(world.sync(&mut other), SyncOutcome::Current);
        assert_eq!(matched(&other, &chain(1, 8)), [named(1, 5)]);
        let load = Load { waiting: Some(4.0), ..Load::default() };
        world.delta(vec![AgentOp::Load { id: record(2).id, age_ms: 10, load }]);
        world.sync(&mut other);
        assert_eq!(other.replica.roster.get(record(2).id).unwrap().load, load);
        assert_eq!(other.take_scrapes(), [(record(2).id, NOW - 10)]);
    }

    fn a_vm_that_fell_behind_or_was_reloaded_rebuilds_the_same_table() {
        let mut world = World::new(3);
        let mut slow = world.fresh();
        for n in 0..100 {
            world.pick((n % 3) as u16, &chain(n, 7));
        }
        assert_eq!(world.sync(&mut slow), SyncOutcome::Rebuilt);
        for follower in [&slow, &world.fresh()] {
            for n in 0..100 {
                assert_eq!(matched(follower, &chain(n, 7)), [named((n % 3) as u16, 7)], "{n}");
            }
            assert_eq!(follower.replica.table.len(), 700);
            assert_eq!(follower.applied(), world.follower.applied());
        }
    }

    fn a_restarted_endpoint_starts_cold_in_every_vm() {
        let mut world = World::new(2);
        let mut other = world.fresh();
        world.pick(0, &chain(1, 5));
        world.pick(1, &chain(2, 5));
        let mut restarted = record(0);
        restarted.generation += 1;
        world.delta(vec![AgentOp::Endpoint(restarted)]);
        world.sync(&mut other);
        for follower in [&other, &world.fresh(), &world.follower] {
            assert_eq!(matched(follower, &chain(1, 5)), []);
            assert_eq!(matched(follower, &chain(2, 5)), [named(1, 5)]);
        }
    }

    fn an_endpoint_that_is_out_keeps_its_column_until_it_comes_back_anew() {
        let mut world = World::new(1);
        world.pick(0, &chain(1, 5));
        let out = |generation| warmroute_shared_state::endpoint::EndpointRecord {
            availability: Availability::Out, generation, ..record(0)
        };
        world.delta(vec![AgentOp::Endpoint(out(1))]);
        assert!(!world.fresh().replica.roster.get(record(0).id).unwrap().is_ready());
        world.delta(vec![AgentOp::Endpoint(warmroute_shared_state::endpoint::EndpointRecord {
            generation: 2, ..record(0)
        })]);
        assert_eq!(matched(&world.fresh(), &chain(1, 5)), []);
    }

    fn an_address_that_a_new_endpoint_takes_over_carries_nothing() {
        let mut world = World::new(1);
        world.pick(0, &chain(1, 5));
        let mut heir = record(0);
        heir.id = warmroute_shared_state::endpoint::EndpointId(77);
        world.delta(vec![AgentOp::Remove(record(0).id), AgentOp::Endpoint(heir)]);
        assert_eq!(matched(&world.fresh(), &chain(1, 5)), []);
        assert_eq!(world.fresh().replica.roster.len(), 1);
    }

    fn a_snapshot_of_a_restarted_agent_keeps_what_did_not_change() {
        let mut world = World::new(3);
        world.pick(0, &chain(1, 5));
        world.pick(1, &chain(2, 5));
        let mut restarted = record(1);
        restarted.generation += 1;
        let pages = [vec![AgentOp::Endpoint(record(0))], vec![AgentOp::Endpoint(restarted)]];
        let position = Position { epoch: 10, seq: 1 };
        for (page, ops) in (0..).zip(pages) {
            let page = Page { position, kind: PageKind::Snapshot { page, pages: 2 }, ops };
            world.applier.on_page(&mut world.follower, &page.encode(), NOW).unwrap();
            world.publish();
        }
        let other = world.fresh();
        assert_eq!(matched(&other, &chain(1, 5)), [named(0, 5)]);
        assert_eq!(matched(&other, &chain(2, 5)), []);
        assert_eq!(other.replica.roster.len(), 2);
        assert_eq!(other.replica.roster.position().0, position);
    }

    fn pages_that_do_not_fit_are_ignored() {
        let mut world = World::new(1);
        assert_eq!(world.page(PageKind::Delta { from_seq: 77 }, vec![]), PageOutcome::Ignored);
        assert_eq!(world.page(PageKind::Snapshot { page: 1, pages: 3 }, vec![]), PageOutcome::Ignored);
        assert!(world.applier.on_page(&mut world.follower, b"junk", NOW).is_err());
        assert_eq!(world.fresh().replica.roster.len(), 1);
    }

    fn a_new_applier_goes_on_where_the_dead_one_stopped() {
        let mut world = World::new(2);
        for n in 0..40 {
            world.pick(0, &chain(n, 6));
        }
        let mut heir = world.fresh();
        let later = NOW + lease::LEASE_MS;
        assert!(Lease::take(&world.store, &world.keys, 2, later, 0));
        let mut applier = Applier::new(&world.store, &world.keys, &heir, Settings::default());
        let path = applier.poll_path(&heir.replica, 5);
        assert_eq!(path, "/v1/stream?epoch=9&seq=1&page=0&wait_ms=5");
        for n in 40..80 {
            let column = heir.replica.roster.get(record(1).id).unwrap().column;
            let chain = chain(n, 6);
            let message = Message::Picked { column, chain: HashList::Slice(&chain) };
            applier.on_message(&mut heir, &message, later);
            applier.publish(&world.store, &world.keys, 2, &mut heir).unwrap();
        }
        // The old one comes back to life: it may not write a single frame.
        let column = world.follower.replica.roster.get(record(0).id).unwrap().column;
        let stale = chain(99, 6);
        let message = Message::Picked { column, chain: HashList::Slice(&stale) };
        world.applier.on_message(&mut world.follower, &message, later);
        assert!(world.applier.publish(&world.store, &world.keys, 1, &mut world.follower).is_err());
        world.follower.distrust();
        assert_eq!(world.follower.sync(&world.store, &world.keys), SyncOutcome::Rebuilt);
        for follower in [&world.follower, &world.fresh(), &heir] {
            assert_eq!(matched(follower, &stale), []);
            for n in 0..80 {
                assert_eq!(matched(follower, &chain(n, 6)), [named(u16::from(n >= 40), 6)], "{n}");
            }
        }
    }

    fn an_endpoint_keeps_no_more_than_its_engine_can() {
        let mut world = World::new(1);
        // 160,000 tokens at 4 bytes in blocks of 128 bytes.
        let capacity = 10_000 * 16 * 4 / 128;
        for n in 0..8 {
            world.pick(0, &chain(n, 1000));
        }
        let other = world.fresh();
        assert_eq!(other.replica.table.len(), capacity);
        assert_eq!(matched(&other, &chain(7, 1000)), [named(0, 1000)]);
        assert_eq!(matched(&other, &chain(0, 1000)), []);
        // A prompt that shares the head of the newest one keeps it warm.
        world.pick(0, &chain(3, 500));
        world.pick(0, &chain(9, 4500));
        assert_eq!(matched(&world.fresh(), &chain(3, 500)), [named(0, 500)]);
        assert_eq!(matched(&world.fresh(), &chain(7, 1000)), []);
    }

    fn the_share_follows_the_learned_bytes_per_token() {
        let mut world = World::new(1);
        let usage = Message::Usage { endpoint: record(0).id, prompt_bytes: 2000, prompt_tokens: 1000 };
        for _ in 0..200 {
            world.applier.on_message(&mut world.follower, &usage, NOW);
        }
        world.publish();
        for n in 0..4 {
            world.pick(0, &chain(n, 1000));
        }
        let held = world.fresh().replica.table.len();
        assert!(held.abs_diff(10_000 * 16 * 2 / 128) < 60, "{held}");
    }

    fn a_pick_that_another_endpoint_served_is_taken_back() {
        let mut world = World::new(2);
        world.pick(0, &chain(1, 3));
        world.pick(0, &chain(1, 8));
        let new = &chain(1, 8)[3..];
        let column = world.follower.replica.roster.get(record(0).id).unwrap().column;
        let message = Message::Unpicked { column, chain: HashList::Slice(new) };
        world.applier.on_message(&mut world.follower, &message, NOW);
        world.publish();
        assert_eq!(matched(&world.fresh(), &chain(1, 8)), [named(0, 3)]);
    }

    fn a_prompt_that_does_not_fit_its_engine_changes_nothing() {
        let mut world = World::new(2);
        for n in 0..4 {
            world.pick(0, &chain(n, 1000));
        }
        let before = world.fresh().applied();
        world.pick(0, &chain(77, 5001));
        assert_eq!(world.fresh().applied(), before);
        for n in 0..4 {
            assert_eq!(matched(&world.fresh(), &chain(n, 1000)), [named(0, 1000)]);
        }
    }

    fn an_endpoint_without_room_comes_in_when_there_is_some() {
        let mut world = World::new(0);
        world.applier.set_settings(Settings { max_endpoints: 2, ..Settings::default() });
        world.delta((0..3).map(|n| AgentOp::Endpoint(record(n))).collect());
        assert_eq!((world.fresh().replica.roster.len(), world.applier.refused_endpoints()), (2, 1));
        let asks_for_all = |world: &World| !world.applier.poll_path(&world.follower.replica, 5).contains("epoch");
        assert!(!asks_for_all(&world));
        world.delta(vec![AgentOp::Remove(record(0).id)]);
        assert!(asks_for_all(&world));
        let ops = (1..3).map(|n| AgentOp::Endpoint(record(n))).collect();
        world.page(PageKind::Snapshot { page: 0, pages: 1 }, ops);
        assert_eq!((world.fresh().replica.roster.len(), world.applier.refused_endpoints()), (2, 0));
        assert!(!asks_for_all(&world));
    }

    fn a_message_for_a_column_that_is_gone_changes_nothing() {
        let mut world = World::new(1);
        let message = Message::Picked { column: Column(300), chain: HashList::Slice(&[1, 2]) };
        world.applier.on_message(&mut world.follower, &message, NOW);
        world.publish();
        assert!(world.fresh().replica.table.is_empty());
    }

    fn the_set_of_keys_is_fixed() {
        let mut world = World::new(8);
        for n in 0..200 {
            world.pick((n % 8) as u16, &chain(n, 20));
        }
        let keys = world.store.len();
        for n in 200..600 {
            world.pick((n % 8) as u16, &chain(n, 20));
        }
        assert_eq!(world.store.len(), keys);
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod random {
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
}

mod workers {
    use super::*;
    use std::collections::BTreeMap;

    /// One Envoy: VM 0 is the applier, the others serve.
    struct Envoy {
        store: MemoryStore,
        vms: Vec<VmState>,
        now: u64,
        seed: u64,
    }

    impl Envoy {
        fn new(workers: u64, endpoints: u16) -> Self {
            let store = MemoryStore::default();
            let mut vms: Vec<_> =
                (1..=workers + 1).map(|n| VmState::new(n, Settings::default())).collect();
            for vm in &mut vms {
                vm.attach(&store);
            }
            let mut envoy = Self { store, vms, now: NOW, seed: 1 };
            assert!(envoy.vms[0].tick(&envoy.store, envoy.now));
            let ops = (0..endpoints).map(|n| AgentOp::Endpoint(record(n))).collect();
            let page = Page {
                position: Position { epoch: 9, seq: 1 },
                kind: PageKind::Snapshot { page: 0, pages: 1 },
                ops,
            };
            envoy.vms[0].on_page(&envoy.store, &page.encode(), envoy.now).unwrap();
            envoy
        }

        fn choose(&mut self, worker: usize, chain: &[u64]) -> Option<(Routed, Option<Vec<u8>>)> {
            let seed = &mut self.seed;
            let mut random = || {
                *seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                *seed >> 11
            };
            let prompt = Prompt { chain: chain.to_vec(), bytes: chain.len() as u64 * 128 };
            match self.vms[worker].choose(&self.store, |_| prompt, self.now, &mut random) {
                (Choice::Routed(routed), message) => Some((*routed, message)),
                _ => None,
            }
        }

        fn tell_applier(&mut self, messages: &[Vec<u8>]) {
            let messages = messages.iter().map(|m| Message::decode(m).unwrap());
            self.vms[0].on_messages(&self.store, messages, self.now);
            self.vms[0].tick(&self.store, self.now);
        }

        fn totals(&self) -> Totals {
            Totals::decode(&self.store.get(&self.vms[0].keys.totals).unwrap().0).unwrap()
        }
    }

    use crate::inflight::Totals;

    crate::tests! {
        fn a_burst_of_cold_prompts_spreads_even_if_the_applier_says_nothing() {
            let mut envoy = Envoy::new(4, 8);
            let mut counts = BTreeMap::new();
            for n in 0..64u64 {
                // Workers get uneven shares, as the kernel deals connections.
                let worker = 1 + [0, 1, 1, 2, 3, 3, 3, 0, 1, 3][(n % 10) as usize];
                let (routed, _) = envoy.choose(worker, &chain(n, 200)).unwrap();
                *counts.entry(routed.endpoint()).or_insert(0) += 1;
            }
            assert!(counts.values().all(|n| *n <= 12), "{counts:?}");
        }

        fn siblings_land_together_before_any_frame_carries_them() {
            let mut envoy = Envoy::new(4, 8);
            let mut counts = BTreeMap::new();
            for n in 0..64 {
                let (routed, _) = envoy.choose(1 + n % 4, &chain(5, 200)).unwrap();
                *counts.entry(routed.endpoint()).or_insert(0) += 1;
            }
            assert_eq!(counts.len(), 1, "{counts:?}");
        }

        fn a_pick_is_known_everywhere_once_the_applier_has_it() {
            let mut envoy = Envoy::new(2, 4);
            let (first, message) = envoy.choose(1, &chain(1, 50)).unwrap();
            envoy.tell_applier(&[message.unwrap()]);
            envoy.now += 60_000;
            let (second, _) = envoy.choose(2, &[chain(1, 50), chain(2, 5)].concat()).unwrap();
            assert_eq!(second.endpoint(), first.endpoint());
            assert_eq!((second.matched_blocks, second.reason), (50, crate::scheduling::PickReason::Prefix));
        }

        fn what_a_worker_picks_while_it_is_the_applier_is_known_everywhere_too() {
            let mut envoy = Envoy::new(2, 4);
            envoy.now += 3000;
            assert!(envoy.vms[1].tick(&envoy.store, envoy.now), "VM 0 is gone");
            let (first, message) = envoy.choose(1, &chain(1, 50)).unwrap();
            assert_eq!(message, None);
            envoy.now += 5;
            envoy.vms[1].tick(&envoy.store, envoy.now);
            envoy.now += 2000;
            let (second, _) = envoy.choose(2, &chain(1, 50)).unwrap();
            assert_eq!((second.endpoint(), second.matched_blocks), (first.endpoint(), 50));
        }

        fn what_a_worker_picked_before_it_became_the_applier_is_told_too() {
            let mut envoy = Envoy::new(2, 4);
            let (first, message) = envoy.choose(1, &chain(1, 50)).unwrap();
            envoy.now += 3000;
            assert!(envoy.vms[1].tick(&envoy.store, envoy.now), "VM 0 is gone");
            let message = message.unwrap();
            let messages = core::iter::once(Message::decode(&message).unwrap());
            envoy.vms[1].on_messages(&envoy.store, messages, envoy.now);
            envoy.vms[1].tick(&envoy.store, envoy.now);
            envoy.now += 2000;
            let (second, _) = envoy.choose(2, &chain(1, 50)).unwrap();
            assert_eq!((second.endpoint(), second.matched_blocks), (first.endpoint(), 50));
        }

        fn the_next_turn_follows_whoever_served_at_once() {
            for _ in 0..10 {
                let mut envoy = Envoy::new(2, 4);
                let (routed, _) = envoy.choose(1, &chain(1, 50)).unwrap();
                let served = routed.destinations[1].clone();
                let (store, vm) = (&envoy.store, &mut envoy.vms[1]);
                let (moved, messages) = vm.served_by(store, routed, &served, envoy.now);
                envoy.tell_applier(&messages);
                for worker in [1, 2] {
                    let (next, _) = envoy.choose(worker, &[chain(1, 50), chain(2, 9)].concat()).unwrap();
                    assert_eq!(next.endpoint(), moved.endpoint());
                }
            }
        }

        fn a_restarted_endpoint_is_cold_at_once_whatever_was_intended() {
            let mut envoy = Envoy::new(2, 1);
            envoy.choose(1, &chain(1, 50)).unwrap();
            let mut restarted = record(0);
            restarted.generation += 1;
            let page = Page {
                position: Position { epoch: 9, seq: 2 },
                kind: PageKind::Delta { from_seq: 1 },
                ops: vec![AgentOp::Endpoint(restarted)],
            };
            envoy.vms[0].on_page(&envoy.store, &page.encode(), envoy.now).unwrap();
            let (next, _) = envoy.choose(2, &chain(1, 50)).unwrap();
            assert_eq!(next.matched_blocks, 0);
        }

        fn a_workers_vm_leaves_the_role_to_the_main_threads_at_the_start() {
            let store = MemoryStore::default();
            let mut worker = VmState::new(1, Settings::default()).reluctant();
            let mut main = VmState::new(2, Settings::default());
            worker.attach(&store);
            main.attach(&store);
            assert!(!worker.tick(&store, NOW));
            assert!(main.tick(&store, NOW + 20));
            assert!(!worker.tick(&store, NOW + 500));
            let mut alone = VmState::new(3, Settings::default()).reluctant();
            let store = MemoryStore::default();
            alone.attach(&store);
            assert!(!alone.tick(&store, NOW));
            assert!(alone.tick(&store, NOW + 150), "nobody else came");
        }

        fn the_limit_of_a_prompt_is_that_of_the_newest_table() {
            let mut envoy = Envoy::new(2, 1);
            let mut asked = None;
            let prompt = |limit| {
                asked = Some(limit);
                Prompt::default()
            };
            // This worker has seen nothing yet.
            let _ = envoy.vms[2].choose(&envoy.store, prompt, envoy.now, &mut || 0);
            assert_eq!(asked, Some(10_000 * 16 * 4));
        }

        fn a_known_prefix_is_not_told_again() {
            let mut envoy = Envoy::new(2, 1);
            let (_, message) = envoy.choose(1, &chain(1, 500)).unwrap();
            envoy.tell_applier(&[message.unwrap()]);
            let (_, message) = envoy.choose(2, &[chain(1, 500), chain(2, 3)].concat()).unwrap();
            let before = envoy.vms[0].follower().applied();
            envoy.tell_applier(&[message.unwrap()]);
            let seq = envoy.vms[0].follower().applied();
            assert_eq!(seq, before + 1);
            let (frame, _) = envoy.store.get(envoy.vms[0].keys.frame(seq)).unwrap();
            assert!(frame.len() < 100, "{} bytes for 3 blocks", frame.len());
        }

        fn every_row_is_back_to_zero_when_all_requests_are_over() {
            let mut envoy = Envoy::new(4, 3);
            let mut running = vec![];
            for n in 0..200u64 {
                let worker = 1 + (n % 4) as usize;
                let (mut routed, message) = envoy.choose(worker, &chain(n, 3)).unwrap();
                envoy.tell_applier(&[message.unwrap()]);
                if n % 3 == 0 {
                    let (store, vm) = (&envoy.store, &mut envoy.vms[worker]);
                    vm.answered(store, &mut routed, envoy.now);
                }
                if n % 5 == 0 {
                    let address = record((n % 3) as u16).address;
                    let (store, vm) = (&envoy.store, &mut envoy.vms[worker]);
                    let (moved, messages) = vm.served_by(store, routed, &address, envoy.now);
                    assert_eq!(moved.endpoint(), record((n % 3) as u16).id);
                    envoy.tell_applier(&messages);
                    routed = moved;
                }
                running.push((worker, routed));
            }
            envoy.now += 100;
            envoy.vms[0].tick(&envoy.store, envoy.now);
            assert_eq!(envoy.totals().all().iter().map(|(_, c)| c.requests).sum::<u32>(), 200);
            for (worker, routed) in running {
                let (store, vm) = (&envoy.store, &mut envoy.vms[worker]);
                let _ = vm.finish(store, routed, Some(100), envoy.now);
            }
            envoy.vms[0].tick(&envoy.store, envoy.now);
            assert!(envoy.totals().all().is_empty());
        }

        fn the_share_of_a_vm_that_died_vanishes() {
            let mut envoy = Envoy::new(2, 3);
            for _ in 0..10 {
                envoy.choose(1, &chain(1, 3)).unwrap();
                envoy.choose(2, &chain(2, 3)).unwrap();
            }
            // VM 1 traps; VM 2 and the applier live on.
            for _ in 0..20 {
                envoy.now += 100;
                envoy.vms[2].tick(&envoy.store, envoy.now);
                envoy.vms[0].tick(&envoy.store, envoy.now);
            }
            assert_eq!(envoy.totals().all().iter().map(|(_, c)| c.requests).sum::<u32>(), 10);
        }

        fn a_worker_takes_the_role_when_the_applier_is_gone() {
            let mut envoy = Envoy::new(2, 3);
            let (_, message) = envoy.choose(1, &chain(1, 3)).unwrap();
            envoy.tell_applier(&[message.unwrap()]);
            let mut applier = None;
            for _ in 0..25 {
                envoy.now += 100;
                for worker in [1, 2] {
                    if envoy.vms[worker].tick(&envoy.store, envoy.now) {
                        applier.get_or_insert((worker, envoy.now - NOW));
                    }
                }
            }
            let (worker, after_ms) = applier.unwrap();
            assert_eq!((worker, after_ms), (2, 1500), "the one that serves nothing comes first");
            assert!(!envoy.vms[0].tick(&envoy.store, envoy.now), "the old one notices");
            assert!(envoy.vms[2].is_applier());
        }

        fn without_a_table_or_without_endpoints_there_is_no_pick() {
            let store = MemoryStore::default();
            let mut vm = VmState::new(5, Settings::default());
            vm.attach(&store);
            let random = &mut || 0;
            assert!(matches!(vm.choose(&store, |_| Prompt::default(), NOW, random).0, Choice::NoTable));
            let mut envoy = Envoy::new(1, 0);
            assert!(envoy.choose(1, &[]).is_none());
            let choice = envoy.vms[1].choose(&envoy.store, |_| Prompt::default(), NOW, random).0;
            assert!(matches!(choice, Choice::NoEndpoint));
        }
    }
}
