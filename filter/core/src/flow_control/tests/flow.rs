//! Queues, limits, budgets, leases, eviction: one thing at a time.

use super::fleet::{FOR_EVER, Fate, Fleet, control, endpoint, request};
use crate::flow_control::protocol::{DropReason, PoolKey, Refused, Request, Usage};
use crate::flow_control::worker::{Event, TimeToLive};
use crate::quota::{Ask, BucketId, Kind};
use warmroute_shared_state::policy::flow::Band;
use warmroute_shared_state::policy::plugin::{Fairness, Ordering, UsageLimit};

fn fifo(places: u64) -> Fleet {
    Fleet::new(4, control(places, Fairness::GlobalStrict))
}

fn fill(fleet: &mut Fleet, places: usize) {
    for n in 0..places {
        fleet.send(n % 4, &format!("old{n}"), request("old", 0, 0));
    }
    assert_eq!(fleet.went().len(), places);
}

fn rpm(limit: u64) -> Vec<Ask> {
    vec![Ask { bucket: BucketId::new("t", "*", Kind::Requests), limit, amount: 1 }]
}

fn refused(fates: &[(String, Fate)]) -> usize {
    fates.iter().filter(|(_, fate)| matches!(fate, Fate::Refused(_))).count()
}

crate::tests! {
    fn what_frees_a_place_lets_the_next_one_go_at_once() {
        let mut fleet = fifo(2);
        fill(&mut fleet, 2);
        for n in 0..5 {
            fleet.send(n % 4, &format!("n{n}"), request("x", 0, n as u64));
        }
        assert_eq!(fleet.went(), [""; 0]);
        fleet.cancel("n0");
        fleet.release("old0");
        assert_eq!(fleet.went(), ["n1"]);
        fleet.endpoints.push(endpoint(2));
        fleet.configure();
        fleet.settle();
        assert_eq!(fleet.went(), ["n2", "n3"], "another endpoint has two places");
        fleet.release("n1");
        assert_eq!(fleet.went(), ["n4"]);
        assert_eq!(fleet.counted(), (4, 0));
    }

    fn orderings_decide_within_the_queue() {
        for (ordering, expected) in [
            (Ordering::FirstCome, ["a", "b", "c"]),
            (Ordering::EarliestDeadline, ["b", "c", "a"]),
            (Ordering::SloDeadline, ["c", "a", "b"]),
        ] {
            let mut config = control(1, Fairness::GlobalStrict);
            config.bands[0].limits.ordering = ordering;
            let mut fleet = Fleet::new(2, config);
            fill(&mut fleet, 1);
            for (n, (name, deadline_ms, slo_ms)) in
                [("a", 900, 200), ("b", 700, 300), ("c", 800, 100)].into_iter().enumerate()
            {
                let request = Request { deadline_ms, slo_ms, ..request("x", 0, n as u64) };
                fleet.send(n % 2, name, request);
            }
            fleet.release("old0");
            fleet.release(expected[0]);
            fleet.release(expected[1]);
            assert_eq!(fleet.went(), expected, "{ordering:?}");
        }
    }

    fn a_full_queue_refuses_by_requests_and_bytes_of_the_band_and_of_all() {
        type Limit = fn(&mut crate::flow_control::tests::fleet::Fleet);
        let limits: [Limit; 4] = [
            |fleet| fleet.control.max_requests = 2,
            |fleet| fleet.control.max_bytes = 299,
            |fleet| fleet.control.bands[0].limits.max_requests = 2,
            |fleet| fleet.control.bands[0].limits.max_bytes = 200,
        ];
        for limit in limits {
            let mut fleet = fifo(1);
            fill(&mut fleet, 1);
            limit(&mut fleet);
            fleet.configure();
            for n in 0..3 {
                fleet.send(n, &format!("n{n}"), request("x", 0, n as u64));
            }
            assert_eq!(fleet.take_fates(), [("n2".to_owned(), Fate::Refused(DropReason::Saturated))]);
            assert_eq!((fleet.parked(), fleet.counted()), (2, (1, 2)));
            fleet.endpoints.clear();
            fleet.configure();
            fleet.send(0, "n3", request("x", 0, 9));
            assert_eq!(fleet.take_fates(), [("n3".to_owned(), Fate::Refused(DropReason::NoEndpoints))]);
        }
    }

    fn the_times_to_live_are_kept_with_and_without_endpoints() {
        let mut fleet = fifo(1);
        fill(&mut fleet, 1);
        let ttl = TimeToLive { request_ms: 1000, no_endpoint_ms: 3000 };
        let now_ms = fleet.now_ms;
        fleet.send_with(0, "a", request("x", 0, now_ms), ttl);
        fleet.pass(950);
        assert_eq!(fleet.take_fates(), []);
        fleet.pass(50);
        assert_eq!(fleet.take_fates(), [("a".to_owned(), Fate::Refused(DropReason::TtlExpired))]);
        let now_ms = fleet.now_ms;
        fleet.send_with(0, "b", request("x", 0, now_ms), ttl);
        fleet.pass(500);
        fleet.endpoints.clear();
        fleet.configure();
        fleet.pass(3000);
        assert_eq!(fleet.take_fates(), [], "counted from when the pool became empty");
        fleet.pass(100);
        assert_eq!(fleet.take_fates(), [("b".to_owned(), Fate::Refused(DropReason::TtlNoEndpoints))]);
        assert_eq!(fleet.counted(), (1, 0));
    }

    fn an_unknown_priority_waits_in_band_0_and_an_objectives_in_its_own() {
        let mut fleet = fifo(1);
        fleet.objectives = vec![5];
        fleet.configure();
        fill(&mut fleet, 1);
        fleet.send(0, "unknown", request("x", 100, 1));
        fleet.send(1, "zero", request("x", 0, 0));
        fleet.send(2, "five", request("x", 5, 2));
        fleet.release("old0");
        fleet.release("five");
        fleet.release("zero");
        assert_eq!(fleet.went(), ["five", "zero", "unknown"]);
    }

    fn a_ceiling_holds_a_place_back_for_the_higher_band() {
        let mut config = control(4, Fairness::GlobalStrict);
        config.bands.push(Band { priority: 9, limits: config.default_band.clone() });
        config.usage_limit =
            UsageLimit::PriorityHoldback { by_value: false, min_ceiling: 0.5, max_ceiling: 1.0 };
        let mut fleet = Fleet::new(4, config);
        for n in 0..4 {
            fleet.send(n, &format!("low{n}"), request("x", 0, n as u64));
        }
        assert_eq!(fleet.went(), ["low0", "low1"]);
        for n in 0..3 {
            fleet.send(n, &format!("high{n}"), request("x", 9, 10));
        }
        assert_eq!(fleet.went(), ["high0", "high1"]);
        // The highest band is blocked: nothing below it goes, either.
        fleet.release("high0");
        assert_eq!(fleet.went(), ["high2"]);
    }

    fn lower_priorities_in_flight_are_ended_for_higher_ones_that_wait() {
        let mut config = control(3, Fairness::GlobalStrict);
        config.bands.push(Band { priority: -1, limits: config.default_band.clone() });
        config.eviction = true;
        let mut fleet = Fleet::new(2, config);
        for n in 0..2 {
            fleet.now_ms += 1;
            fleet.send(n, &format!("batch{n}"), request("x", -1, 0));
        }
        fleet.send(0, "zero", request("x", 0, 0));
        fleet.take_fates();
        fleet.send(1, "high", request("y", 0, 0));
        assert_eq!(fleet.take_fates(), [("batch1".to_owned(), Fate::Evicted)], "the newest");
        fleet.pass(200);
        assert_eq!(fleet.take_fates(), [], "it waits until the victim has ended");
        fleet.release("batch1");
        assert_eq!(fleet.went(), ["high"]);
        fleet.send(1, "more", request("y", 0, 0));
        fleet.pass(400);
        assert_eq!(fleet.take_fates(), []);
        fleet.pass(150);
        assert_eq!(fleet.take_fates(), [("batch0".to_owned(), Fate::Evicted)]);
    }

    fn a_budget_for_five_admits_five_of_fifty_over_four_workers() {
        let mut fleet = fifo(1000);
        for n in 0..50 {
            let request = Request { budgets: rpm(5), ..request("t", 0, 0) };
            fleet.send_with(n % 4, &format!("n{n}"), request, FOR_EVER);
        }
        fleet.settle();
        let fates = fleet.take_fates();
        assert_eq!((fates.len(), refused(&fates)), (50, 45));
        let reason = fates.iter().find_map(|(_, fate)| match fate {
            Fate::Refused(reason) => Some(*reason),
            _ => None,
        });
        assert_eq!(reason, Some(DropReason::Budget));
        let retry = fleet.events.iter().find_map(|(_, event)| match event {
            Event::Refused { refused: Refused::Budget(refusal), .. } => Some(refusal.why),
            _ => None,
        });
        assert_eq!(retry, Some(crate::quota::Why::Short { retry_after_ms: 12_000 }));
        assert_eq!(fleet.held(), 5);
    }

    fn while_a_tenant_has_plenty_its_requests_make_no_round_trip_and_no_limit_is_exceeded() {
        let mut fleet = fifo(1000);
        let asks = [
            Ask { bucket: BucketId::new("t", "*", Kind::Concurrency), limit: 200, amount: 1 },
            Ask { bucket: BucketId::new("t", "*", Kind::Tokens), limit: 1_000_000, amount: 100 },
        ];
        let with = || Request { budgets: asks.to_vec(), ..request("t", 0, 0) };
        for n in 0..4 {
            fleet.send(n, &format!("first{n}"), with());
        }
        fleet.take_fates();
        for n in 0..8 {
            let name = format!("next{n}");
            fleet.send_with(n % 4, &name, with(), FOR_EVER);
            assert_eq!(fleet.went(), [name.as_str()], "at once");
            fleet.settle();
        }
        // All at once: what is lent to others is wanted back before anybody is refused.
        for n in 0..300 {
            fleet.send_with(n % 2, &format!("n{n}"), with(), FOR_EVER);
        }
        fleet.settle();
        let fates = fleet.take_fates();
        assert_eq!((fates.len(), refused(&fates), fleet.held()), (300, 112, 200));
        let now_ms = fleet.now_ms;
        let level = fleet.dispatcher().budgets().level(&asks[1], now_ms);
        assert_eq!(level.remaining(), 1_000_000 - 200 * 100, "nothing is lent any more");
    }

    fn what_was_lent_and_not_used_comes_back() {
        let mut fleet = fifo(1000);
        let asks = rpm(6000);
        let request = Request { budgets: asks.clone(), ..request("t", 0, 0) };
        fleet.send(0, "a", request);
        let now_ms = fleet.now_ms;
        let left = fleet.dispatcher().budgets().level(&asks[0], now_ms).remaining();
        assert_eq!(left, 6000 - 1 - 16);
        fleet.pass(1000);
        let now_ms = fleet.now_ms;
        let left = fleet.dispatcher().budgets().level(&asks[0], now_ms).remaining();
        assert_eq!(left, 6000, "all but the one that went, which a second gives back");
    }

    fn a_budget_is_shown_with_what_was_lent_to_the_worker_itself() {
        let mut fleet = Fleet::new(1, control(1000, Fairness::GlobalStrict));
        let ask = Ask { bucket: BucketId::new("t", "*", Kind::Tokens), limit: 60_000, amount: 1000 };
        let remaining = |fleet: &Fleet| fleet.workers[0].1.levels(&[ask])[0].remaining();
        let mut expected = 60_000;
        for n in 0..20 {
            let name = format!("n{n}");
            fleet.send(0, &name, Request { budgets: vec![ask], ..request("t", 0, 0) });
            assert_eq!(remaining(&fleet), expected - 1000, "reserved");
            fleet.release_with(&name, Usage { prompt: 100, completion: 50 }, Some(150));
            fleet.settle();
            expected -= 150;
            assert_eq!(remaining(&fleet), expected, "exactly what was used");
        }
    }

    fn budgets_without_flow_control_are_kept_as_well() {
        let mut fleet = fifo(1);
        let ask = Ask { bucket: BucketId::new("t", "*", Kind::Concurrency), limit: 2, amount: 1 };
        let free = || Request { pool: PoolKey::NONE, budgets: vec![ask], ..request("t", 0, 0) };
        for n in 0..3 {
            fleet.send(n, &format!("n{n}"), free());
        }
        assert_eq!(fleet.went(), ["n0", "n1"]);
        fleet.release("n0");
        fleet.send(3, "n3", free());
        assert_eq!(fleet.went(), ["n3"]);
    }

    fn a_request_that_waits_has_its_budgets_and_gives_them_back_if_it_leaves() {
        let mut fleet = fifo(1);
        fill(&mut fleet, 1);
        let asks = rpm(5);
        let with = |n| Request { budgets: asks.clone(), ..request("t", 0, n) };
        for n in 0..6 {
            fleet.send(n % 4, &format!("n{n}"), with(n as u64));
        }
        assert_eq!(fleet.take_fates(), [("n5".to_owned(), Fate::Refused(DropReason::Budget))]);
        fleet.cancel("n4");
        fleet.settle();
        fleet.send(0, "n6", with(6));
        assert_eq!(fleet.take_fates(), [], "there is room again");
        let now_ms = fleet.now_ms;
        assert_eq!(fleet.dispatcher().budgets().level(&asks[0], now_ms).remaining(), 0);
        for n in [0, 1, 2, 3, 6] {
            fleet.cancel(&format!("n{n}"));
        }
        fleet.settle();
        assert!(fleet.dispatcher().budgets().is_empty());
    }

    fn while_nothing_waits_no_round_trip_is_made() {
        let mut fleet = fifo(1000);
        fleet.pass(2000);
        for n in 0..2000 {
            let (name, now_ms) = (format!("n{n}"), fleet.now_ms);
            fleet.send_with(n % 4, &name, request("x", 0, now_ms), FOR_EVER);
            assert_eq!(fleet.went(), [name.as_str()], "at once");
            fleet.settle();
            fleet.release(&name);
            fleet.pass(1);
        }
        assert_eq!(fleet.counted(), (0, 0));
    }

    fn leases_never_let_more_go_than_there_are_places() {
        let mut fleet = fifo(200);
        fleet.pass(300);
        // All at once, before any message is read.
        for n in 0..800 {
            fleet.send_with(n % 4, &format!("n{n}"), request("x", 0, 1), FOR_EVER);
        }
        assert!(fleet.held() > 0, "some were leased");
        fleet.settle();
        assert_eq!(fleet.held(), 200);
        let went = fleet.went();
        assert_eq!(went.len(), 200);
        went.iter().for_each(|name| fleet.release(name));
        assert_eq!((fleet.went().len(), fleet.held(), fleet.parked()), (200, 200, 400));
    }

    fn ten_thousand_queued_and_cancelled_leave_nothing_behind() {
        let mut config = control(1, Fairness::RoundRobin);
        config.bands[0].limits.max_requests = 20_000;
        let mut fleet = Fleet::new(4, config);
        fill(&mut fleet, 1);
        for n in 0..10_000 {
            let request = Request { budgets: rpm(1_000_000), ..request(&format!("f{}", n % 100), 0, 1) };
            fleet.send_with(n % 4, &format!("n{n}"), request, FOR_EVER);
        }
        fleet.settle();
        assert_eq!(fleet.counted(), (1, 10_000));
        for n in 0..10_000 {
            fleet.cancel(&format!("n{n}"));
        }
        fleet.settle();
        fleet.release("old0");
        assert_eq!((fleet.counted(), fleet.parked(), fleet.held()), ((0, 0), 0, 0));
        assert_eq!(fleet.dispatcher().flows().len(), 0);
        assert!(fleet.dispatcher().budgets().is_empty());
    }
}
