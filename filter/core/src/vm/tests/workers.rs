//! One Envoy: an applier and workers that pick.

use super::*;
use std::collections::BTreeMap;
use warmroute_shared_state::endpoint::EndpointRecord;
use warmroute_shared_state::policy::plugin::PrefixProducer;
use warmroute_shared_state::policy::routing::Pool;
use warmroute_shared_state::policy::scheduler::Scheduler;

/// One Envoy: VM 0 is the applier, the others serve.
pub(super) struct Envoy {
    pub(super) store: MemoryStore,
    pub(super) vms: Vec<VmState>,
    pub(super) now: u64,
    seed: u64,
}

impl Envoy {
    pub(super) fn new(workers: u64, endpoints: u16) -> Self {
        Self::of(workers, (0..endpoints).map(record))
    }

    pub(super) fn of(workers: u64, endpoints: impl Iterator<Item = EndpointRecord>) -> Self {
        let store = MemoryStore::default();
        let mut vms: Vec<_> =
            (1..=workers + 1).map(|n| VmState::new(n, Settings::default())).collect();
        for vm in &mut vms {
            vm.attach(&store);
        }
        let mut envoy = Self { store, vms, now: NOW, seed: 1 };
        assert!(envoy.vms[0].tick(&envoy.store, envoy.now));
        let ops = endpoints.map(AgentOp::Endpoint).collect();
        let page = Page {
            position: Position { epoch: 9, seq: 1 },
            kind: PageKind::Snapshot { page: 0, pages: 1 },
            ops,
        };
        envoy.vms[0].on_page(&envoy.store, &page.encode(), envoy.now).unwrap();
        envoy
    }

    fn choose(&mut self, worker: usize, chain: &[u64]) -> Option<(Routed, Option<Vec<u8>>)> {
        match self.ask(worker, &Ask::default(), chain) {
            (Choice::Routed(routed), messages) => Some((*routed, messages.into_iter().next())),
            _ => None,
        }
    }

    pub(super) fn ask(
        &mut self,
        worker: usize,
        ask: &Ask<'_>,
        chain: &[u64],
    ) -> (Choice, Vec<Vec<u8>>) {
        let seed = &mut self.seed;
        let mut random = || {
            *seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *seed >> 11
        };
        let prompt =
            Prompt { chain: chain.to_vec(), bytes: chain.len() as u64 * 128, ..Prompt::default() };
        self.vms[worker].refresh(&self.store);
        self.vms[worker].choose(&self.store, ask, |_, _| prompt, self.now, &mut random)
    }

    pub(super) fn tell_applier(&mut self, messages: &[Vec<u8>]) {
        let messages = messages.iter().map(|m| Message::decode(m).unwrap());
        self.vms[0].on_messages(&self.store, messages, self.now);
        self.vms[0].tick(&self.store, self.now);
    }

