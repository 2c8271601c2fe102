//! Precise endpoints: what their events told, and what picks made us expect, in every VM.

use super::*;
use crate::scheduling::PickReason;
use std::sync::Arc;
use warmroute_shared_state::block::{Block, Tier};
use warmroute_shared_state::endpoint::EndpointRecord;
use warmroute_shared_state::model::ModelRecord;

const STREAM: u64 = 7;

/// Bytes of prompts beyond their whole blocks: as many as the engine's unfinished block may have.
const UNFINISHED: u64 = 2 * 15 * 4;

fn precise(n: u16, generation: u64) -> EndpointRecord {
    EndpointRecord { precise: true, generation, ..record(n) }
}

fn store(n: u16, tier: Tier, hashes: &[u64]) -> AgentOp {
    let blocks = (1u32..).zip(hashes).map(|(i, hash)| Block { hash: *hash, tokens: 32 * i });
    AgentOp::Store { id: record(n).id, tier, at_ms: NOW - 3, blocks: blocks.collect() }
}

/// An applier that serves nothing, and two workers.
struct Envoy {
    store: MemoryStore,
    vms: Vec<VmState>,
    now: u64,
    seq: u64,
}

impl Envoy {
    fn new(endpoints: u16) -> Self {
        let store = MemoryStore::default();
        let mut vms: Vec<_> = (1..=3).map(|i| VmState::new(i, Settings::default())).collect();
        for vm in &mut vms {
            vm.attach(&store);
            vm.tick(&store, NOW);
        }
        let mut envoy = Self { store, vms, now: NOW, seq: 0 };
        let ops = (0..endpoints).map(|n| AgentOp::Endpoint(precise(n, 1))).collect();
        envoy.page(PageKind::Snapshot { page: 0, pages: 1 }, ops);
        envoy
    }

    fn page(&mut self, kind: PageKind, ops: Vec<AgentOp>) {
        self.seq += 1;
        let page = Page { position: Position { epoch: 9, seq: self.seq }, kind, ops };
        let outcome = self.vms[0].on_page(&self.store, &page.encode(), self.now).unwrap();
        assert_eq!(outcome, PageOutcome::Applied);
    }

    fn delta(&mut self, ops: Vec<AgentOp>) {
        self.page(PageKind::Delta { from_seq: self.seq }, ops);
    }

    fn choose(&mut self, worker: usize, chain: &[u64]) -> Routed {
        let bytes = chain.len() as u64 * 128 + UNFINISHED;
        let prompt = Prompt { stream: STREAM, chain: chain.to_vec(), bytes, ..Prompt::default() };
        self.vms[worker].refresh(&self.store);
        let (choice, message) = self.vms[worker].choose(
            &self.store,
            &Ask::default(),
            |_, _| prompt,
            self.now,
            &mut || 5,
        );
        self.tell(message);
        let Choice::Routed(routed) = choice else { panic!("not routed") };
        *routed
    }

    fn tell(&mut self, messages: impl IntoIterator<Item = Vec<u8>>) {
        let messages: Vec<_> = messages.into_iter().collect();
        let messages = messages.iter().map(|m| Message::decode(m).unwrap());
        self.vms[0].on_messages(&self.store, messages, self.now);
        self.tick(0);
    }

    fn tick(&mut self, later_ms: u64) {
        self.now += later_ms;
        self.vms[0].tick(&self.store, self.now);
    }

    fn answer(&mut self, worker: usize, mut routed: Routed) {
        let message = self.vms[worker].answered(&self.store, &mut routed, self.now);
        self.tell(message);
        let messages = self.vms[worker].finish(&self.store, routed, None, self.now);
        self.tell(messages);
    }

    /// Kind, blocks and tokens of a belief that rests on nothing of this call.
    fn believed(&mut self, worker: usize, chain: &[u64]) -> (BeliefKind, usize, u64) {
        let bytes = chain.len() as u64 * 128 + UNFINISHED;
        let prompt = Prompt { stream: STREAM, chain: chain.to_vec(), bytes, ..Prompt::default() };
        self.vms[worker].refresh(&self.store);
        let replica = &self.vms[worker].follower.replica;
        let all = super::super::belief::beliefs(replica, &prompt, |_| true);
        let best = all.iter().map(|(_, b)| *b).max_by_key(|b| b.blocks).unwrap();
        (best.kind, best.blocks, best.tokens)
    }
}

