//! VMs that trap, messages that are lost.

use super::fleet::{FOR_EVER, Fate, Fleet, control, request};
use crate::flow_control::protocol::{DropReason, Request, Usage};
use crate::quota::{Ask, BucketId, Kind};
use warmroute_shared_state::policy::flow::FlowControl;
use warmroute_shared_state::policy::plugin::Fairness;

fn full(places: usize, waiting: usize) -> Fleet {
    let mut fleet = Fleet::new(4, control(places as u64, Fairness::GlobalStrict));
    for n in 0..places + waiting {
        fleet.send(n % 4, &format!("n{n}"), request("x", 0, n as u64));
    }
    assert_eq!(fleet.went().len(), places);
    fleet
}

/// One worker, one place, which is taken, and two bands.
fn two_bands() -> Fleet {
    let mut fleet = Fleet::new(1, control(1, Fairness::GlobalStrict));
    fleet.objectives = vec![7];
    fleet.configure();
    fleet.send(0, "running", request("x", 0, 0));
    assert_eq!(fleet.went(), ["running"]);
    fleet
}

crate::tests! {
    fn a_lost_workers_places_are_free_after_a_second_and_a_half() {
        let mut fleet = full(4, 8);
        fleet.lose_worker(0);
        fleet.pass(1000);
        assert_eq!(fleet.went(), [""; 0]);
        fleet.pass(800);
        assert_eq!(fleet.went(), ["n5"], "n4 was the lost worker's, too");
        assert_eq!(fleet.counted(), (4, 5));
    }

    fn a_new_dispatcher_learns_all_and_lets_nobody_go_twice_or_too_many() {
        let mut fleet = full(4, 8);
        fleet.start_dispatcher();
        assert!(!fleet.dispatcher().is_open());
        fleet.settle();
        assert!(fleet.dispatcher().is_open(), "all have announced themselves");
        assert_eq!((fleet.went().len(), fleet.counted()), (0, (4, 8)));
        for n in 0..4 {
            fleet.release(&format!("n{n}"));
        }
        assert_eq!(fleet.went(), ["n4", "n5", "n6", "n7"]);
    }

    fn of_what_a_new_dispatcher_learns_the_higher_band_goes_first() {
        let mut fleet = two_bands();
        fleet.send(0, "low", request("x", 0, 1));
        fleet.send(0, "high", request("x", 7, 2));
        fleet.start_dispatcher();
        fleet.release("running");
        assert_eq!(fleet.went(), ["high"]);
    }

    fn of_an_announcement_the_higher_band_goes_first() {
        let mut fleet = two_bands();
        fleet.send_with(0, "low", request("x", 0, 1), FOR_EVER);
        fleet.lose_message(true);
        fleet.send_with(0, "high", request("x", 7, 2), FOR_EVER);
        fleet.release("running");
        assert_eq!(fleet.went(), ["high"]);
    }

    fn of_an_announcement_that_is_too_long_the_last_are_refused() {
        let mut fleet = Fleet::new(1, FlowControl { max_requests: 2, ..control(1, Fairness::GlobalStrict) });
        fleet.send(0, "running", request("x", 0, 0));
        fleet.went();
        fleet.send_with(0, "n1", request("x", 0, 1), FOR_EVER);
        fleet.lose_message(true);
        for n in 2..5 {
            fleet.send_with(0, &format!("n{n}"), request("x", 0, n), FOR_EVER);
        }
        fleet.settle();
        let refused = |name: &str| (name.to_owned(), Fate::Refused(DropReason::Saturated));
        assert_eq!(fleet.take_fates(), [refused("n4"), refused("n3")]);
        assert_eq!(fleet.counted(), (1, 2));
    }

    fn a_new_dispatcher_waits_for_a_silent_worker_no_longer_than_its_opening() {
        let mut fleet = full(4, 4);
        fleet.dispatcher = None;
        fleet.settle();
        let silent = fleet.workers.remove(0);
        fleet.workers.insert(0, silent);
        fleet.start_dispatcher();
        // Its announcement does not come.
        let lost = fleet.workers.remove(3);
        fleet.settle();
        fleet.release("n0");
        fleet.pass(550);
        assert_eq!(fleet.went(), [""; 0]);
        fleet.pass(100);
        assert_eq!(fleet.went(), ["n4", "n5"], "n0's place, and one that is not known to be taken");
        // It was only slow: what it holds counts from now on.
        fleet.workers.push(lost);
        fleet.pass(300);
        assert_eq!(fleet.counted(), (5, 2));
        fleet.release("n1");
        assert_eq!(fleet.went(), [""; 0]);
        fleet.release("n2");
        assert_eq!(fleet.went(), ["n6"]);
    }

    fn budgets_outlive_their_dispatcher() {
        let mut fleet = Fleet::new(4, control(100, Fairness::GlobalStrict));
        let asks = vec![
            Ask { bucket: BucketId::new("t", "*", Kind::Requests), limit: 10, amount: 1 },
            Ask { bucket: BucketId::new("t", "*", Kind::Concurrency), limit: 4, amount: 1 },
        ];
        let with = || Request { budgets: asks.clone(), ..request("t", 0, 0) };
        for n in 0..4 {
            fleet.send(n, &format!("n{n}"), with());
        }
        fleet.start_dispatcher();
        fleet.settle();
        fleet.send(0, "n4", with());
        assert_eq!(fleet.take_fates().last(), Some(&("n4".to_owned(), Fate::Refused(DropReason::Budget))));
        for n in 0..4 {
            fleet.release(&format!("n{n}"));
        }
        for n in 5..15 {
            fleet.send(n % 4, &format!("n{n}"), with());
            fleet.release(&format!("n{n}"));
        }
        let refused = fleet.take_fates().iter().filter(|(_, f)| *f != Fate::Went).count();
        assert_eq!(refused, 4, "6 of 10 were left");
    }

    fn what_the_dispatchers_own_vm_took_of_budgets_is_known_after_its_loss() {
        // What a request reserves and is charged.
        for (kind, limit, amount, charged) in [
            (Kind::Requests, 10, 1, 1),
            // More than a lease has.
            (Kind::Tokens, 1000, 300, 200),
            (Kind::Tokens, 1000, 10, 300),
        ] {
            let mut fleet = Fleet::new(4, control(100, Fairness::GlobalStrict));
            let ask = Ask { bucket: BucketId::new("t", "*", kind), limit, amount };
            // Nobody but the first worker serves the tenant.
            for n in 0..3 {
                let name = format!("n{n}");
                fleet.send(0, &name, Request { budgets: vec![ask], ..request("t", 0, 0) });
                fleet.release_with(&name, Usage { prompt: 5, completion: 5 }, Some(charged));
                fleet.settle();
            }
            assert_eq!(fleet.went().len(), 3);
            fleet.lose_worker(0);
            fleet.start_dispatcher();
            fleet.settle();
            let now_ms = fleet.now_ms;
            let left = fleet.dispatcher().budgets().level(&ask, now_ms).remaining();
            assert!(left <= limit - 3 * charged, "{left} of {limit} after {ask:?}");
        }
    }

    fn a_worker_taken_for_gone_announces_itself_again() {
        let mut fleet = full(4, 4);
        let stalled = fleet.workers.remove(0);
        fleet.pass(1600);
        assert_eq!(fleet.went(), ["n5"]);
        fleet.workers.push(stalled);
        fleet.pass(300);
        assert_eq!((fleet.held(), fleet.counted()), (5, (5, 3)), "what it holds counts again");
    }

    fn a_dispatcher_that_stood_still_takes_nobody_for_gone() {
        let mut fleet = full(4, 4);
        fleet.now_ms += 5000;
        fleet.tick();
        fleet.settle();
        fleet.pass(300);
        assert_eq!((fleet.went().len(), fleet.counted()), (0, (4, 4)));
    }

    fn lost_messages_are_noticed_and_made_good() {
        // Who it was for: an acquire, a release, a grant.
        let mut fleet = full(2, 0);
        fleet.send_with(0, "a", request("x", 0, 9), super::fleet::FOR_EVER);
        fleet.lose_message(true);
        fleet.pass(300);
        assert_eq!(fleet.counted(), (2, 1), "the acquire");
        fleet.release_with("n0", Default::default(), None);
        fleet.lose_message(true);
        fleet.pass(600);
        assert_eq!((fleet.went(), fleet.counted()), (vec!["a".to_owned()], (2, 0)), "the release");
        fleet.send(1, "b", request("x", 0, 10));
        fleet.release_with("n1", Default::default(), None);
        fleet.step_dispatcher();
        fleet.lose_message(false);
        fleet.pass(1000);
        assert_eq!((fleet.went(), fleet.counted()), (vec!["b".to_owned()], (2, 0)), "the grant");
        assert_eq!(fleet.held(), 2);
    }

    fn leases_of_a_lost_dispatcher_are_void() {
        let asks = vec![Ask { bucket: BucketId::new("t", "*", Kind::Concurrency), limit: 200, amount: 1 }];
        for budgets in [Vec::new(), asks] {
            let limited = !budgets.is_empty();
            let with = || Request { budgets: budgets.clone(), ..request("t", 0, 1) };
            let places = if limited { 1000 } else { 200 };
            let mut fleet = Fleet::new(4, control(places, Fairness::GlobalStrict));
            for n in 0..4 {
                fleet.send(n, &format!("first{n}"), with());
            }
            fleet.start_dispatcher();
            fleet.settle();
            for n in 0..300 {
                fleet.send(1 + n % 3, &format!("n{n}"), with());
            }
            for n in 0..10 {
                fleet.send_with(0, &format!("late{n}"), with(), super::fleet::FOR_EVER);
            }
            fleet.settle();
            assert_eq!(fleet.held(), 200, "budgets: {limited}");
        }
    }

    fn a_lost_grant_takes_nothing_twice() {
        let mut fleet = full(1, 0);
        let ask = Ask { bucket: BucketId::new("t", "*", Kind::Tokens), limit: 100, amount: 60 };
        fleet.release("n0");
        fleet.send_with(0, "a", Request { budgets: vec![ask], ..request("t", 0, 0) }, super::fleet::FOR_EVER);
        assert!(fleet.step_dispatcher());
        fleet.lose_message(false);
        fleet.pass(600);
        assert_eq!((fleet.went(), fleet.counted()), (vec!["a".to_owned()], (1, 0)));
        let now_ms = fleet.now_ms;
        assert_eq!(fleet.dispatcher().budgets().level(&ask, now_ms).remaining(), 41, "and 600 ms gave 1 back");
    }
}
