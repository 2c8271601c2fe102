//! What an answer makes of an exchange.

use super::tests::{Host, JSON, SSE, chat, head, ok};
use super::*;
use crate::replica::tests::record as endpoint_record;
use crate::response::Outcome;

crate::tests! {
    fn an_answer_settles_once_and_is_recorded() {
        let mut host = Host::new(Some(2));
        let (mut exchange, _) = host.routed(&chat(&"hello ".repeat(50)));
        host.outbox.clear();
        host.now_ms += 70;
        let answer = br#"{"choices":[{"finish_reason":"stop","message":{"content":"hi"}}],"usage":{"prompt_tokens":90,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":64}}}"#;
        host.with(|env| {
            exchange.on_response_headers(env, &ok(1, JSON), || None);
            assert!(exchange.reads_response());
            exchange.on_response_body(env, &answer[..20], false);
            exchange.on_response_body(env, &answer[20..], false);
            exchange.on_response_end(env, End::Clean);
        });
        assert!(host.idle());
        host.with(|env| exchange.on_done(env, false));
        let record = exchange.record();
        assert_eq!(record.cause, Some(Cause::Answered(Outcome::Completed)));
        assert_eq!(record.ttft_ms, Some(70));
        assert_eq!(record.usage.prompt_tokens, Some(90));
        let fields: Vec<_> = record.fields().map(|(name, _)| name).collect();
        let fields: Vec<_> = fields.iter().filter_map(|name| name.strip_prefix("warmroute.")).collect();
        assert_eq!(fields, ["model", "endpoint", "reason", "matched_tokens", "prompt_source", "matched_kind", "ttft_ms", "prompt_tokens", "cached_tokens", "completion_tokens", "cause"]);
        assert_eq!(host.outbox.len(), 1, "one usage message");
    }

    fn a_stream_is_no_success_before_it_says_so() {
        for (stream, cause) in [
            ("data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", "completed"),
            ("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"error\":{\"code\":500}}\n\ndata: [DONE]\n\n", "engine_error"),
        ] {
            let mut host = Host::new(Some(2));
            let (mut exchange, _) = host.routed(&chat("x"));
            host.with(|env| {
                exchange.on_response_headers(env, &ok(1, SSE), || None);
                exchange.on_response_body(env, stream.as_bytes(), false);
                exchange.on_response_end(env, End::Clean);
                exchange.on_done(env, false);
            });
            assert_eq!(exchange.record().cause.map(Cause::name), Some(cause));
        }
    }

    fn what_comes_behind_the_first_token_counts_the_same() {
        let chunk = |more: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"a\"}},\"finish_reason\":\"stop\"}}]{more}}}\n\n");
        let usage = ",\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"total_tokens\":10}";
        let chunks = [chunk(""), chunk(""), chunk(usage), "data: [DO".into(), "NE]\n\n".into()];
        let seen = [false, true].map(|quick| {
            let mut host = Host::new(Some(1));
            let (mut exchange, _) = host.routed(&chat("x"));
            host.with(|env| exchange.on_response_headers(env, &ok(1, SSE), || None));
            for chunk in &chunks {
                if quick && exchange.has_begun_to_answer() {
                    exchange.on_more_response_body(chunk.as_bytes());
                } else {
                    host.with(|env| exchange.on_response_body(env, chunk.as_bytes(), false));
                }
            }
            host.with(|env| exchange.on_response_end(env, End::Clean));
            host.with(|env| exchange.on_done(env, false));
            let record = exchange.record();
            (record.usage, record.response_bytes, record.ttft_ms, record.cause.map(Cause::name))
        });
        assert_eq!(seen[0], seen[1]);
        assert_eq!((seen[1].0.prompt_tokens, seen[1].3), (Some(7), Some("completed")));
    }

    fn whoever_served_is_charged() {
        let mut host = Host::new(Some(3));
        let (mut exchange, to) = host.routed(&chat(&"retry me ".repeat(60)));
        let second = to.split(',').nth(1).unwrap().to_owned();
        let id = host.vm.follower().replica.roster.by_address(&second).unwrap().record.id;
        host.with(|env| exchange.on_response_headers(env, &ok(2, SSE), || Some(second.clone())));
        assert_eq!(host.vm.ledger().counts(id).requests, 1);
        assert_eq!(exchange.record().endpoint.as_deref(), Some(&*second));
        assert_eq!(exchange.record().reason, Some("retried_elsewhere"));
        host.with(|env| exchange.on_done(env, true));
        assert!(host.idle());
        // What it holds by now is known there, and no longer at the first.
        host.now_ms += 60_000;
        let (_, again) = host.routed(&chat(&"retry me ".repeat(60)));
        assert_eq!(again.split(',').next(), Some(&*second));
    }

    fn a_comment_is_no_sign_that_the_prompt_is_computed() {
        let mut host = Host::new(Some(1));
        let (mut exchange, _) = host.routed(&chat(&"waiting ".repeat(60)));
        let id = endpoint_record(0).id;
        host.with(|env| {
            exchange.on_response_headers(env, &ok(1, SSE), || None);
            exchange.on_response_body(env, b": keep-alive\n\n", false);
        });
        assert_eq!(host.vm.ledger().counts(id).waiting, 1);
        assert_eq!(exchange.record().ttft_ms, None);
        host.with(|env| {
            exchange.on_response_body(env, b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", false);
        });
        let counts = host.vm.ledger().counts(id);
        assert_eq!((counts.requests, counts.waiting, counts.uncached_tokens), (1, 0, 0));
        assert!(exchange.record().ttft_ms.is_some());
    }

    fn what_the_engine_refused_is_not_believed() {
        let mut host = Host::new(Some(1));
        let body = chat(&"too long ".repeat(100));
        let (mut exchange, _) = host.routed(&body);
        let refused = ResponseHead { status: 400, ..ok(1, JSON) };
        host.with(|env| {
            exchange.on_response_headers(env, &refused, || None);
            exchange.on_response_body(env, br#"{"error":{"code":400}}"#, false);
            exchange.on_response_end(env, End::Clean);
        });
        assert_eq!(exchange.record().cause, Some(Cause::Answered(Outcome::Refused { status: 400 })));
        let (again, _) = host.routed(&body);
        assert_eq!(again.record().matched_tokens, Some(0));
    }

    fn answers_of_other_paths_are_not_read() {
        let mut host = Host::new(Some(1));
        let id = endpoint_record(0).id;
        for status in [200, 304] {
            let mut exchange = Exchange::default();
            host.with(|env| {
                exchange.on_request_headers(env, head("/v1/models"));
                exchange.on_response_headers(env, &ResponseHead { status, ..ok(1, JSON) }, || None);
                assert!(!exchange.reads_response());
                if status == 200 {
                    assert_eq!(env.vm.ledger().counts(id).waiting, 1);
                    exchange.on_unread_response_body(env, 31);
                    assert_eq!(env.vm.ledger().counts(id).waiting, 0);
                }
                exchange.on_response_end(env, End::Clean);
                exchange.on_done(env, false);
            });
            assert_eq!(exchange.record().cause, Some(Cause::Answered(Outcome::Completed)), "{status}");
            assert_eq!(exchange.record().response_bytes, if status == 200 { 31 } else { 0 });
            assert_eq!(exchange.record().ttft_ms.is_some(), status == 200);
        }
        host.vm.tick(&host.store, host.now_ms);
        let ratio = host.vm.follower().replica.roster.get(id).unwrap().bytes_per_token;
        assert!((ratio - 4.0).abs() < 1e-6);
    }

    fn our_own_answer_is_not_taken_for_the_engines() {
        let mut host = Host::new(Some(2));
        let mut exchange = Exchange::default();
        host.post(&mut exchange, b"nonsense", 3);
        host.with(|env| {
            exchange.on_response_headers(env, &ok(1, JSON), || None);
            exchange.on_response_body(env, br#"{"usage":{"prompt_tokens":5}}"#, false);
            exchange.on_response_end(env, End::Clean);
            exchange.on_done(env, false);
        });
        assert_eq!(exchange.record().cause, Some(Cause::Rejected("warmroute_bad_request")));
        assert_eq!(exchange.record().usage.prompt_tokens, None);
    }
}
