//! What the dispatcher shows of flows and budgets.

use super::fleet::{Fate, Fleet, POOL, control, request};
use crate::flow_control::dispatcher::FlowView;
use crate::flow_control::protocol::{DropReason, PoolKey, Request};
use crate::quota::{Ask, BucketId, Kind};
use std::cmp::Reverse;
use warmroute_shared_state::policy::plugin::Fairness;

fn view(waiting: u64, in_flight: u64) -> FlowView {
    FlowView { waiting, waiting_bytes: waiting * 100, in_flight, in_flight_tokens: in_flight * 10 }
}

crate::tests! {
    fn flows_are_told_by_pool_band_and_fairness_id() {
        let mut fleet = Fleet::new(2, control(2, Fairness::RoundRobin));
        fleet.objectives = vec![9];
        fleet.configure();
        fleet.send(0, "a0", request("a", 9, 0));
        // There is no band of this priority.
        fleet.send(1, "b0", request("b", 5, 0));
        for n in 1..4 {
            fleet.send(n % 2, &format!("b{n}"), request("b", 0, 0));
        }
        fleet.send(0, "a1", request("a", 9, 0));
        let ask = Ask { bucket: BucketId::new("t", "*", Kind::Concurrency), limit: 2, amount: 1 };
        let free = Request { pool: PoolKey::NONE, budgets: vec![ask], ..request("t", 3, 0) };
        fleet.send(0, "free", free);
        let flows: Vec<_> = fleet.dispatcher().flows().into_iter().collect();
        let expected = [
            ((PoolKey::NONE, Reverse(3), "t"), view(0, 1)),
            ((POOL, Reverse(9), "a"), view(1, 1)),
            ((POOL, Reverse(0), "b"), view(3, 1)),
        ];
        assert_eq!(flows, expected);
    }

    fn what_workers_were_lent_and_have_not_used_is_left() {
        let mut fleet = Fleet::new(2, control(100, Fairness::RoundRobin));
        let ask = Ask { bucket: BucketId::new("t", "*", Kind::Requests), limit: 1000, amount: 1 };
        let with_budget = || Request { budgets: vec![ask], ..request("t", 0, 0) };
        for n in 0..5 {
            fleet.send(0, &format!("n{n}"), with_budget());
        }
        let now_ms = fleet.now_ms;
        let dispatcher = fleet.dispatcher();
        assert!(dispatcher.budgets().level(&ask, now_ms).balance < 995, "something is lent");
        assert_eq!(dispatcher.remaining(&ask, now_ms), 995);
        let unused = Ask { bucket: BucketId::new("u", "*", Kind::Requests), ..ask };
        assert_eq!(dispatcher.remaining(&unused, now_ms), 1000);
        let large = Ask { amount: 1001, ..ask };
        fleet.send(0, "large", Request { budgets: vec![large], ..request("t", 0, 0) });
        assert!(fleet.take_fates().contains(&("large".to_owned(), Fate::Refused(DropReason::Budget))));
        assert_eq!(fleet.dispatcher().remaining(&ask, now_ms), 995);
    }
}
