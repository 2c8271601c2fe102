//! What a client that did not ask for usage is sent.

use super::{Asked, UsageShaper};
use crate::request::{BodyScan, PathClass, Scratch};
use crate::response::any_split::{every_cut, forwarded};
use serde_json::Value;

fn shape<'a>(slices: impl IntoIterator<Item = &'a [u8]>, asked: Asked) -> Vec<u8> {
    let mut shaper = UsageShaper::new(asked);
    let mut out = forwarded(slices, |slice| shaper.feed(slice));
    out.extend_from_slice(&shaper.finish());
    out
}

/// Every way to cut it in two, and byte by byte, must give the same as the whole.
fn shape_every_cut(stream: &str, asked: Asked) -> String {
    String::from_utf8(every_cut(stream.as_bytes(), |slices| shape(slices, asked))).unwrap()
}

fn event(json: &str) -> String {
    format!("data: {json}\n\n")
}

const FIXTURES: &[&str] = &[
    include_str!("../fixtures/sse_chat_continuous_usage.txt"),
    include_str!("../fixtures/sse_completion_continuous_usage.txt"),
    include_str!("../fixtures/sse_chat_include_usage.txt"),
    include_str!("../fixtures/sse_completion_include_usage.txt"),
    include_str!("../fixtures/sse_force_usage.txt"),
];

/// The payloads of a captured stream, with the usage taken out as a reader of JSON would.
fn expected(stream: &str, asked: Asked) -> Vec<Value> {
    let payloads = stream.lines().filter_map(|line| line.strip_prefix("data: {"));
    let values = payloads.map(|rest| serde_json::from_str::<Value>(&format!("{{{rest}")).unwrap());
    values
        .filter_map(|mut value| {
            let is_last = value["choices"].as_array().unwrap().is_empty();
            if is_last && asked == Asked::Nothing {
                return None;
            }
            if !is_last {
                value.as_object_mut().unwrap().remove("usage");
            }
            Some(value)
        })
        .collect()
}