crate::tests! {
    fn every_vm_believes_what_events_told_and_takes_it_back() {
        let mut envoy = Envoy::new(3);
        let chain = chain(1, 5);
        envoy.delta(vec![store(1, Tier::Device, &chain[..4])]);
        for worker in [0, 1, 2] {
            assert_eq!(envoy.believed(worker, &chain), (BeliefKind::Events, 4, 128));
        }
        assert_eq!(envoy.vms[1].take_told(), [NOW - 3]);
        let routed = envoy.choose(1, &chain);
        assert_eq!((routed.endpoint(), routed.reason), (record(1).id, PickReason::Prefix));
        let hashes: Arc<[u64]> = chain[2..4].into();
        envoy.delta(vec![AgentOp::Evict { id: record(1).id, tier: Tier::Device, at_ms: NOW, hashes }]);
        assert_eq!(envoy.believed(2, &chain).1, 2);
        // A VM that is made anew knows the same, tokens included.
        let mut fresh = VmState::new(9, Settings::default());
        fresh.attach(&envoy.store);
        envoy.vms.push(fresh);
        assert_eq!(envoy.believed(3, &chain), (BeliefKind::Events, 2, 64));
    }

    fn a_new_generation_is_cold_and_expects_nothing() {
        let mut envoy = Envoy::new(1);
        let chain = chain(1, 6);
        envoy.delta(vec![store(0, Tier::Device, &chain[..3])]);
        envoy.choose(1, &chain);
        assert_eq!(envoy.believed(2, &chain).1, 6);
        envoy.delta(vec![AgentOp::Endpoint(precise(0, 2))]);
        assert_eq!(envoy.believed(2, &chain), (BeliefKind::Nothing, 0, 0));
        envoy.tick(60_000);
        assert_eq!(envoy.believed(2, &chain).1, 0);
        assert_eq!(envoy.vms[0].expectation_counts(), ExpectationCounts::default());
    }

    fn a_pick_is_expected_until_its_events_come_or_too_long() {
        let mut envoy = Envoy::new(3);
        let chain = chain(1, 6);
        let first = envoy.choose(1, &chain);
        assert_eq!(first.belief.kind, BeliefKind::Nothing);
        // The frame has carried it: not only the intent.
        envoy.now += 2000;
        let second = envoy.choose(2, &chain);
        assert_eq!(second.endpoint(), first.endpoint());
        assert_eq!((second.belief.kind, second.belief.blocks), (BeliefKind::Expected, 6));
        let n = (0..3).find(|n| record(*n).id == first.endpoint()).unwrap();
        envoy.answer(1, first);
        envoy.answer(2, second);
        envoy.delta(vec![store(n, Tier::Device, &chain[..5])]);
        assert_eq!(envoy.believed(1, &chain), (BeliefKind::Expected, 6, 192));
        let hashes: Arc<[u64]> = chain[3..5].into();
        envoy.delta(vec![AgentOp::Evict { id: record(n).id, tier: Tier::Device, at_ms: NOW, hashes }]);
        assert_eq!(envoy.believed(1, &chain), (BeliefKind::Events, 3, 96), "what was told is told to be gone");
        envoy.delta(vec![store(n, Tier::Device, &chain[..5])]);
        envoy.tick(2000);
        assert_eq!(envoy.believed(1, &chain), (BeliefKind::Events, 5, 160));
        assert_eq!(envoy.vms[0].expectation_counts().confirmed, 1);
    }

    fn what_no_event_confirms_is_not_believed_for_long() {
        let mut envoy = Envoy::new(2);
        let chain = chain(1, 6);
        let routed = envoy.choose(1, &chain);
        let endpoint = (0..2).find(|n| record(*n).id == routed.endpoint()).unwrap();
        envoy.answer(1, routed);
        // It tells of something else.
        envoy.delta(vec![store(endpoint, Tier::Device, &[77])]);
        envoy.tick(1999);
        assert_eq!(envoy.believed(2, &chain).0, BeliefKind::Expected);
        envoy.tick(1);
        assert_eq!(envoy.believed(2, &chain).0, BeliefKind::Nothing);
        let counts = envoy.vms[0].expectation_counts();
        assert_eq!((counts.confirmed, counts.unconfirmed), (0, 1));
        // Nothing is left of it in anybody's table.
        for vm in &mut envoy.vms {
            vm.refresh(&envoy.store);
            assert_eq!(vm.follower.replica.table.len(), 1, "what it told");
        }
    }

    fn the_engines_unfinished_block_is_not_expected() {
        let mut envoy = Envoy::new(1);
        let chain = chain(1, 6);
        let bytes = 6 * 128 + UNFINISHED - 1;
        let prompt = Prompt { stream: STREAM, chain: chain.clone(), bytes, ..Prompt::default() };
        envoy.vms[1].refresh(&envoy.store);
        let (_, message) = envoy.vms[1].choose(&envoy.store, &Ask::default(), |_, _| prompt, NOW, &mut || 5);
        envoy.tell(message);
        assert_eq!(envoy.believed(2, &chain).1, 5);
    }

    fn an_intent_does_not_outlive_what_was_told_since() {
        let mut envoy = Envoy::new(1);
        let chain = chain(1, 6);
        let routed = envoy.choose(1, &chain);
        envoy.answer(1, routed);
        envoy.delta(vec![store(0, Tier::Device, &chain)]);
        let hashes: Arc<[u64]> = chain.as_slice().into();
        envoy.delta(vec![AgentOp::Evict { id: record(0).id, tier: Tier::Device, at_ms: NOW, hashes }]);
        envoy.now += 100;
        assert_eq!(envoy.choose(2, &chain).belief.kind, BeliefKind::Nothing);
    }

    fn what_was_refused_is_not_expected() {
        let mut envoy = Envoy::new(2);
        let chain = chain(1, 6);
        let mut routed = envoy.choose(1, &chain);
        let message = envoy.vms[1].refused(&envoy.store, &mut routed, envoy.now);
        envoy.tell(message);
        assert_eq!(envoy.believed(2, &chain).0, BeliefKind::Nothing);
    }

    fn a_retry_is_expected_where_it_was_served() {
        let mut envoy = Envoy::new(2);
        let chain = chain(1, 6);
        let routed = envoy.choose(1, &chain);
        let other = record(u16::from(routed.endpoint() == record(0).id));
        let (routed, messages) =
            envoy.vms[1].served_by(&envoy.store, routed, &other.address, envoy.now);
        envoy.tell(messages);
        assert_eq!(routed.endpoint(), other.id);
        envoy.now += 2000;
        let next = envoy.choose(2, &chain);
        assert_eq!((next.endpoint(), next.belief.blocks), (other.id, 6));
    }

    fn an_heir_of_the_role_settles_what_was_expected() {
        let mut envoy = Envoy::new(2);
        let chain = chain(1, 6);
        envoy.choose(1, &chain);
        envoy.tick(0);
        // The applier is gone; a worker takes over.
        envoy.now += 3000;
        let now = envoy.now;
        assert!(envoy.vms[1].tick(&envoy.store, now));
        assert_eq!(envoy.believed(2, &chain).1, 6);
        envoy.vms[1].tick(&envoy.store, now + 2000);
        assert_eq!(envoy.believed(2, &chain).1, 0);
    }

    fn a_whole_snapshot_voids_what_it_does_not_tell() {
        let mut envoy = Envoy::new(1);
        let chain = chain(1, 5);
        envoy.delta(vec![store(0, Tier::Device, &chain)]);
        // The evictions in between were never told here.
        let ops = vec![AgentOp::Endpoint(precise(0, 1)), store(0, Tier::Device, &chain[..2])];
        envoy.page(PageKind::Snapshot { page: 0, pages: 1 }, ops);
        for worker in [0, 1, 2] {
            assert_eq!(envoy.believed(worker, &chain), (BeliefKind::Events, 2, 64));
        }
    }

    fn slower_tiers_are_told_apart() {
        let mut envoy = Envoy::new(1);
        let chain = chain(1, 5);
        envoy.delta(vec![AgentOp::Endpoint(EndpointRecord {
            lower_tier_percent: 50,
            ..precise(0, 2)
        })]);
        envoy.delta(vec![store(0, Tier::Device, &chain[..2]), store(0, Tier::Any, &chain[..4])]);
        assert_eq!(envoy.believed(1, &chain), (BeliefKind::Events, 3, 128));
    }

    fn a_model_that_is_seldom_confirmed_becomes_approximate_in_every_vm() {
        let mut envoy = Envoy::new(1);
        let model = ModelRecord { name: "m".into(), stream: STREAM, ..ModelRecord::default() };
        envoy.delta(vec![AgentOp::Model(Arc::new(model))]);
        for n in 0..200 {
            let routed = envoy.choose(1, &chain(n, 3));
            envoy.answer(1, routed);
        }
        envoy.tick(2000);
        assert_eq!(envoy.vms[0].expectation_counts(), ExpectationCounts::default());
        for n in 0..200 {
            let routed = envoy.choose(1, &chain(n, 3));
            envoy.answer(1, routed);
        }
        // Its events come, and tell of something else.
        envoy.delta(vec![store(0, Tier::Device, &[77])]);
        envoy.tick(2000);
        assert_eq!(envoy.vms[0].expectation_counts().distrusted, 1);
        for vm in &mut envoy.vms {
            vm.refresh(&envoy.store);
            assert!(vm.follower.replica.models.find("m").unwrap().0.distrusted);
        }
        let mut fresh = VmState::new(9, Settings::default());
        fresh.attach(&envoy.store);
        assert!(fresh.follower.replica.models.find("m").unwrap().0.distrusted);
    }

    fn a_snapshot_without_a_model_removes_it() {
        let mut envoy = Envoy::new(1);
        let model = |name: &str| {
            AgentOp::Model(Arc::new(ModelRecord { name: name.into(), ..ModelRecord::default() }))
        };
        envoy.delta(vec![model("a"), model("b")]);
        let ops = vec![AgentOp::Endpoint(precise(0, 1)), model("b")];
        envoy.page(PageKind::Snapshot { page: 0, pages: 1 }, ops);
        envoy.vms[2].refresh(&envoy.store);
        let models = &envoy.vms[2].follower.replica.models;
        assert!(models.find("a").is_none() && models.find("b").is_some());
        envoy.delta(vec![AgentOp::RemoveModel("b".into())]);
        envoy.vms[2].refresh(&envoy.store);
        assert!(envoy.vms[2].follower.replica.models.find("b").is_none());
    }
}
