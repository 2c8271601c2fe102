//! Anything that can happen, in any order: requests, ends, cancels, messages read late, VMs that trap, messages that
//! are lost.

use super::fleet::{FOR_EVER, Fate, Fleet, control, request};
use crate::flow_control::protocol::{Request, Usage};
use crate::quota::{Ask, BucketId, Kind};
use std::collections::BTreeMap;
use warmroute_shared_state::policy::flow::Band;
use warmroute_shared_state::policy::plugin::Fairness;

/// Budgets: so many at once, so many a minute.
const AT_ONCE: u64 = 64;
const PER_MINUTE: u64 = 600;

/// What may go wrong, each once in so many steps; 0 = never.
#[derive(Debug, Clone, Copy, Default)]
struct Chaos {
    worker_traps: u64,
    dispatcher_traps: u64,
    lost_messages: u64,
}

/// A sequence of numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn pick(&mut self, len: usize) -> usize {
        self.roll(len as u64) as usize
    }

    fn once_in(&mut self, sides: u64) -> bool {
        sides > 0 && self.roll(sides) == 0
    }
}

/// A request that is not over.
#[derive(Debug, Clone)]
struct Alive {
    runs: bool,
    kind: Option<Kind>,
    owner: u64,
}

struct Run {
    dice: Dice,
    fleet: Fleet,
    places: usize,
    alive: BTreeMap<String, Alive>,
    /// Requests with a budget a minute that went, by worker.
    paid: BTreeMap<u64, u64>,
    began_ms: u64,
    sent: usize,
}

impl Run {
    fn new(seed: u64, places: usize, fairness: Fairness) -> Self {
        let mut config = control(places as u64, fairness);
        for priority in [10, -5] {
            config.bands.push(Band { priority, limits: config.default_band.clone() });
        }
        let fleet = Fleet::new(4, config);
        Self {
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            places,
            alive: BTreeMap::new(),
            paid: BTreeMap::new(),
            began_ms: fleet.now_ms,
            sent: 0,
            fleet,
        }
    }

    fn send(&mut self) {
        self.sent += 1;
        let name = format!("n{}", self.sent);
        let worker = self.dice.pick(self.fleet.workers.len());
        let (kind, limit) = match self.dice.roll(4) {
            0 => (Some(Kind::Concurrency), AT_ONCE),
            1 => (Some(Kind::Requests), PER_MINUTE),
            _ => (None, 0),
        };
        let ask = |kind| Ask { bucket: BucketId::new("t", "m", kind), limit, amount: 1 };
        let (flow, priority) =
            (["a", "b", "c"][self.dice.pick(3)], [0, 0, 10, -5][self.dice.pick(4)]);
        let request = Request {
            tokens: 1 + self.dice.roll(1000),
            budgets: kind.map(ask).into_iter().collect(),
            ..request(flow, priority, self.fleet.now_ms)
        };
        let owner = self.fleet.workers[worker].0;
        self.alive.insert(name.clone(), Alive { runs: false, kind, owner });
        self.fleet.send_with(worker, &name, request, FOR_EVER);
    }

    fn end_one(&mut self) {
        if self.alive.is_empty() {
            return;
        }
        let at = self.dice.pick(self.alive.len());
        let name = self.alive.keys().nth(at).unwrap().clone();
        let alive = self.alive.remove(&name).unwrap();
        if alive.runs {
            let usage = Usage { prompt: self.dice.roll(2000), completion: self.dice.roll(100) };
            self.fleet.release_with(&name, usage, Some(usage.tokens()));
        } else {
            self.fleet.cancel(&name);
        }
    }

    fn lose_worker(&mut self) {
        let at = self.dice.pick(self.fleet.workers.len());
        let lost = self.fleet.workers[at].0;
        self.fleet.lose_worker(at);
        self.alive.retain(|_, alive| alive.owner != lost);
        self.paid.remove(&lost);
        self.fleet.add_worker();
    }

