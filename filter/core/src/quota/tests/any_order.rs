//! Whatever comes, in whatever order.

use super::*;
use proptest::prelude::*;

const TPM: u64 = 6_000;
const PLACES: u64 = 3;

#[derive(Debug, Clone)]
enum Step {
    Come(u64),
    Settle(usize, u64),
    Release(usize),
    /// Forward, or a little back.
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..TPM).prop_map(Step::Come),
        2 => (0..10usize, 0..TPM).prop_map(|(which, used)| Step::Settle(which, used)),
        1 => (0..10usize).prop_map(Step::Release),
        2 => (-900..20_000i64).prop_map(Step::Wait),
    ]
}

fn asks(tokens: u64) -> Vec<Ask> {
    vec![
        ask(Kind::Tokens, TPM, tokens),
        ask(Kind::Concurrency, PLACES, 1),
        ask(Kind::InflightTokens, TPM, tokens),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Never more than the limit and what time gave, never more at once; and all comes back.
    #[test]
    fn limits_are_never_exceeded(steps in proptest::collection::vec(step(), 1..200)) {
        let mut buckets = Buckets::default();
        let (mut now, mut latest) = (1_000_000i64, 1_000_000i64);
        // A bucket begins when it is first asked for, which may be a little before.
        let mut earliest = now;
        let mut under_way: Vec<u64> = Vec::new();
        // Tokens taken and not given back.
        let mut spent = 0i64;
        for step in steps {
            let now_ms = now.unsigned_abs();
            match step {
                Step::Come(tokens) => {
                    let in_flight: u64 = under_way.iter().sum();
                    let fits = under_way.len() < 3 && in_flight + tokens <= TPM;
                    let before = buckets.level(&asks(0)[0], now_ms).balance;
                    let taken = buckets.take_all(&asks(tokens), now_ms).is_ok();
                    prop_assert_eq!(taken, fits && i64::try_from(tokens).unwrap() <= before);
                    if taken {
                        under_way.push(tokens);
                        spent += i64::try_from(tokens).unwrap();
                        let given = TPM.cast_signed() + (latest - earliest) * TPM.cast_signed() / 60_000;
                        prop_assert!(spent <= given, "{spent} of {given}");
                    }
                }
                Step::Settle(which, used) if which < under_way.len() => {
                    let tokens = under_way.remove(which);
                    buckets.settle(&asks(tokens), used, now_ms);
                    spent += used.cast_signed() - tokens.cast_signed();
                }
                Step::Release(which) if which < under_way.len() => {
                    let tokens = under_way.remove(which);
                    buckets.release(&asks(tokens));
                    spent -= tokens.cast_signed();
                }
                Step::Settle(..) | Step::Release(_) => {}
                Step::Wait(ms) => {
                    now += ms;
                    // Two readers of one clock differ by less than a second.
                    now = now.max(latest - 900);
                    latest = latest.max(now);
                    earliest = earliest.min(now);
                }
            }
        }
        for tokens in under_way {
            buckets.settle(&asks(tokens), 0, now.unsigned_abs());
        }
        let end = latest.unsigned_abs() + 120_000_000;
        for ask in asks(0) {
            prop_assert_eq!(buckets.level(&ask, end).balance, ask.limit.cast_signed());
        }
    }

    /// Without time, a balance is what was taken and not given back: to the token.
    #[test]
    fn every_token_is_accounted_for(requests in proptest::collection::vec((1..1_000u64, 0..3_000u64), 1..50)) {
        let limit = 1_000_000;
        let mut buckets = Buckets::default();
        let mut expected = limit as i64;
        for (reserved, used) in requests {
            let asks = [ask(Kind::Tokens, limit, reserved)];
            buckets.take_all(&asks, 7).unwrap();
            buckets.settle(&asks, used, 7);
            expected -= used.cast_signed();
            prop_assert_eq!(remaining(&mut buckets, Kind::Tokens, limit, 7), expected);
        }
    }
}
