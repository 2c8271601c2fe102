//! Shares of flows that push as hard as they can.

use super::fleet::{Fleet, control, request};
use crate::flow_control::protocol::Usage;
use std::collections::BTreeMap;
use warmroute_shared_state::policy::plugin::{Fairness, ProgramAware};

/// Tokens that each flow got until so many requests were over. `flows`: name, how many wait at any time, tokens as
/// estimated and as used.
fn run(
    fairness: Fairness,
    flows: &[(&str, usize, u64, Usage)],
    mut until: impl FnMut(&BTreeMap<String, (u64, u64)>) -> bool,
) -> BTreeMap<String, (u64, u64)> {
    let mut fleet = Fleet::new(4, control(8, fairness));
    let mut sent = 0usize;
    let mut next = |fleet: &mut Fleet, flow: &str| {
        let (_, _, tokens, _) = flows.iter().find(|(name, ..)| *name == flow).unwrap();
        let request = super::fleet::request(flow, 0, fleet.now_ms);
        sent += 1;
        fleet.send(
            sent % 4,
            &format!("{flow}-{sent}"),
            crate::flow_control::protocol::Request { tokens: *tokens, ..request },
        );
    };
    // Full before anybody comes, so that all of them wait.
    for n in 0..8 {
        fleet.send(n % 4, &format!("old{n}"), request("old", 0, 0));
    }
    for (flow, waiting, ..) in flows {
        (0..*waiting).for_each(|_| next(&mut fleet, flow));
    }
    let mut running: Vec<String> = fleet.went();
    let mut got: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    while !until(&got) {
        // The oldest one ends, and its client sends another one.
        let name = running.remove(0);
        fleet.now_ms += 1;
        let flow = name.split('-').next().unwrap().to_owned();
        let usage = flows.iter().find(|(name, ..)| *name == flow).map(|(.., usage)| *usage);
        if let Some(usage) = usage {
            let count = got.entry(flow.clone()).or_default();
            *count = (count.0 + 1, count.1 + usage.tokens());
            next(&mut fleet, &flow);
        }
        fleet.release_with(&name, usage.unwrap_or_default(), None);
        fleet.settle();
        running.extend(fleet.went());
        assert_eq!(running.len(), 8, "no place stays free");
    }
    got
}

fn three_to_one() -> Fairness {
    Fairness::WeightedToken { weights: vec![("A".into(), 3.0)], default_weight: 1.0 }
}

fn used(prompt: u64, completion: u64) -> Usage {
    Usage { prompt, completion }
}

crate::tests! {
    fn tokens_are_shared_by_weight_however_long_the_prompts_are() {
        // A's estimates are four times too high, B's too low.
        let flows = [("A", 100, 480, used(100, 20)), ("B", 16, 5000, used(6000, 100))];
        let got = run(three_to_one(), &flows, |got| got.get("B").is_some_and(|b| b.0 >= 150));
        let (a, b) = (got["A"].1, got["B"].1);
        let share = a as f64 / (a + b) as f64;
        assert!((share / 0.75 - 1.0).abs() < 0.05, "A's share is {share}");
        assert!(((1.0 - share) / 0.25 - 1.0).abs() < 0.05, "B's share is {}", 1.0 - share);
    }

    fn round_robin_gives_equal_turns() {
        let flows = [("A", 40, 10, used(5, 5)), ("B", 20, 9999, used(9000, 9))];
        let got = run(Fairness::RoundRobin, &flows, |got| got.get("B").is_some_and(|b| b.0 >= 150));
        assert!(got["A"].0.abs_diff(got["B"].0) <= 1, "{got:?}");
    }

    fn while_a_is_idle_b_gets_all() {
        let flows = [("B", 20, 600, used(500, 100))];
        let got = run(three_to_one(), &flows, |got| got.get("B").is_some_and(|b| b.0 >= 100));
        assert_eq!(got.len(), 1);
    }

    fn the_least_service_goes_first() {
        let las = Fairness::ProgramAware(ProgramAware {
            eviction_ttl_seconds: 3600.0,
            las_weight_service: 1.0,
            las_weight_head_wait: 0.0,
            las_half_life_seconds: 0.0,
        });
        let flows = [("A", 40, 10, used(100, 0)), ("B", 40, 10, used(0, 100))];
        let got = run(las, &flows, |got| got.values().map(|g| g.0).sum::<u64>() >= 300);
        // Completion tokens count twice.
        let ratio = got["A"].0 as f64 / got["B"].0 as f64;
        assert!((ratio - 2.0).abs() < 0.15, "{got:?}");
    }
}
