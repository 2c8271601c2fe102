//! Several VMs on one store: what one tells, the others know; whoever dies is replaced.

mod flow;
mod pools;
mod precise;
#[cfg(not(target_arch = "wasm32"))]
mod random;
mod stages;
mod tenant_status;
mod workers;

use super::*;
use crate::replica::tests::record;
use warmroute_shared_state::endpoint::{Availability, Load};
use warmroute_shared_state::stream::{AgentOp, Page, PageKind, Position};
use warmroute_shared_state::table_op::{Column, HashList};

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
        let applier = Applier::new(&store, &keys, &follower, Settings::default(), NOW);
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
        let column = self.follower.replica.roster.get(record(n).id).unwrap().columns.held;
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
        .walk(chain)
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

    fn a_roster_that_was_built_anew_passes_for_another_one() {
        let mut world = World::new(3);
        let mut follower = world.fresh();
        // So many that the checkpoint stands for most of them.
        for _ in 0..100 {
            let load = Load::default();
            world.delta(vec![AgentOp::Load { id: record(0).id, age_ms: 10, load }]);
        }
        world.sync(&mut follower);
        let before = follower.replica.roster.revision();
        follower.distrust();
        assert_eq!(world.sync(&mut follower), SyncOutcome::Rebuilt);
        assert!(follower.replica.roster.revision() > before);
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
        let mut applier = Applier::new(&world.store, &world.keys, &heir, Settings::default(), NOW);
        let path = applier.poll_path(&heir.replica, 5);
        assert_eq!(path, "/v1/stream?epoch=9&seq=1&page=0&wait_ms=5");
        for n in 40..80 {
            let column = heir.replica.roster.get(record(1).id).unwrap().columns.held;
            let chain = chain(n, 6);
            let message = Message::Picked { column, chain: HashList::Slice(&chain) };
            applier.on_message(&mut heir, &message, later);
            applier.publish(&world.store, &world.keys, 2, &mut heir).unwrap();
        }
        // The old one comes back to life: it may not write a single frame.
        let column = world.follower.replica.roster.get(record(0).id).unwrap().columns.held;
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
        let column = world.follower.replica.roster.get(record(0).id).unwrap().columns.held;
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
