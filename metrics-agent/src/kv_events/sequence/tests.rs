mod random;

use super::*;

/// A batch of an engine: its run and its number.
type Id = (u64, u64);

fn payload((run, seq): Id) -> Bytes {
    Bytes::from(format!("{run}:{seq}"))
}

fn id(payload: &Bytes) -> Id {
    let text = std::str::from_utf8(payload).unwrap();
    let (run, seq) = text.split_once(':').unwrap();
    (run.parse().unwrap(), seq.parse().unwrap())
}

/// A sequence, driven by hand, with a short way to write what it did.
struct Bench {
    sequence: Sequence,
    now: Instant,
}

impl Bench {
    fn new(replays: bool) -> Self {
        Self { sequence: Sequence::new(replays), now: Instant::now() }
    }

    fn run(&mut self, call: impl FnOnce(&mut Sequence, Instant, &mut Vec<Effect>)) -> Vec<String> {
        let mut out = Vec::new();
        call(&mut self.sequence, self.now, &mut out);
        out.iter()
            .map(|effect| match effect {
                Effect::Apply(payload) => String::from_utf8(payload.to_vec()).unwrap(),
                Effect::AskReplay { from } => format!("ask {from}"),
                Effect::Void { cause, same_engine: false } => format!("void {cause:?}"),
                Effect::Void { cause, same_engine: true } => format!("lose {cause:?}"),
                Effect::Count(note) => format!("{note:?}"),
            })
            .collect()
    }

    fn connected(&mut self) -> Vec<String> {
        self.run(Sequence::connected)
    }

    fn live(&mut self, id: Id) -> Vec<String> {
        self.run(|s, now, out| s.live(id.1, payload(id), now, out))
    }

    fn replayed(&mut self, id: Id) -> Vec<String> {
        self.run(|s, now, out| s.replayed(id.1, payload(id), now, out))
    }

    fn ended(&mut self) -> Vec<String> {
        self.run(Sequence::replay_ended)
    }

    fn failed(&mut self) -> Vec<String> {
        self.run(Sequence::replay_failed)
    }

