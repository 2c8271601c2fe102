use super::any_split::every_cut;
use super::{
    End, EngineError, FinishReason, Outcome, ResponseFacts, ResponseReader, ResponseReport,
    Truncation, Usage,
};

/// A response captured from a real vLLM.
macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/response/fixtures/", $name))
            .as_slice()
    };
}

mod apis;

fn stream_reader() -> ResponseReader {
    let reader = ResponseReader::for_headers(200, Some(b"text/event-stream; charset=utf-8"), None);
    assert!(reader.is_stream());
    reader
}

fn read<'a>(
    mut reader: ResponseReader,
    slices: impl IntoIterator<Item = &'a [u8]>,
    end: End,
) -> ResponseReport {
    for slice in slices {
        reader.feed(slice);
    }
    reader.finish(end)
}

/// The report on `bytes`, however they are cut.
fn read_every_cut(reader: &ResponseReader, bytes: &[u8], end: End) -> ResponseReport {
    every_cut(bytes, |slices| read(reader.clone(), slices, end))
}

fn stream(bytes: &[u8]) -> ResponseReport {
    read_every_cut(&stream_reader(), bytes, End::Clean)
}

fn document(status: u16, bytes: &[u8]) -> ResponseReport {
    let reader = ResponseReader::for_headers(status, Some(b"application/json"), None);
    read_every_cut(&reader, bytes, End::Clean)
}

fn usage(prompt: u64, completion: u64, cached: impl Into<Option<u64>>) -> Usage {
    Usage {
        prompt_tokens: Some(prompt),
        completion_tokens: Some(completion),
        total_tokens: Some(prompt + completion),
        cached_tokens: cached.into(),
        reasoning_tokens: None,
    }
}

