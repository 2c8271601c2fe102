//! The article's calculation over four replicas: no sticky set, the matched share only.

use super::*;
use serde_json::json;

crate::tests! {
    fn the_articles_replicas_get_the_articles_scores() {
        let drop_overloaded = json!({
            "conditions": [
                {"metric": "kv-cache-utilization", "maxValue": 0.9},
                {"metric": "waiting-queue", "maxValue": 4},
            ],
            "fallbackOnEmpty": true,
        });
        let scheduler = single(&[
            ("utilization-filter", drop_overloaded, 1.0),
            ("prefix-cache-scorer", json!({"matchLengthWeight": 0.0}), 3.0),
            ("queue-scorer", Value::Null, 2.0),
            ("kv-cache-utilization-scorer", Value::Null, 2.0),
            ("lora-affinity-scorer", Value::Null, 1.0),
            ("max-score-picker", Value::Null, 1.0),
        ]);
        let (loaded, room, full) = (
            adapters(&["lora-a"], &[], 2),
            adapters(&["lora-b"], &[], 2),
            adapters(&["lora-b"], &["lora-c"], 2),
        );
        let replica = |n, percent: usize, waiting: f32, kv: f32, signals| Candidate {
            matched_blocks: percent,
            waiting: Some(waiting),
            kv_usage: Some(kv),
            signals,
            ..candidate(n)
        };
        let replicas = [
            replica(1, 100, 6.0, 0.95, &loaded),
            replica(2, 75, 3.0, 0.70, &loaded),
            replica(3, 0, 0.0, 0.20, &room),
            replica(4, 0, 1.0, 0.40, &full),
        ];
        let decision = decide(&scheduler, &request(100, &[]), &replicas).unwrap();
        assert_eq!(decision.primary.ranked, [3, 2, 4].map(EndpointId));
        assert_eq!(decision.reason, PickReason::LoadOverPrefix);
        let totals = totals(&scheduler, &request(100, &[]), &replicas).unwrap();
        let scores: Vec<_> =
            totals.iter().map(|(id, score)| (*id, (score * 100.0).round() / 100.0)).collect();
        assert_eq!(scores, [(2, 3.85), (3, 4.40), (4, 2.53)]);
    }
}
