//! What scorers give, beyond llm-d's vectors: signals that engines did not report, ranges, sessions, LRU.

use super::*;
use serde_json::json;

fn waiting(values: &[Option<f32>]) -> Vec<Candidate<'static>> {
    let each = (0u64..).zip(values);
    each.map(|(n, waiting)| Candidate { waiting: *waiting, ..candidate(n) }).collect()
}

crate::tests! {
    fn an_endpoint_without_a_signal_is_neither_best_nor_worst() {
        let all = waiting(&[Some(0.0), None, Some(10.0)]);
        assert_eq!(scores("queue-scorer", Value::Null, 0, &all), [1.0, 0.5, 0.0]);
        assert_eq!(scores("queue-scorer", Value::Null, 0, &waiting(&[None, None])), [1.0, 1.0]);
        assert_eq!(scores("load-aware-scorer", json!({"threshold": 10}), 0, &all), [0.5, 0.25, 0.0]);
        let running = |value| Candidate { running: value, ..candidate(0) };
        let all = [running(Some(8.0)), running(None), running(Some(2.0)), running(Some(f32::NAN))];
        assert_eq!(scores("running-requests-size-scorer", Value::Null, 0, &all), [0.0, 0.5, 1.0, 0.5]);
        let kv = |value| Candidate { kv_usage: value, ..candidate(0) };
        let all = [kv(Some(0.8)), kv(Some(0.2)), kv(None), kv(Some(1.5)), kv(Some(f32::NAN))];
        // Neutral is the mean of the known: (0.8 + 0.2 + 1.5) / 3.
        let expected = [0.2, 0.8, 0.167, 0.0, 0.167];
        assert_eq!(scores("kv-cache-utilization-scorer", Value::Null, 0, &all), expected);
    }

    fn engines_that_say_nothing_of_adapters_are_neutral() {
        let (loaded, full) = (adapters(&["lora-a"], &[], 1), adapters(&["lora-b"], &[], 1));
        let all = [
            Candidate { signals: &loaded, ..candidate(0) },
            Candidate { signals: &full, ..candidate(1) },
            candidate(2),
        ];
        assert_eq!(scores("lora-affinity-scorer", Value::Null, 0, &all), [1.0, 0.0, 0.5]);
    }

    fn picks_since_the_scrape_count_even_where_the_scrape_said_nothing() {
        let mut all = waiting(&[None, None]);
        all[1].waiting_since_scrape = 3;
        assert_eq!(scores("queue-scorer", Value::Null, 0, &all), [1.0, 0.0]);
        let scores = scores("load-aware-scorer", json!({"threshold": 6}), 0, &all);
        assert_eq!(scores, [0.5, 0.25]);
    }

    fn prefix_is_the_matched_share_of_a_prompt_that_has_blocks() {
        let matched = |blocks| Candidate { matched_blocks: blocks, ..candidate(0) };
        let all = [matched(0), matched(5), matched(10)];
        assert_eq!(scores("prefix-cache-scorer", Value::Null, 10, &all), [0.0, 0.5, 1.0]);
        assert_eq!(scores("prefix-cache-scorer", Value::Null, 0, &all[..1]), [0.0]);
    }

    fn context_length_prefers_the_narrow_and_the_near() {
        let ranges = ["0-1000", "0-100000", "2000-4000", "500-500", "1-x"].map(|range| {
            labels(&[("llm-d.ai/context-length-range", range)])
        });
        let mut all: Vec<_> = ranges.iter()
            .map(|labels| Candidate { labels, prompt_tokens: 500, ..candidate(0) })
            .collect();
        all.push(Candidate { prompt_tokens: 500, ..candidate(0) });
        // 0.3 + 0.7 (0.7 / 1.1 + 0.3 / 2); 0.3 + 0.7 (0.7 / 11 + 0.3 × 0.995); 0.3 / 2.5.
        let expected = [0.85, 0.553, 0.12, 1.0, 0.0, 0.5];
        assert_eq!(scores("context-length-aware", Value::Null, 0, &all), expected);
    }

    fn a_label_that_has_the_headers_value_is_affine() {
        let tiers = [labels(&[("tier", "gold")]), labels(&[("tier", "")])];
        let all = [
            Candidate { labels: &tiers[0], ..candidate(0) },
            Candidate { labels: &tiers[1], ..candidate(1) },
            candidate(2),
        ];
        let parameters = json!({"headerName": "X-Tier", "labelKey": "tier"});
        let scheduler = single(&[("header-label-affinity-scorer", parameters, 1.0)]);
        for (header, expected) in [("gold", [1.0, 0.0, 0.0]), ("", [0.0; 3]), ("lead", [0.0; 3])] {
            let totals = totals(&scheduler, &request(0, &[("x-tier", header)]), &all).unwrap();
            let scores: Vec<_> = totals.iter().map(|(_, score)| *score).collect();
            assert_eq!(scores, expected, "{header}");
        }
    }

    fn cold_prompts_go_to_whoever_had_none_for_longest() {
        let scheduler = single(&[("no-hit-lru-scorer", json!({"lruSize": 2}), 1.0)]);
        let mut state = SchedulerState::default();
        let mut random = random();
        let headers = [];
        let mut go = |candidates: &[Candidate<'_>]| {
            let request = request(4, &headers);
            let decision =
                schedule(&scheduler, &request, candidates, &state, 0, &mut random).unwrap();
            state.remember(&decision, 0);
            decision.primary
        };
        let three = [candidate(0), candidate(1), candidate(2)];
        let mut picks: Vec<_> = (0..3).map(|_| go(&three).ranked[0].0).collect();
        assert_eq!(picks, [0, 1, 2]);
        // Two are remembered, 1 and 2: 0 counts as never used.
        picks = (0..3).map(|_| go(&three).ranked[0].0).collect();
        assert_eq!(picks, [0, 1, 2]);
        // A prompt that somebody holds neither moves them nor cares.
        let warm = [candidate(0), Candidate { matched_blocks: 1, ..candidate(1) }];
        go(&warm);
        assert_eq!(go(&three).ranked[0].0, 0);
        assert_eq!(scores("no-hit-lru-scorer", Value::Null, 4, &warm), [0.5, 0.5]);
    }

    fn cold_prompts_are_spread_over_who_is_there_whoever_was() {
        let scheduler = single(&[("no-hit-lru-scorer", Value::Null, 1.0)]);
        let mut state = SchedulerState::default();
        let mut random = random();
        let mut go = |ids: [u64; 3]| {
            let candidates = ids.map(candidate);
            let decision =
                schedule(&scheduler, &request(4, &[]), &candidates, &state, 0, &mut random).unwrap();
            state.remember(&decision, 0);
            decision.primary.ranked[0].0
        };
        for (generation, ids) in [[0, 1, 2], [3, 4, 5], [6, 7, 8]].into_iter().enumerate() {
            for round in 0..3 {
                assert_eq!(ids.map(|_| go(ids)), ids, "{generation} {round}");
            }
        }
        // Two pools in turn.
        for round in 0..9 {
            let at = round % 3;
            assert_eq!((go([3, 4, 5]), go([6, 7, 8])), ([3, 4, 5][at], [6, 7, 8][at]), "{round}");
        }
    }

    fn scores_are_clamped_weighed_and_never_nan() {
        let negative = Candidate { kv_usage: Some(3.0), ..candidate(0) };
        let scheduler = single(&[
            ("kv-cache-utilization-scorer", Value::Null, 2.0),
            ("queue-scorer", Value::Null, f64::INFINITY),
        ]);
        let queued = |n, waiting| Candidate { waiting: Some(waiting), ..negative.clone() }.with_id(n);
        let two = [queued(0, 9.0), queued(1, 1.0)];
        // 0 × infinity is NaN: it counts nothing.
        let totals = totals(&scheduler, &request(0, &[]), &two).unwrap();
        assert_eq!(totals, [(0, 0.0), (1, f64::INFINITY)]);
        let decision = decide(&scheduler, &request(0, &[]), &two).unwrap();
        assert_eq!(decision.primary.ranked[0].0, 1);
    }
}

impl Candidate<'_> {
    fn with_id(self, n: u64) -> Self {
        Self { id: EndpointId(n), ..self }
    }
}
