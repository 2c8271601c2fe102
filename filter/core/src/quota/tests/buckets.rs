//! What buckets give, take back, and forget.

use super::*;
use warmroute_shared_state::wire::{Reader, Writer};

const TPM: u64 = 6_000;

fn short(refusal: &Refusal) -> (Kind, u64) {
    match refusal.why {
        Why::Short { retry_after_ms } => (refusal.ask.bucket.kind(), retry_after_ms),
        Why::TooLarge | Why::TableFull => panic!("{refusal:?}"),
    }
}

crate::tests! {
    fn a_request_takes_of_its_models_limit_or_of_that_of_all_others() {
        let limit = |model: &str, tpm| Limit { model: model.into(), tpm, ..Limit::default() };
        let tenant = tenant("t", vec![limit("a", Some(1)), limit("*", Some(2)), limit("c", None)]);
        let asks = |model: &str| Budget::of(&tenant, model, &Demand::default()).asks;
        assert_eq!((asks("a")[0].limit, asks("b")[0].limit), (1, 2));
        assert_eq!(asks("b"), asks("another"));
        assert_ne!(asks("a")[0].bucket, asks("b")[0].bucket);
        assert!(asks("c").is_empty());
        assert!(Budget::of(&super::tenant("u", vec![]), "a", &Demand::default()).asks.is_empty());
    }

    fn buckets_of_other_tenants_models_and_kinds_are_others() {
        let id = |tenant, model| BucketId::new(tenant, model, Kind::Tokens);
        assert_eq!(id("ab", "c"), id("ab", "c"));
        assert_ne!(id("ab", "c"), id("a", "bc"));
        for kind in Kind::ALL {
            let id = BucketId::new("ab", "c", kind);
            assert_eq!((id.kind(), BucketId::from_bits(id.to_bits())), (kind, id));
        }
    }

    fn the_reservation_is_input_and_the_longest_output() {
        for (default, cap, max_output, answers, reserved) in [
            (None, None, None, 1, 10 + 1024),
            (Some(7), None, None, 1, 17),
            (Some(7), Some(5), None, 1, 15),
            (Some(7), None, Some(100), 1, 110),
            (Some(7), Some(50), Some(100), 1, 60),
            (None, None, Some(0), 1, 10),
            (None, None, Some(100), 3, 310),
            // The cap is one answer's.
            (None, Some(250), Some(100), 3, 310),
            (None, Some(50), Some(100), 3, 160),
            (None, None, None, 0, 10),
            (None, None, Some(u64::MAX), u64::MAX, u64::MAX),
        ] {
            let limit = Limit {
                model: "*".into(),
                max_completion_tokens_default: default,
                max_completion_tokens_cap: cap,
                rpm: Some(3),
                inflight_tokens: Some(4),
                ..Limit::default()
            };
            let demand = Demand { input_tokens: 10, max_output, answers };
            let budget = Budget::of(&tenant("t", vec![limit]), "m", &demand);
            assert_eq!(budget.reserved, reserved, "{demand:?}");
            let amounts: Vec<_> = budget.asks.iter().map(|ask| (ask.bucket.kind(), ask.amount)).collect();
            assert_eq!(amounts, [(Kind::Requests, 1), (Kind::InflightTokens, reserved)]);
        }
    }

    fn time_gives_a_limits_worth_a_minute() {
        let mut buckets = Buckets::default();
        buckets.take_all(&[ask(Kind::Tokens, TPM, TPM)], 0).unwrap();
        for (now_ms, left) in [(0, 0), (9, 0), (10, 1), (1_000, 100), (59_990, 5_999), (60_000, 6_000), (90_000, 6_000)] {
            assert_eq!(remaining(&mut buckets, Kind::Tokens, TPM, now_ms), left, "{now_ms}");
        }
    }

    fn a_limit_that_does_not_divide_a_minute_loses_nothing_over_days() {
        let mut bucket = Bucket::new(Kind::Tokens, 7, 0);
        bucket.take(7).unwrap();
        // Looked at every 13 ms, it still has gained exactly 7 after a minute, and not before.
        for now_ms in (0..60_000).step_by(13) {
            bucket.advance(7, now_ms);
        }
        assert_eq!(bucket.balance(), 6);
        bucket.advance(7, 60_000);
        assert_eq!((bucket.balance(), bucket.is_full()), (7, true));
    }

    fn a_refusal_says_when_to_come_again_and_takes_nothing() {
        let mut buckets = Buckets::default();
        let asks = [ask(Kind::Requests, 10, 1), ask(Kind::Tokens, TPM, 4_000), ask(Kind::Concurrency, 1, 1)];
        let levels = buckets.take_all(&asks, 0).unwrap();
        let left: Vec<_> = levels.iter().map(|level| (level.remaining(), level.reset_ms)).collect();
        assert_eq!(left, [(9, 6_000), (2_000, 40_000), (0, 0)]);

        let refusal = buckets.take_all(&asks, 0).unwrap_err();
        // 2,000 tokens more at 100 a second.
        assert_eq!(short(&refusal), (Kind::Tokens, 20_000));
        assert_eq!(refusal.levels, levels);
        let two = [ask(Kind::Requests, 10, 1), ask(Kind::Tokens, TPM, 1_000), ask(Kind::Concurrency, 1, 1)];
        assert_eq!(short(&buckets.take_all(&two, 0).unwrap_err()), (Kind::Concurrency, 1_000));

        buckets.settle(&asks, 4_000, 0);
        assert_eq!(short(&buckets.take_all(&asks, 19_999).unwrap_err()), (Kind::Tokens, 1));
        assert!(buckets.take_all(&asks, 20_000).is_ok());
    }

    fn what_is_more_than_the_limit_never_fits() {
        let mut buckets = Buckets::default();
        let asks = [ask(Kind::Concurrency, 1, 1), ask(Kind::Tokens, TPM, TPM + 1)];
        buckets.take_all(&asks[..1], 0).unwrap();
        let refusal = buckets.take_all(&asks, 0).unwrap_err();
        assert_eq!((refusal.why, refusal.ask), (Why::TooLarge, asks[1]));
        let budget = Budget { reserved: TPM + 1, asks: asks.to_vec() };
        assert_eq!(budget.too_large().map(|refusal| refusal.ask), Some(asks[1]));
        assert_eq!(Budget { reserved: 1, asks: asks[..1].to_vec() }.too_large(), None);
    }

    fn settling_refunds_or_charges_and_may_overdraw() {
        let mut buckets = Buckets::default();
        let asks = [ask(Kind::Tokens, TPM, 4_000), ask(Kind::InflightTokens, 5_000, 4_000), ask(Kind::Requests, 60, 1)];
        buckets.take_all(&asks, 0).unwrap();
        buckets.settle(&asks, 1_000, 0);
        assert_eq!(remaining(&mut buckets, Kind::Tokens, TPM, 0), 5_000);
        assert_eq!(remaining(&mut buckets, Kind::InflightTokens, 5_000, 0), 5_000);
        assert_eq!(remaining(&mut buckets, Kind::Requests, 60, 0), 59);

        buckets.take_all(&asks, 0).unwrap();
        buckets.settle(&asks, 7_000, 0);
        assert_eq!(remaining(&mut buckets, Kind::Tokens, TPM, 0), -2_000);
        let level = buckets.level(&asks[0], 0);
        assert_eq!((level.remaining(), level.reset_ms), (0, 80_000));
        let one = [ask(Kind::Tokens, TPM, 1)];
        assert_eq!(short(&buckets.take_all(&one, 0).unwrap_err()), (Kind::Tokens, 20_010));
        assert!(buckets.take_all(&one, 20_010).is_ok());
    }

    fn a_released_request_never_was() {
        let mut buckets = Buckets::default();
        let asks = Kind::ALL.map(|kind| ask(kind, 100, 1));
        buckets.take_all(&asks, 0).unwrap();
        assert_eq!(buckets.len(), 4);
        buckets.release(&asks);
        assert!(buckets.is_empty());
    }

    fn a_changed_limit_keeps_what_is_used() {
        let mut buckets = Buckets::default();
        buckets.take_all(&[ask(Kind::Tokens, 10_000, 7_000)], 0).unwrap();
        assert_eq!(remaining(&mut buckets, Kind::Tokens, 20_000, 0), 13_000);
        assert_eq!(remaining(&mut buckets, Kind::Tokens, 5_000, 0), -2_000);
        assert_eq!(remaining(&mut buckets, Kind::Tokens, 10_000, 0), 3_000);
        // What came back so far came at the old rate.
        assert_eq!(remaining(&mut buckets, Kind::Tokens, 60_000, 6_000), 54_000);
    }

    fn a_clock_that_goes_back_gives_nothing_twice_and_stops_nothing() {
        let mut buckets = Buckets::default();
        buckets.take_all(&[ask(Kind::Tokens, TPM, TPM)], 10_000_000).unwrap();
        for now_ms in [10_000_500, 10_000_000, 10_000_500, 9_999_900, 10_000_500] {
            remaining(&mut buckets, Kind::Tokens, TPM, now_ms);
        }
        assert_eq!(remaining(&mut buckets, Kind::Tokens, TPM, 10_000_500), 50);
        // Set back by hours: from then on it counts.
        assert_eq!(remaining(&mut buckets, Kind::Tokens, TPM, 1_000), 50);
        assert_eq!(remaining(&mut buckets, Kind::Tokens, TPM, 2_000), 150);
    }

    fn buckets_that_are_full_again_are_forgotten_and_room_is_bounded() {
        let of = |tenant: usize, amount| Ask {
            bucket: BucketId::new(&tenant.to_string(), "m", Kind::Tokens),
            limit: TPM,
            amount,
        };
        let mut buckets = Buckets::default();
        for round in 0..3 {
            for tenant in 0..10_000 {
                buckets.take_all(&[of(tenant + round * 10_000, 10)], round as u64 * 1_000).unwrap();
            }
        }
        assert!(buckets.len() <= 20_000, "{}", buckets.len());

        let mut small = Buckets::with_room(2);
        let start = 1_000_000;
        for (tenant, amount) in [(0, 30), (1, 60)] {
            small.take_all(&[of(tenant, amount)], start).unwrap();
        }
        let refused = |small: &mut Buckets, now_ms| small.take_all(&[of(2, 10)], now_ms).map_err(|refusal| refusal.why);
        assert_eq!(refused(&mut small, start + 299), Err(Why::TableFull));
        assert!(small.take_all(&[of(1, 1)], start + 299).is_ok());
        // One is full again, but it has just been looked at.
        assert_eq!(refused(&mut small, start + 300), Err(Why::TableFull));
        assert!(refused(&mut small, start + 549).is_ok());
        assert_eq!(small.len(), 2);
    }

    fn a_new_owner_takes_over_what_is_held_and_the_lowest_balance_told() {
        let mut old = Buckets::default();
        let asks = [ask(Kind::Tokens, TPM, 1_000), ask(Kind::Concurrency, 5, 1), ask(Kind::Requests, 60, 1)];
        let first = old.take_all(&asks, 0).unwrap();
        let second = old.take_all(&asks, 10).unwrap();

        let mut new = Buckets::default();
        for (levels, at_ms) in [(&second, 10), (&first, 0)] {
            for level in levels {
                new.restore(level, at_ms, 1_000);
            }
            new.take_over(&asks, 1_000);
        }
        // Balances are told in whole tokens.
        assert_eq!(remaining(&mut new, Kind::Tokens, TPM, 1_000), remaining(&mut old, Kind::Tokens, TPM, 1_000));
        assert_eq!(remaining(&mut new, Kind::Requests, 60, 1_000), 58);
        assert_eq!(remaining(&mut new, Kind::Concurrency, 5, 1_000), 3);
        // What is full again is not remembered; nor is a balance above the limit believed.
        let mut late = Buckets::default();
        late.restore(&first[0], 0, 60_000);
        late.restore(&Level { balance: i64::MAX, ..first[0] }, 0, 0);
        assert_eq!(remaining(&mut late, Kind::Tokens, TPM, 60_000), 6_000);
    }

    fn an_engine_that_reports_nonsense_locks_no_tenant_out() {
        let mut buckets = Buckets::default();
        let asks = [ask(Kind::Tokens, 1_000_000, 10)];
        buckets.take_all(&asks, 0).unwrap();
        buckets.settle(&asks, u64::MAX, 0);
        // 2^32 tokens at a million a minute.
        assert!(buckets.level(&asks[0], 0).reset_ms < 3 * 24 * 3_600_000);
    }

    fn asks_and_levels_travel_and_any_cut_is_an_error() {
        let asks = Kind::ALL.map(|kind| ask(kind, 7, 9));
        let levels = asks.map(|ask| Level { bucket: ask.bucket, limit: 7, balance: -3, reset_ms: 5 });
        let mut writer = Writer::new();
        Ask::write_all(&asks, &mut writer);
        Level::write_all(&levels, &mut writer);
        let bytes = writer.into_bytes();
        let read = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes);
            let both = (Ask::read_all(&mut reader)?, Level::read_all(&mut reader)?);
            reader.finish().map(|()| both)
        };
        assert_eq!(read(&bytes).unwrap(), (asks.to_vec(), levels.to_vec()));
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "{cut}");
        }
        assert!(Ask::read_all(&mut Reader::new(&[5])).is_err());
    }
}