    pub(super) fn totals(&self) -> Totals {
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
        assert_eq!((second.belief.blocks, second.reason), (50, crate::scheduling::PickReason::Prefix));
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
        assert_eq!((second.endpoint(), second.belief.blocks), (first.endpoint(), 50));
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
        assert_eq!((second.endpoint(), second.belief.blocks), (first.endpoint(), 50));
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
        assert_eq!(next.belief.blocks, 0);
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

    fn the_limit_of_a_prompt_is_what_fits_the_largest_engine_that_may_be_picked() {
        let endpoint = |n, pool: &str, kv_blocks| EndpointRecord { pools: vec![pool.into()], kv_blocks, ..record(n) };
        let all = [endpoint(0, "small", 1000), endpoint(1, "small", 2000), endpoint(2, "large", 10_000)];
        let mut envoy = Envoy::of(2, all.into_iter());
        let pool = |name: &str| Pool { name: name.into(), cluster: name.into(), fail_open: false, scheduler: 0 };
        let (small, large) = (pool("small"), pool("large"));
        let prefix = PrefixProducer { capacity_tokens: Some(3200), auto_tune: false, ..PrefixProducer::default() };
        let capped = Scheduler { prefix, ..Scheduler::default() };
        // Blocks of 16 tokens of 4 bytes.
        for (pool, scheduler, expected) in [
            (None, None, 10_000 * 16 * 4),
            (Some(&small), None, 2000 * 16 * 4),
            (Some(&large), None, 10_000 * 16 * 4),
            (Some(&large), Some(&capped), 3200 * 4),
        ] {
            let mut asked = None;
            let prompt = |_: &_, limit| {
                asked = Some(limit);
                Prompt::default()
            };
            let ask = Ask { pool, scheduler, ..Ask::default() };
            envoy.vms[2].refresh(&envoy.store);
            let _ = envoy.vms[2].choose(&envoy.store, &ask, prompt, envoy.now, &mut || 0);
            assert_eq!(asked, Some(expected), "{pool:?} {scheduler:?}");
        }
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

    fn a_prompt_that_comes_again_at_once_is_told_once_a_second() {
        let mut envoy = Envoy::new(2, 1);
        let mut told = |after_ms: u64, chain: &[u64]| {
            envoy.now += after_ms;
            let (_, message) = envoy.choose(1, chain).unwrap();
            let message = message?;
            let Message::Picked { chain, .. } = Message::decode(&message).unwrap() else { return None };
            let count = chain.len();
            envoy.tell_applier(&[message]);
            Some(count)
        };
        let longer = [chain(1, 500), chain(2, 3)].concat();
        assert_eq!(told(0, &chain(1, 500)), Some(500));
        assert_eq!(told(900, &chain(1, 500)), None);
        assert_eq!(told(0, &longer), Some(3));
        assert_eq!(told(100, &chain(1, 500)), Some(500), "used again, a second later");
    }

    fn what_was_dropped_meanwhile_is_told_again_at_once() {
        let mut envoy = Envoy::new(1, 1);
        let prompt = chain(1, 50);
        let (first, _) = envoy.choose(1, &prompt).unwrap();
        let replica = &mut envoy.vms[1].follower.replica;
        let held = replica.roster.get(first.endpoint()).unwrap().columns.held;
        replica.table.remove(held, prompt[49]);
        let (_, message) = envoy.choose(1, &prompt).unwrap();
        let told = Message::Picked { column: held, chain: HashList::Slice(&prompt[49..]) };
        assert_eq!(Message::decode(&message.unwrap()).unwrap(), told);
    }

    fn what_a_retry_took_away_is_told_again_at_once() {
        let mut envoy = Envoy::new(1, 1);
        let (first, _) = envoy.choose(1, &chain(1, 50)).unwrap();
        let mut first = first;
        let (store, vm) = (&envoy.store, &mut envoy.vms[1]);
        assert!(vm.refused(store, &mut first, envoy.now).is_some());
        assert!(envoy.choose(1, &chain(1, 50)).unwrap().1.is_some());
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

    fn a_vm_that_ticks_fast_writes_its_row_at_most_every_other_millisecond_and_at_ticks() {
        for ticks_fast in [false, true] {
            let mut envoy = Envoy::new(1, 4);
            envoy.vms[1].set_ticks_fast(ticks_fast);
            let requests = |envoy: &mut Envoy| {
                envoy.vms[0].tick(&envoy.store, envoy.now);
                envoy.totals().all().iter().map(|(_, c)| c.requests).sum::<u32>()
            };
            envoy.choose(1, &chain(9, 5)).unwrap();
            envoy.now += 500;
            assert_eq!(requests(&mut envoy), 1, "its row is known to the applier");
            for n in 0..3 {
                envoy.choose(1, &chain(n, 5)).unwrap();
            }
            assert_eq!(requests(&mut envoy), if ticks_fast { 2 } else { 4 });
            envoy.now += 2;
            envoy.choose(1, &chain(3, 5)).unwrap();
            assert_eq!(requests(&mut envoy), 5);
            envoy.choose(1, &chain(4, 5)).unwrap();
            envoy.vms[1].tick(&envoy.store, envoy.now);
            assert_eq!(requests(&mut envoy), 6);
        }
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
        assert!(matches!(vm.choose(&store, &Ask::default(), |_, _| Prompt::default(), NOW, random).0, Choice::NoTable));
        let mut envoy = Envoy::new(1, 0);
        assert!(envoy.choose(1, &[]).is_none());
        envoy.vms[1].refresh(&envoy.store);
        let choice = envoy.vms[1].choose(&envoy.store, &Ask::default(), |_, _| Prompt::default(), NOW, random).0;
        assert!(matches!(choice, Choice::NoEndpoint));
    }
}