    /// Connected, and batches 0 to `n` - 1 of run 1 applied.
    fn at(n: u64) -> Self {
        let mut bench = Self::new(true);
        assert_eq!(bench.connected(), ["ask 0"]);
        (0..n).for_each(|seq| drop(bench.replayed((1, seq))));
        bench.ended();
        bench
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn without_replays_it_starts_anywhere_and_a_gap_voids() {
    let mut bench = Bench::new(false);
    assert_eq!(bench.connected(), NOTHING);
    assert_eq!(bench.live((1, 7)), ["1:7"]);
    assert_eq!(bench.live((1, 8)), ["1:8"]);
    assert_eq!(bench.live((1, 8)), ["Duplicate"]);
    assert_eq!(bench.live((1, 10)), ["Gap", "lose Gap", "1:10"]);
    assert_eq!(bench.live((1, 11)), ["1:11"]);
    assert_eq!(bench.live((2, 0)), ["void Restarted", "2:0"]);
    assert_eq!(bench.connected(), ["void Reconnected"]);
    assert_eq!(bench.connected(), NOTHING, "what is empty is not voided");
    assert_eq!(bench.live((2, 5)), ["2:5"]);
}

#[test]
fn the_first_connection_replays_from_the_start_and_then_goes_on_live() {
    let mut bench = Bench::new(true);
    assert_eq!(bench.connected(), ["ask 0"]);
    assert!(!bench.sequence.is_whole());
    assert_eq!(bench.live((1, 2)), NOTHING);
    assert_eq!(bench.replayed((1, 0)), ["1:0"]);
    assert_eq!(bench.replayed((1, 1)), ["1:1"]);
    assert_eq!(bench.replayed((1, 2)), ["1:2"]);
    assert_eq!(bench.live((1, 3)), NOTHING);
    assert_eq!(bench.ended(), ["Replayed", "Duplicate", "1:3"]);
    assert!(bench.sequence.is_whole());
    assert_eq!(bench.live((1, 4)), ["1:4"]);
}

#[test]
fn a_publisher_that_told_nothing_yet_begins_at_0() {
    let mut bench = Bench::new(true);
    bench.connected();
    assert_eq!(bench.ended(), ["Replayed"]);
    assert_eq!(bench.live((1, 1)), ["Gap", "ask 0"]);
    assert_eq!(bench.replayed((1, 0)), ["1:0"]);
    assert_eq!(bench.replayed((1, 1)), ["1:1"]);
    assert_eq!(bench.ended(), ["Replayed", "Duplicate"]);
}

#[test]
fn a_replay_that_never_has_the_missing_is_not_asked_for_ever() {
    let mut bench = Bench::new(true);
    bench.connected();
    bench.ended();
    assert_eq!(bench.live((1, 5)), ["Gap", "ask 0"]);
    assert_eq!(bench.ended(), ["Replayed", "Gap", "ask 0"]);
    assert_eq!(bench.ended(), ["Replayed", "Gap", "1:5"]);
    assert_eq!(bench.live((1, 6)), ["1:6"]);
}

#[test]
fn a_gap_is_replayed_from_the_last_batch_that_is_known() {
    let mut bench = Bench::at(5);
    assert_eq!(bench.live((1, 5)), ["1:5"]);
    assert_eq!(bench.live((1, 8)), ["Gap", "ask 5"]);
    assert_eq!(bench.replayed((1, 5)), NOTHING);
    assert_eq!(bench.replayed((1, 6)), ["1:6"]);
    assert_eq!(bench.live((1, 9)), NOTHING);
    assert_eq!(bench.replayed((1, 7)), ["1:7"]);
    assert_eq!(bench.replayed((1, 8)), ["1:8"]);
    assert_eq!(bench.ended(), ["Replayed", "Duplicate", "1:9"]);
}

#[test]
fn an_engine_that_restarted_is_seen_by_a_number_that_falls() {
    let mut bench = Bench::at(1);
    for seq in 1..5000 {
        assert_eq!(bench.live((1, seq)), [format!("1:{seq}")]);
    }
    assert_eq!(bench.live((2, 3)), ["void Restarted", "ask 0"]);
    for seq in 0..4 {
        assert_eq!(bench.replayed((2, seq)), [format!("2:{seq}")]);
    }
    assert_eq!(bench.ended(), ["Replayed", "Duplicate"]);
}

#[test]
fn an_engine_that_restarted_and_passed_our_number_is_seen_by_its_batches() {
    let mut bench = Bench::at(5);
    assert_eq!(bench.connected(), ["ask 4"]);
    assert_eq!(bench.live((2, 9)), NOTHING);
    assert_eq!(bench.replayed((2, 4)), ["void Restarted", "ask 0"]);
    assert_eq!(bench.replayed((2, 0)), ["2:0"]);
    // Its number 4 is not there yet: the same without a batch to compare.
    let mut bench = Bench::at(5);
    assert_eq!(bench.connected(), ["ask 4"]);
    assert_eq!(bench.ended(), ["void Restarted", "ask 0"]);
    assert_eq!(bench.ended(), ["Replayed"]);
}

#[test]
fn a_connection_that_was_only_cut_voids_nothing() {
    let mut bench = Bench::at(5);
    assert_eq!(bench.connected(), ["ask 4"]);
    assert_eq!(bench.replayed((1, 4)), NOTHING);
    assert_eq!(bench.replayed((1, 5)), ["1:5"]);
    assert_eq!(bench.ended(), ["Replayed"]);
    assert_eq!(bench.live((1, 6)), ["1:6"]);
}

#[test]
fn a_replay_that_starts_too_late_voids_and_brings_what_it_has() {
    let mut bench = Bench::at(5);
    bench.live((1, 100));
    assert_eq!(bench.replayed((1, 90)), ["lose ReplayTooLate", "1:90"]);
    assert_eq!(bench.replayed((1, 91)), ["1:91"]);
    let mut cold = Bench::new(true);
    cold.connected();
    assert_eq!(cold.replayed((1, 90)), ["1:90"], "nothing was held: nothing is void");
}

#[test]
fn a_hole_in_a_replay_is_tried_again_while_that_helps() {
    let mut bench = Bench::at(5);
    bench.live((1, 20));
    bench.replayed((1, 4));
    assert_eq!(bench.replayed((1, 5)), ["1:5"]);
    assert_eq!(bench.replayed((1, 9)), ["Retried", "ask 5"]);
    assert_eq!(bench.replayed((1, 5)), NOTHING);
    assert_eq!(bench.replayed((1, 6)), ["1:6"]);
    assert_eq!(bench.replayed((1, 9)), ["Retried", "ask 6"], "it brought something");
    bench.replayed((1, 6));
    assert_eq!(bench.replayed((1, 9)), ["Retried", "ask 6"]);
    bench.replayed((1, 6));
    assert_eq!(bench.replayed((1, 9)), ["lose ReplayHole", "1:9"]);
    (10..=20).for_each(|seq| drop(bench.replayed((1, seq))));
    assert_eq!(bench.ended(), ["Replayed", "Duplicate"]);
}

#[test]
fn a_replay_that_fails_twice_voids_and_goes_on_with_the_newest() {
    let mut bench = Bench::at(5);
    bench.live((1, 8));
    bench.live((1, 9));
    assert_eq!(bench.failed(), ["Retried", "ask 4"]);
    assert_eq!(bench.failed(), ["lose ReplayFailed", "1:8", "1:9"]);
    assert_eq!(bench.failed(), NOTHING);
    assert_eq!(bench.live((1, 10)), ["1:10"]);
    let mut cold = Bench::new(true);
    cold.connected();
    cold.live((1, 3));
    assert_eq!(cold.failed(), ["Retried", "ask 0"]);
    assert_eq!(cold.failed(), ["1:3"]);
}

#[test]
fn names_are_kept_only_while_it_is_surely_the_same_engine() {
    // After a new connection, before anything showed that.
    let mut bench = Bench::at(5);
    assert_eq!(bench.connected(), ["ask 4"]);
    assert_eq!(bench.replayed((1, 90)), ["void ReplayTooLate", "1:90"]);
    let mut bench = Bench::at(5);
    bench.connected();
    assert_eq!(bench.failed(), ["Retried", "ask 4"]);
    assert_eq!(bench.failed(), ["void ReplayFailed"]);
    // After the proof.
    let mut bench = Bench::at(5);
    bench.connected();
    bench.replayed((1, 4));
    assert_eq!(bench.failed(), ["Retried", "ask 4"]);
    assert_eq!(bench.failed(), ["lose ReplayFailed"]);
    // Names are known, and nothing is held that a replay could prove.
    assert_eq!(bench.connected(), ["void Reconnected", "ask 0"]);
    assert_eq!(bench.connected(), ["ask 0"]);
}

#[test]
fn silence_and_slowness_end_a_replay() {
    let mut bench = Bench::at(5);
    bench.live((1, 8));
    let began = bench.now;
    bench.now = began + REPLAY_IDLE - Duration::from_millis(1);
    assert_eq!(bench.run(Sequence::tick), NOTHING);
    bench.replayed((1, 4));
    assert_eq!(bench.sequence.deadline(), Some(bench.now + REPLAY_IDLE));
    bench.now += REPLAY_IDLE;
    assert_eq!(bench.run(Sequence::tick), ["Retried", "ask 4"]);
    let again = bench.now;
    for _ in 0..20 {
        bench.now = (bench.now + Duration::from_millis(1900)).min(again + REPLAY_TOTAL);
        if bench.now < again + REPLAY_TOTAL {
            assert_eq!(bench.run(Sequence::tick), NOTHING);
            bench.replayed((1, 4));
        }
    }
    assert_eq!(bench.run(Sequence::tick), ["lose ReplayFailed", "1:8"]);
    assert_eq!(bench.sequence.deadline(), None);
}

#[test]
fn what_waits_for_a_replay_is_bounded_and_asked_for_again() {
    let mut bench = Bench::at(1);
    bench.live((1, 2));
    let waiting = u64::try_from(WAITING_BATCHES).unwrap();
    for seq in 3..2 + waiting {
        assert_eq!(bench.live((1, seq)), NOTHING);
    }
    assert_eq!(bench.live((1, 2 + waiting)), ["Overflow"]);
    bench.replayed((1, 0));
    bench.replayed((1, 1));
    assert_eq!(bench.ended(), ["Replayed", "Gap", "ask 1"]);
    let large = Bytes::from(vec![0; WAITING_BYTES]);
    let mut bench = Bench::at(1);
    bench.live((1, 2));
    assert_eq!(bench.run(|s, now, out| s.live(3, large, now, out)), ["Overflow"]);
}
