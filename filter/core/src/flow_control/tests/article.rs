//! The timeline of the article's section 5.4: the pool is full, and each tick frees one place.

use super::fleet::{FOR_EVER, Fate, Fleet, control, request};
use crate::flow_control::protocol::DropReason;
use crate::flow_control::worker::TimeToLive;
use warmroute_shared_state::policy::flow::Band;
use warmroute_shared_state::policy::plugin::Fairness;

const TICK_MS: u64 = 1000;

/// Who comes; what happens; who waits afterwards of A, B, C and D.
type Tick = (&'static [&'static str], Vec<(String, Fate)>, [u64; 4]);

fn queues(fleet: &mut Fleet) -> [u64; 4] {
    let mut counts = [0; 4];
    for ((_, _, flow), view) in fleet.dispatcher().flows() {
        if let Some(at) = ["A", "B", "C", "D"].iter().position(|name| *name == flow) {
            counts[at] += view.waiting;
        }
    }
    counts
}

crate::tests! {
    fn the_timeline_is_as_in_the_article() {
        let mut config = control(10, Fairness::RoundRobin);
        let mut limits = config.default_band.clone();
        config.bands.push(Band { priority: 100, limits: limits.clone() });
        limits.max_requests = 2;
        config.bands.push(Band { priority: -10, limits });
        let mut fleet = Fleet::new(4, config);
        for n in 0..10 {
            fleet.send(n % 4, &format!("old{n}"), request("old", 100, 0));
        }
        assert_eq!(fleet.went().len(), 10);

        let ttl = TimeToLive { request_ms: 8 * TICK_MS, ..FOR_EVER };
        let rejected = |name: &str, reason| (name.to_owned(), Fate::Refused(reason));
        let went = |name: &str| (name.to_owned(), Fate::Went);
        let ticks: [Tick; 10] = [
            (
                &["A1", "A2", "B1", "B2", "B3", "C1", "D1", "D2", "D3"],
                vec![rejected("D3", DropReason::Saturated)],
                [2, 3, 1, 2],
            ),
            (&[], vec![went("A1")], [1, 3, 1, 2]),
            (&["B4"], vec![went("A2")], [0, 4, 1, 2]),
            (&[], vec![went("B1")], [0, 3, 1, 2]),
            (&[], vec![went("C1")], [0, 3, 0, 2]),
            (&["A3"], vec![went("A3")], [0, 3, 0, 2]),
            (&[], vec![went("B2")], [0, 2, 0, 2]),
            (&[], vec![went("B3")], [0, 1, 0, 2]),
            (
                &[],
                vec![
                    went("B4"),
                    rejected("D1", DropReason::TtlExpired),
                    rejected("D2", DropReason::TtlExpired),
                ],
                [0, 0, 0, 0],
            ),
            (&["E1"], vec![went("E1")], [0, 0, 0, 0]),
        ];
        let start_ms = fleet.now_ms;
        for (tick, (arrivals, fates, waiting)) in ticks.into_iter().enumerate() {
            let now_ms = start_ms + tick as u64 * TICK_MS;
            // The workers' heartbeats go on in between.
            fleet.pass(now_ms - 1 - fleet.now_ms.min(now_ms - 1));
            fleet.now_ms = now_ms;
            for name in arrivals {
                let priority = match &name[..1] {
                    "A" => 100,
                    "D" => -10,
                    _ => 0,
                };
                // Of one moment, a worker's own order counts: each tenant has its own.
                let worker = usize::from(name.as_bytes()[0] - b'A') % 4;
                fleet.send_with(worker, name, request(&name[..1], priority, now_ms), ttl);
                fleet.settle();
            }
            if tick > 0 {
                fleet.release(&format!("old{}", tick - 1));
            }
            fleet.tick();
            fleet.settle();
            assert_eq!(fleet.take_fates(), fates, "tick {tick}");
            assert_eq!(queues(&mut fleet), waiting, "tick {tick}");
        }
    }
}
