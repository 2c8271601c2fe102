//! Anything may happen to an engine and on the way from it: what is held is an unbroken run of one.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// What may happen to a publisher and on the way from it.
#[derive(Debug, Clone)]
enum Step {
    /// A batch is published; how often it arrives.
    Publish(u8),
    /// The engine starts anew, which always breaks the connection.
    Restart,
    /// The connection breaks.
    Reconnect,
    /// So many messages of the replay arrive, then one is lost.
    Replay(u8),
    /// The replay breaks off.
    Break,
    /// Nothing for so many milliseconds.
    Wait(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => Just(Step::Publish(1)),
        2 => Just(Step::Publish(0)),
        1 => Just(Step::Publish(2)),
        1 => Just(Step::Restart),
        1 => Just(Step::Reconnect),
        4 => (0u8..6).prop_map(Step::Replay),
        1 => Just(Step::Break),
        1 => (0u16..40_000).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..120)
}

/// An engine, the way from it, and what its receiver holds.
struct World {
    sequence: Sequence,
    now: Instant,
    run: u64,
    published: u64,
    keeps: u64,
    /// Messages of the replay under way; the end marker is after the last.
    replay: Option<VecDeque<Id>>,
    /// What was applied since the last void.
    held: Vec<Id>,
    /// Runs whose names may be known.
    named: BTreeSet<u64>,
}

impl World {
    fn new(replays: bool, keeps: u64) -> Self {
        let (sequence, now) = (Sequence::new(replays), Instant::now());
        let (held, named) = (Vec::new(), BTreeSet::new());
        let mut world =
            Self { sequence, now, run: 0, published: 0, keeps, replay: None, held, named };
        world.act(Sequence::connected);
        world
    }

    fn act(&mut self, call: impl FnOnce(&mut Sequence, Instant, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        call(&mut self.sequence, self.now, &mut out);
        for effect in out {
            match effect {
                Effect::Apply(payload) => {
                    self.held.push(id(&payload));
                    self.named.insert(id(&payload).0);
                }
                Effect::Void { same_engine, .. } => {
                    self.held.clear();
                    if !same_engine {
                        self.named.clear();
                    }
                }
                Effect::AskReplay { from } => {
                    let first = from.max(self.published.saturating_sub(self.keeps));
                    self.replay =
                        Some((first..self.published).map(|seq| (self.run, seq)).collect());
                }
                Effect::Count(_) => {}
            }
        }
        let whole =
            self.held.windows(2).all(|pair| pair[0].0 == pair[1].0 && pair[0].1 + 1 == pair[1].1);
        assert!(self.named.len() < 2, "names of two engines");
        assert!(whole, "held without a void between: {:?}", self.held);
    }

    fn publish(&mut self, times: u8) {
        let id = (self.run, self.published);
        self.published += 1;
        for _ in 0..times {
            self.act(|s, now, out| s.live(id.1, payload(id), now, out));
        }
    }

    fn reconnect(&mut self) {
        self.replay = None;
        self.act(Sequence::connected);
    }

    /// One message of the replay; `lost`: on its way.
    fn replay(&mut self, lost: bool) {
        let Some(replay) = &mut self.replay else { return };
        match replay.pop_front() {
            Some(_) if lost => {}
            Some(id) => self.act(|s, now, out| s.replayed(id.1, payload(id), now, out)),
            None if lost => {}
            None => {
                self.replay = None;
                self.act(Sequence::replay_ended);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Publish(times) => self.publish(*times),
            Step::Restart => {
                self.run += 1;
                self.published = 0;
                self.reconnect();
            }
            Step::Reconnect => self.reconnect(),
            Step::Replay(count) => {
                (0..*count).for_each(|_| self.replay(false));
                self.replay(true);
            }
            Step::Break => {
                self.replay = None;
                self.act(Sequence::replay_failed);
            }
            Step::Wait(millis) => {
                self.now += Duration::from_millis((*millis).into());
                self.act(Sequence::tick);
            }
        }
    }
}

proptest! {
    #[test]
    fn what_is_held_is_always_an_unbroken_run_of_one_engine(
        replays: bool, keeps in 0u64..12, steps in steps(),
    ) {
        let mut world = World::new(replays, keeps);
        steps.iter().for_each(|step| world.step(step));
        // A few batches and replays without loss, and it is the newest of the present engine.
        for _ in 0..4 {
            world.publish(1);
            for _ in 0..200 {
                if world.replay.is_none() && world.sequence.is_whole() {
                    break;
                }
                world.now += REPLAY_IDLE / 3;
                world.replay(false);
                world.act(Sequence::tick);
            }
            prop_assert!(world.sequence.is_whole(), "replays come to an end");
        }
        let newest = (world.run, world.published - 1);
        prop_assert_eq!(world.held.last(), Some(&newest));
        prop_assert!(world.sequence.waiting.is_empty());
    }
}