crate::tests! {
    fn only_what_the_client_did_not_ask_for_is_taken_out() {
        let asked = |options: &str, continuous| {
            let body = format!(r#"{{"model":"m","prompt":"x","stream":true{options}}}"#);
            let mut scan = BodyScan::new(PathClass::Completions, Scratch::default());
            scan.feed(body.as_bytes()).unwrap();
            Asked::by(&scan.finish().unwrap(), continuous)
        };
        for (options, last, each) in [
            ("", Some(Asked::Nothing), Some(Asked::Nothing)),
            (r#","stream_options":null"#, Some(Asked::Nothing), Some(Asked::Nothing)),
            (r#","stream_options":{"include_usage":false}"#, Some(Asked::Nothing), Some(Asked::Nothing)),
            (r#","stream_options":{"continuous_usage_stats":true}"#, Some(Asked::Nothing), Some(Asked::Nothing)),
            (r#","stream_options":{"include_usage":true}"#, None, Some(Asked::LastChunk)),
            (r#","stream_options":{"include_usage":true,"continuous_usage_stats":true}"#, None, None),
            (r#","stream":false"#, None, None),
        ] {
            assert_eq!((asked(options, false), asked(options, true)), (last, each), "{options}");
        }
    }

    fn captured_streams_lose_their_usage_and_nothing_else() {
        for stream in FIXTURES {
            for asked in [Asked::Nothing, Asked::LastChunk] {
                let out = shape([stream.as_bytes()], asked);
                assert_eq!(shape(stream.as_bytes().chunks(7), asked), out);
                let out = String::from_utf8(out).unwrap();
                let payloads: Vec<Value> = out
                    .lines()
                    .filter_map(|line| line.strip_prefix("data: {"))
                    .map(|rest| serde_json::from_str(&format!("{{{rest}")).unwrap())
                    .collect();
                assert_eq!(payloads, expected(stream, asked));
                let events = out.split("\n\n").filter(|event| !event.is_empty()).count();
                assert_eq!(events, payloads.len() + 1, "every event, and [DONE]: {out}");
                assert!(out.ends_with("data: [DONE]\n\n"));
            }
        }
    }

    fn the_last_chunk_goes_whole() {
        let before = event(r#"{"choices":[{"text":"a"}]}"#);
        let done = "data: [DONE]\n\n";
        for chunk in [
            r#"{"id":"x","choices":[],"usage":{"prompt_tokens":1}}"#,
            r#"{"usage":{"a":{}},"choices":[ ],"z":1}"#,
            r#"{"choices":null,"usage":{}}"#,
            r#"{"choices":[],"usage":null,"usage":{}}"#,
        ] {
            for (start, end) in [("data: ", "\n\n"), ("data:", "\n\n"), ("id: 7\nevent: e\ndata: ", "\n\n"), ("data: ", "\n")] {
                for break_ in ["\n", "\r\n", "\r"] {
                    let with = |middle: &str| format!("{before}{middle}{done}").replace('\n', break_);
                    let stream = with(&format!("{start}{chunk}{end}"));
                    assert_eq!(shape_every_cut(&stream, Asked::Nothing), with(""));
                    assert_eq!(shape_every_cut(&stream, Asked::LastChunk), stream);
                }
            }
        }
        // One JSON on several lines, and the end of the stream without a line end.
        let lines = "data: {\"choices\":\ndata: [],\ndata: \"usage\":\ndata: {}}\n\n";
        assert_eq!(shape_every_cut(&format!("{before}{lines}{done}"), Asked::Nothing), format!("{before}{done}"));
        assert_eq!(shape_every_cut("data: {\"choices\":[],\"usage\":{}}", Asked::Nothing), "");
    }

    fn what_stands_beside_the_last_chunk_stays() {
        for (stream, expected) in [
            (": c\n\ndata: {\"choices\":[],\"usage\":{}}\n\n: d\n\n", ": c\n\n: d\n\n"),
            ("data: {\"choices\":[],\"usage\":{}}\n: d\n\ndata: x\n\n", ": d\n\ndata: x\n\n"),
            ("data: {\"choices\":[],\"usage\":{}}\nid: 1\n\n", "id: 1\n\n"),
            ("data: {\"choices\":[],\"usage\":{}}\n\n\n\n", "\n\n"),
            ("id: 1\n\ndata: {\"choices\":[],\"usage\":{}}\n\n", "id: 1\n\n"),
            ("data: {\"choices\":[],\"usage\":{}}\ndata: {\"choices\":[1]}\n\n", "data: {\"choices\":[1]}\n\n"),
        ] {
            assert_eq!(shape_every_cut(stream, Asked::Nothing), expected);
        }
    }

    fn the_field_goes_with_its_comma() {
        for (chunk, shaped) in [
            (r#"{"choices":[1],"usage":{"a":[1,{"usage":2}]},"z":1}"#, r#"{"choices":[1],"z":1}"#),
            (r#"{"choices":[1] , "usage" : null }"#, r#"{"choices":[1] }"#),
            (r#"{"usage":5 , "choices":[1]}"#, r#"{"choices":[1]}"#),
            (r#"{ "usage":"x","usage":true, "a":1,"choices":["x"]}"#, r#"{"a":1,"choices":["x"]}"#),
            (r#"{"choices":[[]],"usage":1,"usage":2,"b":3,"usage":4}"#, r#"{"choices":[[]],"b":3}"#),
            (r#"{"n":12,"us\u0061ge":{},"choices":[1]}"#, r#"{"n":12,"choices":[1]}"#),
            (r#"{"choices":[{"usage":{},"delta":{"content":"\"usage\":{}"}}],"x":{"usage":1}}"#,
             r#"{"choices":[{"usage":{},"delta":{"content":"\"usage\":{}"}}],"x":{"usage":1}}"#),
            (r#"{"choices":{},"usage":{}}"#, r#"{"choices":{}}"#),
            (r#"{"choices":"x","usage":{}}"#, r#"{"choices":"x"}"#),
        ] {
            for asked in [Asked::Nothing, Asked::LastChunk] {
                assert_eq!(shape_every_cut(&event(chunk), asked), event(shaped));
            }
        }
        let lines = "data: {\"choices\":[1],\"usage\":\ndata: 5\ndata: ,\"a\":1}\n\n";
        assert_eq!(shape_every_cut(lines, Asked::Nothing), "data: {\"choices\":[1]\ndata: ,\"a\":1}\n\n");
    }

    fn chunks_without_choices_keep_their_event() {
        for (chunk, shaped) in [
            (r#"{"usage":{}}"#, "{}"),
            (r#"{"a":1,"usage":{}}"#, r#"{"a":1}"#),
            (r#"{"choices":[],"usage":null}"#, r#"{"choices":[]}"#),
            (r#"{"choices":[],"prompt_filter_results":[]}"#, r#"{"choices":[],"prompt_filter_results":[]}"#),
            (r#"{"error":{"message":"m"}}"#, r#"{"error":{"message":"m"}}"#),
        ] {
            assert_eq!(shape_every_cut(&event(chunk), Asked::Nothing), event(shaped));
            assert_eq!(shape_every_cut(&event(chunk), Asked::LastChunk), event(chunk));
        }
    }

    fn what_is_broken_passes() {
        for stream in [
            "data: {\"choices\":[],\"usage\":{}\n\n",
            "data: {\"choices\":[],\"usage\":{}} x\n\n",
            "data: {\"choices\":[],\"usage\":{}\n\ndata: [DONE]\n\n",
            "data: {\"choices\":[1],\"usage\":{x}}\n\n",
            "data: {\"choices\":[1],\"usage\":{",
            "data: [{\"usage\":{}}]\n\n",
            "datas: {\"choices\":[],\"usage\":{}}\n\n",
            "{\"choices\":[],\"usage\":{}}",
            "data: \ndata\n\n",
            "",
        ] {
            assert_eq!(shape_every_cut(stream, Asked::Nothing), stream);
        }
    }

    fn only_what_may_go_is_held_back() {
        let mut shaper = UsageShaper::new(Asked::Nothing);
        for (slice, forwarded) in [
            (": keep-alive\n\n", None),
            ("data: {\"id\":1,\"choices\":[", Some("")),
            ("{\"delta\":", Some("data: {\"id\":1,\"choices\":[{\"delta\":")),
            ("{\"content\":\"a", None),
            ("\"}}]", None),
            (",\"us", Some("")),
            ("er\":", Some(",\"user\":")),
            ("1,\"usage\":{\"a\":", Some("1")),
            ("2}", Some("")),
            ("}\n", None),
            ("\n", None),
            ("data: {\"choices\":[],\"usage\":{", Some("")),
            ("}}\n", Some("")),
            ("\n", Some("")),
            ("data: [", None),
            ("DONE]\n\n", None),
        ] {
            let got = shaper.feed(slice.as_bytes());
            assert_eq!(got.as_deref(), forwarded.map(str::as_bytes), "{slice}");
        }
        assert!(shaper.finish().is_empty());
    }

    fn a_long_event_is_not_held() {
        let long = format!("data: {{\"a\":\"{}\"", "x".repeat(20 << 10));
        let mut shaper = UsageShaper::new(Asked::Nothing);
        let mut out = Vec::new();
        for slice in long.as_bytes().chunks(1024) {
            out.extend(shaper.feed(slice).unwrap_or_else(|| slice.to_vec()));
        }
        assert!(out.len() > 15 << 10 && shaper.held.is_empty());
        out.extend(shaper.feed(b"}\n\ndata: {\"choices\":[],\"usage\":{}}\n\n").unwrap_or_default());
        assert_eq!(String::from_utf8(out).unwrap(), format!("{long}}}\n\n"));
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod any_bytes {
    use super::*;
    use crate::response::any_split::any_bytes::{sizes, slices, soup};
    use crate::response::{End, ResponseReader};
    use proptest::prelude::*;

    const PIECES: &[&str] = &[
        "id: 1\n",
        "\"usage\":",
        "\"usage\":{}",
        ",\"usage\":{}",
        "\"choices\":[]",
        "\"choices\":[1]",
        "\"choices\":",
        "data: {\"choices\":[],\"usage\":{}}\n\n",
        "data: {\"choices\":[{}],\"usage\":{}}\n",
    ];

    fn chunk() -> impl Strategy<Value = String> {
        const USAGE: &[&str] =
            &["", r#","usage":null"#, r#","usage":{"prompt_tokens":9,"completion_tokens":2}"#];
        ("[a-z\"\\\\\u{e9}]{0,8}", proptest::sample::select(USAGE), any::<bool>(), any::<bool>())
            .prop_map(|(text, usage, first, ends)| {
                let choices = format!(
                    r#""choices":[{{"index":0,"delta":{{"content":{}}}}}]"#,
                    Value::from(text)
                );
                let usage = usage.trim_start_matches(',');
                let fields = match (first, usage) {
                    (_, "") => choices,
                    (true, usage) => format!("{usage},{choices}"),
                    (false, usage) => format!("{choices},{usage}"),
                };
                format!("data: {{{fields}}}{}", if ends { "\r\n\r\n" } else { "\n\n" })
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_split_of_anything_gives_the_same(
            body in prop_oneof![4 => soup(PIECES), 1 => proptest::collection::vec(any::<u8>(), 0..64)],
            sizes in sizes(),
            keeps_last in any::<bool>(),
        ) {
            let asked = if keeps_last { Asked::LastChunk } else { Asked::Nothing };
            let whole = shape([body.as_slice()], asked);
            prop_assert_eq!(shape(slices(&body, &sizes), asked), whole);
        }

        #[test]
        fn a_client_reads_all_but_the_usage(
            chunks in proptest::collection::vec(chunk(), 0..8), size in 1usize..40,
        ) {
            let last = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9}}\n\n";
            let stream = format!("{}{last}data: [DONE]\n\n", chunks.concat());
            let out = shape(stream.as_bytes().chunks(size), Asked::Nothing);
            let mut reader = ResponseReader::for_headers(200, Some(b"text/event-stream"), None);
            reader.feed(&out);
            let facts = reader.finish(End::Clean).facts;
            prop_assert_eq!((facts.chunks, facts.bad_chunks, facts.done), (chunks.len() as u64, 0, true));
            prop_assert_eq!(facts.usage.prompt_tokens, None);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).matches("\"content\"").count();
            prop_assert_eq!(text(&out), chunks.len());
        }
    }
}
