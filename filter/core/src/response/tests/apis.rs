//! The answers of the APIs besides OpenAI's chat and completions.

use super::*;

crate::tests! {
    fn anthropic_stream() {
        let bytes = fixture!("sse_messages.txt");
        let report = stream(bytes);
        let facts = report.facts;
        // The last event's input tokens leave the cached ones out.
        assert_eq!(facts.usage, usage(153, 6, 128));
        assert_eq!(facts.finish_reason, Some(FinishReason::Length));
        assert_eq!((facts.chunks, facts.comments, facts.bad_chunks), (11, 0, 0));
        assert!(facts.first_token && facts.done && facts.error.is_none());
        assert_eq!(report.outcome, Outcome::Completed);
        // Broken off before `message_stop`, or before the stop reason.
        let text = std::str::from_utf8(bytes).unwrap();
        let before = |mark: &str| &bytes[..text.find(mark).unwrap()];
        for (mark, missing) in [
            ("event: message_stop", Truncation::Done),
            ("event: message_delta", Truncation::FinishReason),
        ] {
            let report = stream(before(mark));
            assert_eq!(report.outcome, Outcome::Truncated(missing), "{mark}");
        }
        // The first event is no token, but tells how long the prompt is.
        let report = stream(before("event: content_block_start"));
        assert!(!report.facts.first_token);
        assert_eq!(report.facts.usage, usage(153, 0, None));
    }

    fn anthropic_document() {
        let report = document(200, fixture!("messages.json"));
        assert_eq!(report.facts.usage, usage(153, 6, 128));
        assert_eq!(report.facts.finish_reason, Some(FinishReason::Length));
        assert_eq!(report.facts.finished_choices, 1);
        assert!(report.facts.first_token);
        assert_eq!(report.outcome, Outcome::Completed);
    }

    fn anthropic_events_of_every_kind() {
        for (event, first_token, comments, error) in [
            (r#"{"type":"ping"}"#, false, 1, false),
            (r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#, false, 0, false),
            (r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#, true, 0, false),
            (r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#, true, 0, false),
            (r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}"#, true, 0, false),
            (r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#, false, 0, true),
        ] {
            let facts = stream(format!("event: x\ndata: {event}\n\n").as_bytes()).facts;
            assert_eq!(facts.first_token, first_token, "{event}");
            assert_eq!(facts.comments, comments, "{event}");
            assert_eq!(facts.error.is_some(), error, "{event}");
        }
        for (reason, expected) in [
            ("end_turn", FinishReason::Stop),
            ("stop_sequence", FinishReason::Stop),
            ("max_tokens", FinishReason::Length),
            ("tool_use", FinishReason::ToolCalls),
        ] {
            let event = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#);
            let facts = stream(format!("data: {event}\n\n").as_bytes()).facts;
            assert_eq!(facts.finish_reason, Some(expected), "{reason}");
        }
    }

    fn responses_stream() {
        let bytes = fixture!("sse_responses.txt");
        let report = stream(bytes);
        let facts = report.facts;
        assert_eq!(facts.usage, Usage { reasoning_tokens: Some(0), ..usage(177, 6, 32) });
        // The last event is called completed even if the limit ended it: the status tells.
        assert_eq!(facts.finish_reason, Some(FinishReason::Length));
        assert_eq!((facts.chunks, facts.finished_choices, facts.bad_chunks), (11, 1, 0));
        assert!(facts.first_token && facts.done && facts.error.is_none());
        assert_eq!(report.outcome, Outcome::Completed);
        let text = std::str::from_utf8(bytes).unwrap();
        let before = |mark: &str| &bytes[..text.find(mark).unwrap()];
        let cut = stream(before("event: response.completed"));
        assert_eq!(cut.outcome, Outcome::Truncated(Truncation::FinishReason));
        assert!(!stream(before("event: response.output_text.delta")).facts.first_token);
    }

    fn responses_that_end_otherwise() {
        for (event, outcome, reason) in [
            (r#"{"type":"response.completed","response":{"status":"completed"}}"#, Outcome::Completed, FinishReason::Stop),
            (r#"{"type":"response.incomplete","response":{}}"#, Outcome::Completed, FinishReason::Length),
            (r#"{"type":"response.failed","response":{}}"#, Outcome::EngineError, FinishReason::Error),
            (r#"{"response":{"status":"failed","error":{"code":"server_error"}},"type":"response.failed"}"#, Outcome::EngineError, FinishReason::Error),
            (r#"{"type":"response.cancelled"}"#, Outcome::EngineError, FinishReason::Abort),
        ] {
            let report = stream(format!("data: {event}\n\n").as_bytes());
            assert_eq!(report.outcome, outcome, "{event}");
            assert_eq!(report.facts.finish_reason, Some(reason), "{event}");
        }
        let arguments = r#"{"type":"response.function_call_arguments.delta","delta":"{"}"#;
        assert!(stream(format!("data: {arguments}\n\n").as_bytes()).facts.first_token);
        let failed = document(200, br#"{"object":"response","status":"failed","output":[]}"#);
        assert_eq!(failed.outcome, Outcome::EngineError);
        let other = document(200, br#"{"object":"other","status":"failed"}"#);
        assert_eq!(other.outcome, Outcome::Completed);
    }

    fn sglangs_stream() {
        let event = |text: &str, tokens: u64, reason: &str| {
            let meta = format!(r#"{{"id":"x","finish_reason":{reason},"prompt_tokens":9,"completion_tokens":{tokens},"cached_tokens":4}}"#);
            format!("data: {{\"text\":\"{text}\",\"meta_info\":{meta}}}\n\n")
        };
        let done = "data: [DONE]\n\n";
        for (reason, expected, outcome) in [
            (r#"{"type":"length","length":2}"#, FinishReason::Length, Outcome::Completed),
            (r#"{"type":"stop","matched":7}"#, FinishReason::Stop, Outcome::Completed),
            (r#"{"type":"abort","message":"m"}"#, FinishReason::Abort, Outcome::EngineError),
        ] {
            let report = stream([&event("a", 1, "null"), &event("ab", 2, reason), done].concat().as_bytes());
            assert_eq!(report.facts.usage, usage(9, 2, 4));
            assert_eq!(report.facts.finish_reason, Some(expected), "{reason}");
            assert!(report.facts.first_token && report.facts.done);
            assert_eq!(report.outcome, outcome, "{reason}");
        }
        let cut = stream([&event("a", 1, "null"), done].concat().as_bytes());
        assert_eq!(cut.outcome, Outcome::Truncated(Truncation::FinishReason));
        let ids = r#"{"output_ids":[5],"meta_info":{"prompt_tokens":1}}"#;
        assert!(document(200, ids.as_bytes()).facts.first_token);
        assert!(!document(200, br#"{"text":"","output_ids":[]}"#).facts.first_token);
    }

    fn usage_in_all_its_forms() {
        for (body, expected) in [
            (r#"{"usage":{"prompt_tokens":"1024","completion_tokens":"7","total_tokens":"1031"}}"#, usage(1024, 7, None)),
            (r#"{"usage":{"input_tokens":5,"output_tokens":"2e1"}}"#, usage(5, 20, None)),
            (r#"{"usage":{"input_tokens":5,"prompt_tokens":6,"completion_tokens":1,"output_tokens":2}}"#, usage(6, 1, None)),
            (r#"{"usage":{"input_tokens":5,"output_tokens":1,"input_tokens_details":{"cached_tokens":"4"}}}"#, usage(5, 1, 4)),
            (r#"{"usage":{"prompt_tokens":5.0,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":3}}}"#, usage(5, 1, 3)),
            // Embeddings have no answer of tokens.
            (r#"{"object":"list","data":[{"embedding":[0.5,-1e-3]}],"usage":{"prompt_tokens":5,"total_tokens":5}}"#,
             Usage { prompt_tokens: Some(5), total_tokens: Some(5), ..Usage::default() }),
            (r#"{"usage":{"prompt_tokens":"-1","completion_tokens":"1.5","total_tokens":"a-text-that-is-far-too-long-for-a-number"}}"#, Usage::default()),
            (r#"{"usage":{"prompt_tokens":"nan","completion_tokens":"inf","total_tokens":""}}"#, Usage::default()),
            (r#"{"usage":null}"#, Usage::default()),
            ("{}", Usage::default()),
        ] {
            assert_eq!(document(200, body.as_bytes()).facts.usage, expected, "{body}");
        }
    }
}
