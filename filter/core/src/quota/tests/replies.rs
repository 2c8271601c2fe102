//! What a refused client reads.

use super::super::reply::duration;
use super::*;
use serde_json::{Value, json};

fn refuse(kind: Kind, why: Why, levels: Vec<Level>) -> (u16, Value, Vec<(String, String)>) {
    let reply = refusal_reply(&Refusal { ask: ask(kind, 20_000, 31_024), why, levels });
    let error: Value = serde_json::from_slice(&reply.body).unwrap();
    let headers = reply.header_pairs().into_iter().map(|(n, v)| (n.into(), v.into())).collect();
    (reply.status, error["error"].clone(), headers)
}

fn level(kind: Kind, balance: i64, reset_ms: u64) -> Level {
    Level { bucket: BucketId::new("t", "m", kind), limit: 20_000, balance, reset_ms }
}

crate::tests! {
    fn a_short_budget_is_429_in_openais_shape() {
        let levels = vec![
            level(Kind::Requests, 7, 12),
            level(Kind::Tokens, -5, 360_000),
            level(Kind::Concurrency, 1, 0),
        ];
        let (status, error, headers) = refuse(Kind::Tokens, Why::Short { retry_after_ms: 69_073 }, levels);
        assert_eq!(status, 429);
        assert_eq!(error, json!({
            "message": "Rate limit reached: limit 20000 tokens per minute (TPM), requested 31024. Please try again in 1m9.073s.",
            "type": "tokens", "param": null, "code": "rate_limit_exceeded",
        }));
        let headers: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(headers, [
            ("content-type", "application/json"),
            ("retry-after", "70"),
            ("x-ratelimit-limit-requests", "20000"),
            ("x-ratelimit-remaining-requests", "7"),
            ("x-ratelimit-reset-requests", "12ms"),
            ("x-ratelimit-limit-tokens", "20000"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]);
    }

    fn each_kind_says_what_it_limits() {
        for (kind, topic, says) in [
            (Kind::Requests, "requests", "(RPM)"),
            (Kind::Tokens, "tokens", "(TPM)"),
            (Kind::Concurrency, "requests", "20000 requests at once"),
            (Kind::InflightTokens, "tokens", "tokens at once"),
        ] {
            let (status, error, headers) = refuse(kind, Why::Short { retry_after_ms: 1 }, vec![]);
            assert_eq!((status, &error["type"]), (429, &json!(topic)));
            assert!(error["message"].as_str().unwrap().contains(says), "{error}");
            assert!(headers.contains(&("retry-after".into(), "1".into())));
        }
    }

    fn what_never_fits_is_a_bad_request_that_says_so() {
        let (status, error, headers) = refuse(Kind::Tokens, Why::TooLarge, vec![]);
        assert_eq!((status, &error["type"]), (400, &json!("invalid_request_error")));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("31024 tokens, more than the limit of 20000"), "{message}");
        assert_eq!(headers.len(), 1);
    }

    fn a_full_table_is_not_the_clients_fault() {
        let (status, _, headers) = refuse(Kind::Tokens, Why::TableFull, vec![]);
        assert_eq!(status, 503);
        assert!(headers.contains(&("retry-after".into(), "1".into())));
    }

    fn durations_are_written_as_openai_does() {
        for (ms, text) in [
            (0, "0s"), (12, "12ms"), (999, "999ms"), (1_000, "1s"), (7_660, "7.66s"), (1_001, "1.001s"),
            (60_000, "1m0s"), (360_000, "6m0s"), (90_500, "1m30.5s"), (3_600_000, "1h0m0s"), (90_061_100, "25h1m1.1s"),
        ] {
            assert_eq!(duration(ms), text);
        }
    }
}
