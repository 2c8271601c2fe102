//! Who of the scored is picked.

use super::*;
use serde_json::json;

fn best(candidates: &[Candidate<'_>], blocks: usize) -> (u64, PickReason) {
    let decision = decide(&Scheduler::default(), &request(blocks, &[]), candidates).unwrap();
    (decision.primary.ranked[0].0, decision.reason)
}

/// How often each of `N` is picked in 8,000.
fn counts<const N: usize>(scheduler: &Scheduler, candidates: &[Candidate<'_>]) -> [u32; N] {
    let (mut random, state) = (random(), SchedulerState::default());
    let mut counts = [0; N];
    for _ in 0..8000 {
        let request = request(0, &[]);
        let decision = schedule(scheduler, &request, candidates, &state, 0, &mut random).unwrap();
        counts[usize::try_from(decision.primary.ranked[0].0).unwrap()] += 1;
    }
    counts
}

crate::tests! {
    fn the_default_profile_weighs_as_documented() {
        // prefix 3 outweighs one waiting request (queue 2) only above two thirds of a match.
        let hit = |matched| Candidate { matched_blocks: matched, waiting: Some(1.0), ..idle(1) };
        assert_eq!(best(&[idle(0), hit(9)], 10), (1, PickReason::Prefix));
        assert_eq!(best(&[idle(0), hit(6)], 10), (0, PickReason::LoadOverPrefix));
        assert_eq!(best(&[idle(0), hit(0)], 10), (0, PickReason::Load));
    }

    fn a_full_endpoint_loses_to_a_free_one() {
        let full = Candidate { kv_usage: Some(0.95), ..idle(0) };
        assert_eq!(best(&[full, idle(1)], 0).0, 1);
    }

    fn equal_scores_go_to_the_least_uncached_work() {
        let busy = Candidate { uncached_tokens: 7000, ..idle(0) };
        let less = Candidate { uncached_tokens: 200, ..idle(1) };
        assert_eq!(counts(&Scheduler::default(), &[busy, less]), [0, 8000]);
    }

    fn an_engine_that_lacks_next_to_nothing_of_the_prompt_gets_its_turn() {
        // Of a prompt of 100 blocks: 1 counts 0.03 of the best score of 4.03, which is less than its hundredth.
        for (matched, expected) in [(1, 1), (2, 0)] {
            let warm = Candidate { matched_blocks: matched, uncached_tokens: 200, ..idle(0) };
            assert_eq!(best(&[warm, idle(1)], 100).0, expected, "{matched}");
        }
    }

    fn ties_are_spread_by_chance() {
        let counts: [u32; 4] = counts(&Scheduler::default(), &[idle(0), idle(1), idle(2), idle(3)]);
        assert!(counts.iter().all(|n| (1850..2150).contains(n)), "{counts:?}");
    }

    fn the_random_picker_does_not_care_for_scores() {
        let scheduler = single(&[
            ("kv-cache-utilization-scorer", Value::Null, 5.0),
            ("random-picker", Value::Null, 1.0),
        ]);
        let full = Candidate { kv_usage: Some(1.0), ..idle(0) };
        let counts: [u32; 2] = counts(&scheduler, &[full, idle(1)]);
        assert!(counts.iter().all(|n| (3800..4200).contains(n)), "{counts:?}");
    }

    fn the_weighted_picker_draws_in_proportion_even_to_small_scores() {
        for weight in [1.0, 0.0001] {
            let scheduler = single(&[
                ("kv-cache-utilization-scorer", Value::Null, weight),
                ("weighted-random-picker", Value::Null, 1.0),
            ]);
            let kv = |n, usage| Candidate { kv_usage: Some(usage), ..idle(n) };
            // Scores 0.75, 0.25, 0.
            let counts: [u32; 3] = counts(&scheduler, &[kv(0, 0.25), kv(1, 0.75), kv(2, 1.0)]);
            assert!((5800..6200).contains(&counts[0]) && counts[2] == 0, "{weight}: {counts:?}");
        }
        let nothing = single(&[("weighted-random-picker", Value::Null, 1.0)]);
        let counts: [u32; 2] = counts(&nothing, &[idle(0), idle(1)]);
        assert!(counts.iter().all(|n| (3800..4200).contains(n)), "{counts:?}");
    }

    fn fallbacks_are_ranked_and_more_if_the_picker_names_more() {
        let all = [3u8, 0, 5, 1, 4, 2]
            .map(|n| Candidate { waiting: Some(f32::from(n)), ..idle(n.into()) });
        for (most, expected) in [(0, 3), (1, 3), (2, 2), (5, 5), (9, 6)] {
            let scheduler = single(&[
                ("queue-scorer", Value::Null, 1.0),
                ("max-score-picker", json!({"maxNumOfEndpoints": most}), 1.0),
            ]);
            let decision = decide(&scheduler, &request(0, &[]), &all).unwrap();
            let expected: Vec<_> = (0..expected).map(EndpointId).collect();
            assert_eq!(decision.primary.ranked, expected, "{most}");
        }
    }

    fn nobody_to_pick_is_an_error_of_its_own() {
        let nobody = decide(&Scheduler::default(), &request(3, &[]), &[]);
        assert_eq!(nobody, Err(SchedulingError::NoCandidate));
        let none_left = decide(&single(&[("prefill-filter", Value::Null, 1.0)]), &request(3, &[]), &[idle(0)]);
        assert_eq!(none_left, Err(SchedulingError::NoneLeft { profile: "default".into() }));
        let no_profile = scheduler(Vec::new(), Handler::Single);
        assert_eq!(decide(&no_profile, &request(3, &[]), &[idle(0)]), Err(SchedulingError::NoProfile));
    }
}