    /// Takes in what happened, and checks what must hold at any time.
    fn look(&mut self) {
        for (name, fate) in self.fleet.take_fates() {
            match fate {
                Fate::Went => {
                    let alive = self.alive.get_mut(&name).unwrap();
                    assert!(!alive.runs, "{name} went twice");
                    alive.runs = true;
                    if alive.kind == Some(Kind::Requests) {
                        *self.paid.entry(alive.owner).or_default() += 1;
                    }
                }
                Fate::Refused(_) => assert!(self.alive.remove(&name).is_some()),
                Fate::Evicted => panic!("nobody is evicted here"),
            }
        }
        assert!(self.fleet.held() <= self.places, "{} are in flight", self.fleet.held());
        let at_once = self.alive.values().filter(|a| a.runs && a.kind == Some(Kind::Concurrency));
        assert!(at_once.count() as u64 <= AT_ONCE, "too many at once");
        let elapsed_ms = self.fleet.now_ms - self.began_ms;
        let paid: u64 = self.paid.values().sum();
        let most = PER_MINUTE + elapsed_ms * PER_MINUTE / 60_000;
        assert!(paid <= most, "{paid} a minute in {elapsed_ms} ms");
    }

    fn step(&mut self, chaos: Chaos) {
        match self.dice.roll(10) {
            0..=2 => self.send(),
            3 | 4 => self.end_one(),
            5 | 6 => {
                self.fleet.step_dispatcher();
            }
            7 | 8 => {
                self.fleet.step_worker(None);
            }
            _ => {
                // No message is on its way for longer than this.
                self.fleet.settle();
                self.look();
                self.fleet.now_ms += 1 + self.dice.roll(60);
                self.fleet.tick();
            }
        }
        self.look();
        if self.dice.once_in(chaos.worker_traps) {
            self.lose_worker();
        }
        if self.dice.once_in(chaos.dispatcher_traps) {
            self.fleet.start_dispatcher();
        }
        if self.dice.once_in(chaos.lost_messages) {
            let to_dispatcher = self.dice.roll(2) == 0;
            self.fleet.lose_message(to_dispatcher);
        }
        self.look();
    }

    /// All places are taken again soon after, and in the end nothing is left.
    fn finish(mut self) {
        self.fleet.settle();
        self.fleet.pass(3000);
        self.look();
        if self.fleet.parked() > 0 {
            assert_eq!(self.fleet.held(), self.places, "a place stays free while some wait");
        }
        let counted = self.fleet.counted();
        assert_eq!(counted, (self.fleet.held() as u64, self.fleet.parked() as u64));
        while !self.alive.is_empty() {
            let runs = self.alive.iter().filter(|(_, alive)| alive.runs);
            let names: Vec<String> = runs.map(|(name, _)| name.clone()).collect();
            assert!(!names.is_empty(), "some wait for ever: {:?}", self.alive);
            for name in names {
                self.alive.remove(&name);
                self.fleet.release(&name);
            }
            self.look();
        }
        self.fleet.pass(1000);
        assert_eq!((self.fleet.held(), self.fleet.parked(), self.fleet.counted()), (0, 0, (0, 0)));
        let ask =
            Ask { bucket: BucketId::new("t", "m", Kind::Concurrency), limit: AT_ONCE, amount: 1 };
        let now_ms = self.fleet.now_ms;
        assert_eq!(self.fleet.dispatcher().budgets().level(&ask, now_ms).remaining(), AT_ONCE);
    }
}

fn run(chaos: Chaos) {
    let weighted =
        Fairness::WeightedToken { weights: vec![("a".into(), 3.0)], default_weight: 1.0 };
    for seed in 1..=12 {
        let fairness = [Fairness::GlobalStrict, Fairness::RoundRobin, weighted.clone()];
        // Few places: always full. Many: mostly from leases.
        let places = [3, 10, 150][seed % 3];
        let mut run = Run::new(seed as u64, places, fairness[seed / 3 % 3].clone());
        for _ in 0..2000 {
            run.step(chaos);
        }
        run.finish();
    }
}

crate::tests! {
    fn limits_hold_and_nothing_is_stuck_or_left() {
        run(Chaos::default());
    }

    fn not_when_workers_trap_either() {
        run(Chaos { worker_traps: 200, ..Chaos::default() });
    }

    fn not_when_dispatchers_trap_either() {
        run(Chaos { dispatcher_traps: 200, ..Chaos::default() });
    }

    fn not_when_all_trap_and_messages_are_lost() {
        run(Chaos { worker_traps: 300, dispatcher_traps: 300, lost_messages: 100 });
    }
}