crate::tests! {
    fn captured_streams() {
        let none = Usage::default();
        for (name, bytes, chunks, expected, reason) in [
            ("usage", fixture!("sse_chat_include_usage.txt"), 14, usage(153, 12, 0), FinishReason::Length),
            ("continuous", fixture!("sse_chat_continuous_usage.txt"), 10, usage(153, 8, 128), FinishReason::Length),
            ("no usage", fixture!("sse_chat_no_usage.txt"), 7, none, FinishReason::Length),
            ("n = 2", fixture!("sse_chat_n2_logprobs.txt"), 9, usage(41, 6, 32), FinishReason::Length),
            ("token ids", fixture!("sse_chat_token_ids.txt"), 6, usage(41, 4, 0), FinishReason::Length),
            ("completion", fixture!("sse_completion_include_usage.txt"), 7, usage(1, 6, 0), FinishReason::Length),
            ("completion, continuous", fixture!("sse_completion_continuous_usage.txt"), 7, usage(138, 6, 0), FinishReason::Length),
            ("forced", fixture!("sse_force_usage.txt"), 6, usage(41, 4, 32), FinishReason::Length),
        ] {
            for (line_end, data) in [("\n", "data: "), ("\r\n", "data: "), ("\r", "data:")] {
                let text = std::str::from_utf8(bytes).unwrap();
                let text = text.replace('\n', line_end).replace("data: ", data);
                let report = stream(text.as_bytes());
                let facts = report.facts;
                assert_eq!(facts.usage, expected, "{name}");
                assert_eq!(facts.finish_reason, Some(reason), "{name}");
                assert_eq!(facts.chunks, chunks, "{name}");
                assert_eq!((facts.comments, facts.bad_chunks), (0, 0), "{name}");
                assert!(facts.first_token && facts.done && facts.error.is_none(), "{name}");
                assert_eq!(report.outcome, Outcome::Completed, "{name}");
            }
        }
    }

    fn choices_that_end_are_counted() {
        let report = stream(fixture!("sse_chat_n2_logprobs.txt"));
        assert_eq!(report.facts.finished_choices, 2);
    }

    fn keep_alives_are_no_progress() {
        let report = stream(fixture!("sse_keepalive.txt"));
        assert_eq!(report.facts.comments, 2);
        assert_eq!(report.facts.usage, usage(300, 3, 0));
        assert_eq!(report.outcome, Outcome::Completed);

        let mut reader = stream_reader();
        assert_eq!(reader.feed(b": keep-alive\n\n").chunks, 0);
        assert_eq!(reader.facts().comments, 1);
    }

    fn a_dead_engine_is_told_from_success() {
        let killed = fixture!("sse_engine_crash_midstream.txt");
        let report = read_every_cut(&stream_reader(), killed, End::Broken);
        assert_eq!(report.outcome, Outcome::Truncated(Truncation::End));
        assert_eq!(report.facts.usage, usage(41, 4, None));
        assert_eq!(report.facts.comments, 10);
        // The same if a proxy in between makes a clean end of it.
        let report = stream(killed);
        assert_eq!(report.outcome, Outcome::Truncated(Truncation::FinishReason));

        let report = stream(fixture!("sse_engine_crash_single.txt"));
        assert_eq!(report.outcome, Outcome::EngineError);
        assert_eq!(report.facts.error, Some(EngineError { code: Some(500) }));
        assert!(report.facts.done, "[DONE] alone is no success");

        let report = stream(fixture!("sse_sigterm_drain_midstream.txt"));
        assert_eq!(report.outcome, Outcome::Completed);
        assert_eq!(report.facts.usage, usage(199, 600, 0));
    }

    fn a_stream_cut_short_anywhere_is_no_success() {
        let full = fixture!("sse_chat_include_usage.txt");
        let complete = full.len() - "\n\n".len();
        for length in 0..full.len() {
            let report = read(stream_reader(), [&full[..length]], End::Clean);
            assert_eq!(report.outcome.is_success(), length >= complete, "{length} bytes");
            let gone = read(stream_reader(), [&full[..length]], End::ClientGone);
            let expected = if length >= complete { Outcome::Completed } else { Outcome::ClientGone };
            assert_eq!(gone.outcome, expected, "{length} bytes");
        }
    }

    fn tokens_that_no_usage_reports_are_counted_by_their_chunks() {
        let role = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
        let text = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
        let half = r#"{"choices":[{"text":""}]}"#;
        let both = r#"{"choices":[{"delta":{"role":"assistant","content":"a"}}]}"#;
        let end = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
        let counted = r#"{"choices":[{"text":"a"}],"usage":{"completion_tokens":3}}"#;
        for (chunks, unreported) in [
            (vec![role], 0),
            (vec![role, text, text, end], 2),
            (vec![both, half], 2),
            (vec![text, counted], 0),
            (vec![text, counted, half, ": c", "[DONE]"], 1),
            (vec![r#"{"choices":[],"usage":{"prompt_tokens":3}}"#, text], 1),
        ] {
            let events: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
            let report = stream(events.as_bytes());
            assert_eq!(report.facts.unreported_chunks, unreported, "{chunks:?}");
        }
        let anthropic = stream(
            b"data: {\"type\":\"message_start\",\"message\":{\"role\":\"assistant\",\"usage\":{\"input_tokens\":9,\"output_tokens\":0}}}\n\n\
              data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
              data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n",
        );
        assert_eq!((anthropic.facts.usage.completion_tokens, anthropic.facts.unreported_chunks), (Some(0), 1));
    }

    fn reasoning_tokens_are_those_of_the_details() {
        for (body, tokens) in [
            (r#"{"usage":{"completion_tokens":9,"completion_tokens_details":{"reasoning_tokens":7,"x":1}}}"#, Some(7)),
            (r#"{"usage":{"output_tokens":9,"output_tokens_details":{"reasoning_tokens":0}}}"#, Some(0)),
            (r#"{"usage":{"completion_tokens":9,"completion_tokens_details":null}}"#, None),
            // SGLang's place.
            (r#"{"usage":{"completion_tokens":9,"reasoning_tokens":3}}"#, Some(3)),
        ] {
            assert_eq!(document(200, body.as_bytes()).facts.usage.reasoning_tokens, tokens, "{body}");
        }
    }

    fn first_token_is_the_first_that_says_something() {
        let chunk = |choice: &str| format!(r#"data: {{"choices":[{{"index":0,{choice}}}]}}"#) + "\n\n";
        for (choice, is_token) in [
            (r#""delta":{"role":"assistant","content":""}"#, false),
            (r#""delta":{"content":null}"#, false),
            (r#""delta":{"content":null,"tool_calls":[]}"#, false),
            (r#""delta":{}"#, false),
            (r#""delta":null"#, false),
            (r#""text":"""#, false),
            (r#""delta":{"role":"assistant","extra":{"content":"x"}}"#, false),
            (r#""delta":{"content":"x"}"#, true),
            (r#""delta":{"content":"\u00e9"}"#, true),
            (r#""delta":{"content":" "}"#, true),
            (r#""text":"x""#, true),
            (r#""delta":{"reasoning":"x"}"#, true),
            (r#""delta":{"reasoning_content":"x"}"#, true),
            (r#""delta":{"tool_calls":[{"index":0}]}"#, true),
            (r#""delta":{"function_call":{"name":"f"}}"#, true),
        ] {
            let mut reader = stream_reader();
            let facts = reader.feed(chunk(choice).as_bytes());
            assert_eq!(facts.first_token, is_token, "{choice}");
            assert_eq!((facts.chunks, facts.bad_chunks), (1, 0), "{choice}");
        }
        // It shows when its line is complete, not before and not an event later.
        let chunk = chunk(r#""text":"x""#);
        let (line, _) = chunk.split_at(chunk.len() - 1);
        let mut reader = stream_reader();
        assert!(!reader.feed(&line.as_bytes()[..line.len() - 1]).first_token);
        assert!(reader.feed(b"\n").first_token);

        let tools = stream(fixture!("sse_chat_tool_named.txt"));
        assert!(tools.facts.first_token);
    }

    fn the_last_usage_wins() {
        let feed = |chunks: &[&str]| {
            let mut reader = stream_reader();
            for chunk in chunks {
                reader.feed(format!("data: {chunk}\n\n").as_bytes());
            }
            reader.facts().usage
        };
        let counts = |completion: u64| {
            format!(r#"{{"choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":{completion},"total_tokens":{}}}}}"#, 5 + completion)
        };
        let mut hundred: Vec<String> = (1..=100).map(counts).collect();
        hundred.insert(50, r#"{"choices":[],"usage":null}"#.into());
        hundred.push(r#"{"choices":null}"#.into());
        hundred.push(r#"{"object":"x"}"#.into());
        let chunks: Vec<_> = hundred.iter().map(String::as_str).collect();
        assert_eq!(feed(&chunks), usage(5, 100, None));

        let details = r#"{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens":1,"total_tokens":6}}"#;
        assert_eq!(feed(&[details, &counts(2)]), usage(5, 2, 4));
        let other = r#"{"usage":{"prompt_tokens":6,"completion_tokens":0,"total_tokens":6}}"#;
        assert_eq!(feed(&[&counts(2), other]), usage(6, 0, None));
        let null = r#"{"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10,"prompt_tokens_details":null}}"#;
        assert_eq!(feed(&[null]), usage(9, 1, None));
        let elsewhere = r#"{"choices":[{"usage":{"prompt_tokens":7}}],"x":{"usage":{"prompt_tokens":8}}}"#;
        assert_eq!(feed(&[elsewhere]), Usage::default());
        let wrong = r#"{"usage":{"prompt_tokens":-1,"completion_tokens":"many","total_tokens":1.5}}"#;
        assert_eq!(feed(&[wrong]), Usage::default());
        assert_eq!(feed(&["[DONE]", &counts(3)]), usage(5, 3, None));
    }

    fn payloads_in_odd_clothes() {
        let facts = |text: &str| stream(text.as_bytes()).facts;
        let one = ResponseFacts { chunks: 1, ..ResponseFacts::default() };
        let bad = ResponseFacts { bad_chunks: 1, ..ResponseFacts::default() };
        let done = ResponseFacts { done: true, ..ResponseFacts::default() };
        for (text, expected) in [
            ("data:   {}  \n\n", one),
            ("data: {\ndata: }\n\n", one),
            ("data:\ndata: {}\n\n", one),
            ("event: message\nid: 1\ndata: {}\n\n", one),
            ("data: {}", one),
            ("data: {}\ndata: {}\n\n", ResponseFacts { chunks: 2, ..one }),
            ("data:[DONE]\n\n", done),
            ("data:  [DONE] \n\n", done),
            ("data: [DONE]", done),
            ("data: [DONE\n\n", bad),
            ("data: [DONE]x\n\n", bad),
            ("data: [done]\n\n", bad),
            ("data: []\n\n", bad),
            ("data: {\n\n", bad),
            ("data: {\"a\":\ndata: x}\n\n", bad),
            ("data: hello\n\n", bad),
            ("data: \"text\"\n\n", bad),
            ("data: {\"a\":", bad),
            ("data: hello\n\ndata: {}\n\n", ResponseFacts { chunks: 1, ..bad }),
            ("data\n\n", ResponseFacts::default()),
        ] {
            assert_eq!(facts(text), expected, "{text:?}");
        }
    }

    fn a_stream_needs_reason_and_done() {
        let (finish, done) = ("data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n", "data: [DONE]\n\n");
        let outcome = |text: String| stream(text.as_bytes()).outcome;
        let truncated = Outcome::Truncated;
        assert_eq!(outcome([finish, done].concat()), Outcome::Completed);
        assert_eq!(outcome(finish.into()), truncated(Truncation::Done));
        assert_eq!(outcome(done.into()), truncated(Truncation::FinishReason));
        assert_eq!(outcome(String::new()), truncated(Truncation::FinishReason));
        for reason in ["abort", "error"] {
            let failed = finish.replace("stop", reason);
            assert_eq!(outcome([&failed, finish, done].concat()), Outcome::EngineError, "{reason}");
            assert_eq!(outcome([finish, &failed, done].concat()), Outcome::EngineError, "{reason}");
        }
        let failed = "data: {\"error\":\"boom\"}\n\n";
        assert_eq!(outcome([finish, failed, done].concat()), Outcome::EngineError);
        let both = "data: {\"choices\":[{\"finish_reason\":\"stop\"},{\"finish_reason\":\"abort\"}]}\n\n";
        assert_eq!(outcome([both, done].concat()), Outcome::EngineError);
        let first = "data: {\"error\":{\"code\":503}}\n\n";
        let facts = stream([first, failed].concat().as_bytes()).facts;
        assert_eq!(facts.error, Some(EngineError { code: Some(503) }), "the first counts");
        let none = "data: {\"error\":null}\n\n";
        assert_eq!(outcome([finish, none, done].concat()), Outcome::Completed);
    }

    fn finish_reasons_are_named() {
        for (reason, expected) in [
            (r#""stop""#, Some(FinishReason::Stop)),
            (r#""length""#, Some(FinishReason::Length)),
            (r#""tool_calls""#, Some(FinishReason::ToolCalls)),
            (r#""function_call""#, Some(FinishReason::ToolCalls)),
            (r#""content_filter""#, Some(FinishReason::ContentFilter)),
            (r#""a-reason-longer-than-any""#, Some(FinishReason::Other)),
            (r#""""#, Some(FinishReason::Other)),
            (r#"{"type":"abort"}"#, Some(FinishReason::Other)),
            ("null", None),
        ] {
            let text = format!(r#"{{"choices":[{{"finish_reason":{reason}}}]}}"#);
            assert_eq!(document(200, text.as_bytes()).facts.finish_reason, expected, "{reason}");
        }
    }

    fn whole_answers() {
        for (bytes, expected, reason) in [
            (fixture!("chat.json"), usage(153, 8, 128), FinishReason::Length),
            (fixture!("chat_tool_named.json"), usage(225, 64, 0), FinishReason::Length),
            (fixture!("completion.json"), usage(1, 8, 0), FinishReason::Length),
            (fixture!("responses.json"), Usage { reasoning_tokens: Some(0), ..usage(177, 6, 160) }, FinishReason::Length),
            (fixture!("generate.json"), usage(80, 4, 0), FinishReason::Length),
        ] {
            let report = document(200, bytes);
            assert_eq!(report.facts.usage, expected);
            assert_eq!(report.facts.finish_reason, Some(reason));
            assert!(report.facts.first_token);
            assert_eq!(report.outcome, Outcome::Completed);
            for length in 0..bytes.len() {
                let reader = ResponseReader::for_headers(200, Some(b"application/json"), None);
                let report = read(reader, [&bytes[..length]], End::Clean);
                assert_eq!(report.outcome, Outcome::Truncated(Truncation::Json), "{length} bytes");
            }
        }
        let trailing = document(200, b"{} x");
        assert_eq!(trailing.outcome, Outcome::Truncated(Truncation::Json));
    }

    fn refusals() {
        let code = |code| Some(EngineError { code });
        for (status, bytes, error) in [
            (404, fixture!("error_unknown_model.json"), code(Some(404))),
            (503, fixture!("error_queue_full.json"), code(Some(503))),
            (401, fixture!("error_no_api_key.json"), code(None)),
            (400, b"{".as_slice(), None),
            (500, b"", None),
        ] {
            let report = document(status, bytes);
            assert_eq!(report.outcome, Outcome::Refused { status });
            assert_eq!(report.facts.error, error, "{status}");
        }
        assert_eq!(document(200, fixture!("error_queue_full.json")).outcome, Outcome::EngineError);
    }

    fn the_form_is_chosen_by_headers() {
        let complete = b"data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        for (content_type, encoding, chunks, is_stream) in [
            (Some("text/event-stream"), None, 1, true),
            (Some("Text/Event-Stream;charset=utf-8"), Some("identity"), 1, true),
            (Some("text/event-stream"), Some("gzip"), 0, false),
            (Some("text/plain"), None, 0, false),
            (None, None, 0, false),
        ] {
            let reader = ResponseReader::for_headers(
                200,
                content_type.map(str::as_bytes),
                encoding.map(str::as_bytes),
            );
            assert_eq!(reader.is_stream(), is_stream, "{content_type:?}");
            let report = read(reader, [complete.as_slice()], End::Clean);
            assert_eq!(report.facts.chunks, chunks, "{content_type:?}");
            assert_eq!(report.outcome, Outcome::Completed, "{content_type:?}");
        }
        for kind in ["application/json", "application/problem+json; charset=utf-8"] {
            let reader = ResponseReader::for_headers(200, Some(kind.as_bytes()), None);
            assert_eq!(read(reader, [b"{}".as_slice()], End::Clean).facts.chunks, 1, "{kind}");
        }
        for (end, outcome) in [
            (End::Clean, Outcome::Completed),
            (End::Broken, Outcome::Truncated(Truncation::End)),
            (End::ClientGone, Outcome::ClientGone),
        ] {
            assert_eq!(ResponseReader::opaque(204).finish(end).outcome, outcome);
        }
        assert_eq!(ResponseReader::opaque(502).finish(End::Clean).outcome, Outcome::Refused { status: 502 });
    }

    fn a_huge_event_costs_no_memory_and_is_read() {
        let mut reader = stream_reader();
        reader.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"");
        for _ in 0..64 {
            reader.feed(&[b'x'; 1 << 16]);
        }
        reader.feed(b"\"}}],\"usage\":{\"prompt_tokens\":3}}\n\n");
        assert_eq!(reader.facts().usage.prompt_tokens, Some(3));
        assert!(size_of::<ResponseReader>() < 1024, "all the state there is");
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod any_bytes {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn cuts_of_anything_are_read_alike(
            pieces in proptest::collection::vec(proptest::sample::select(vec![
                "data:", "data: ", "data", "event: x", ":", " ", "\n", "\r", "\r\n", "\n\n", "{}", "{", "}",
                "[DONE]", "{\"usage\":{\"prompt_tokens\":1}}", "{\"error\":1}", "{\"choices\":[{\"text\":\"a\"}]}",
                "{\"type\":\"response.completed\",\"response\":{\"status\":\"incomplete\",\"usage\":{\"input_tokens\":\"7\"}}}",
                "{\"text\":\"a\",\"meta_info\":{\"finish_reason\":{\"type\":\"stop\"},\"cached_tokens\":2}}",
                "\"usage\":", "\"output_ids\":[1",
                "\u{feff}", "é", "\"",
            ]), 0..24),
            cuts in proptest::collection::vec(any::<usize>(), 0..5),
        ) {
            let text = pieces.concat();
            let whole = read(stream_reader(), [text.as_bytes()], End::Clean);
            let (mut rest, mut slices) = (text.as_bytes(), Vec::new());
            for cut in cuts {
                let (head, tail) = rest.split_at(cut % (rest.len() + 1));
                slices.push(head);
                rest = tail;
            }
            slices.push(rest);
            prop_assert_eq!(read(stream_reader(), slices, End::Clean), whole);
            prop_assert_eq!(read(stream_reader(), text.as_bytes().chunks(1), End::Clean), whole);
        }

        /// Chunks whose beginnings are the same, nearly the same, or not at all: byte by byte no opening is ever known.
        #[test]
        fn chunks_that_begin_alike_are_read_as_if_they_did_not(
            chunks in proptest::collection::vec((0usize..3, 0usize..4, proptest::sample::select(vec![
                "\"choices\":[{\"delta\":{\"content\":\"a\"}}]}", "\"choices\":[{\"delta\":{\"content\":\"\"}}]}",
                "\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}",
                "\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}",
                "\"error\":{\"code\":500}}", "\"choices\":[{\"text\":\"é\"}]} ", "\"choices\":[", "}", "]", "",
            ])), 0..12),
            size in 2usize..200,
        ) {
            let text: String = chunks
                .into_iter()
                .map(|(begins, created, rest)| {
                    let begins = [
                        "{\"id\":\"chatcmpl-8f14e45fceea167a5a36dedd4bea2543\",",
                        "{\"id\":\"chatcmpl-8f14e45fceea167a5a36dedd4bea2543\",\"object\":\"chat.completion.chunk\",",
                        "{",
                    ][begins];
                    format!("data: {begins}\"created\":{created},{rest}\n\n")
                })
                .collect();
            let whole = read(stream_reader(), [text.as_bytes()], End::Clean);
            prop_assert_eq!(read(stream_reader(), text.as_bytes().chunks(1), End::Clean), whole);
            prop_assert_eq!(read(stream_reader(), text.as_bytes().chunks(size), End::Clean), whole);
        }
    }
}
