//! Changed bytes of a body: what the engine reads afterwards, and that nothing else changes.

use super::*;
use crate::request::{Splice, spliced};
use serde_json::{Value, json};

fn rename(body: &str, facts: &RequestFacts, name: &str) -> String {
    let out = spliced(body.as_bytes(), &mut facts.model_splices(name)).unwrap();
    String::from_utf8(out).unwrap()
}

fn ask_usage(body: &str, continuous: bool) -> Option<String> {
    let mut splices = completion(body).unwrap().usage_splices(continuous);
    let changed = !splices.is_empty();
    changed.then(|| String::from_utf8(spliced(body.as_bytes(), &mut splices).unwrap()).unwrap())
}

crate::tests! {
    fn every_model_is_renamed() {
        for (body, expected) in [
            (r#"{"model":"m","prompt":"x"}"#, r#"{"model":"n\"","prompt":"x"}"#),
            (r#" { "prompt" : "x" , "model" : "m" } "#, r#" { "prompt" : "x" , "model" : "n\"" } "#),
            (r#"{"model":"a","prompt":"x","model":"m"}"#, r#"{"model":"n\"","prompt":"x","model":"n\""}"#),
            (r#"{"model":null,"model":[{"model":1},"]"],"model":{"a":"}"},"model":7,"prompt":"x","model":"m"}"#,
             r#"{"model":"n\"","model":"n\"","model":"n\"","model":"n\"","prompt":"x","model":"n\""}"#),
            (r#"{"\u006dodel":"m","prompt":"x","o":{"model":"m"}}"#, r#"{"\u006dodel":"n\"","prompt":"x","o":{"model":"m"}}"#),
        ] {
            let facts = completion(body).unwrap();
            assert_eq!(facts.model_name(), "m");
            assert_eq!(rename(body, &facts, "n\""), expected);
        }
    }

    fn a_missing_model_is_put_in_front_if_it_may_be_missing() {
        let body = " {\"prompt\":\"x\"}";
        assert_eq!(completion(body).unwrap_err(), RequestError::MissingModel);
        let mut scan = BodyScan::new(PathClass::Completions, Scratch::default());
        scan.allow_no_model();
        scan.feed(body.as_bytes()).unwrap();
        let facts = scan.finish().unwrap();
        assert_eq!(facts.model_name(), "");
        assert_eq!(rename(body, &facts, "n"), " {\"model\":\"n\",\"prompt\":\"x\"}");
    }

    fn too_many_models_are_refused() {
        let body = |n| format!(r#"{{{}"prompt":"x"}}"#, r#""model":"m","#.repeat(n));
        assert!(completion(&body(16)).is_ok());
        assert_eq!(completion(&body(17)).unwrap_err(), RequestError::TooMany { field: "model", limit: 16 });
    }

    fn usage_is_asked_for_where_a_stream_does_not() {
        let body = |rest: &str| format!(r#"{{"model":"m","prompt":"x","stream":true{rest}}}"#);
        for (options, expected) in [
            (r#","stream_options":{}"#, r#","stream_options":{"include_usage":true}"#),
            (r#","stream_options": { "a":1}"#, r#","stream_options": {"include_usage":true, "a":1}"#),
            (r#","stream_options":null"#, r#","stream_options":{"include_usage":true}"#),
            (r#","stream_options":{"include_usage":false}"#, r#","stream_options":{"include_usage":true}"#),
            (r#","stream_options":{"include_usage": [{}] }"#, r#","stream_options":{"include_usage": true }"#),
            (r#","stream_options":{"include_usage":true,"include_usage":null}"#,
             r#","stream_options":{"include_usage":true,"include_usage":true}"#),
            (r#","stream_options":{"include_usage":true},"stream_options":{}"#,
             r#","stream_options":{"include_usage":true},"stream_options":{"include_usage":true}"#),
        ] {
            assert_eq!(ask_usage(&body(options), false), Some(body(expected)), "{options}");
        }
        let added = body("").replacen('{', r#"{"stream_options":{"include_usage":true},"#, 1);
        assert_eq!(ask_usage(&body(""), false), Some(added));
        for options in [r#","stream_options":{"include_usage":true}"#, r#","stream_options":7"#, r#","stream":false"#] {
            assert_eq!(ask_usage(&body(options), false), None, "{options}");
        }
    }

    fn usage_of_each_chunk_is_asked_for_on_top() {
        let body = |options: &str| format!(r#"{{"model":"m","prompt":"x","stream":true,"stream_options":{options}}}"#);
        let both = r#"{"include_usage":true,"continuous_usage_stats":true}"#;
        for (options, expected) in [
            ("{}", both),
            ("null", both),
            (r#"{"a":1}"#, r#"{"include_usage":true,"continuous_usage_stats":true,"a":1}"#),
            (r#"{"include_usage":true}"#, r#"{"continuous_usage_stats":true,"include_usage":true}"#),
            (r#"{"continuous_usage_stats":false}"#, r#"{"include_usage":true,"continuous_usage_stats":true}"#),
            (r#"{"continuous_usage_stats":null,"include_usage":0}"#, r#"{"continuous_usage_stats":true,"include_usage":true}"#),
        ] {
            assert_eq!(ask_usage(&body(options), true), Some(body(expected)), "{options}");
        }
        let none = r#"{"model":"m","prompt":"x","stream":true}"#;
        let added = format!(r#"{{"stream_options":{both},{}"#, &none[1..]);
        assert_eq!(ask_usage(none, true), Some(added));
        assert_eq!(ask_usage(&body(both), true), None);
        assert_eq!(ask_usage(&body("7"), true), None);
        assert_eq!(ask_usage(&none.replace("true", "false"), true), None);
    }

    fn what_the_engine_takes_for_true_is_a_stream() {
        for (value, streams) in [
            ("true", true), ("1", true), ("1.0", true), ("\"TRUE\"", true), ("\"on\"", true),
            ("false", false), ("0", false), ("2", false), ("\"\"", false), ("\"off\"", false), ("null", false), ("[true]", false),
        ] {
            let facts = completion(&format!(r#"{{"model":"m","prompt":"x","stream":{value}}}"#)).unwrap();
            assert_eq!(facts.stream, streams, "{value}");
        }
    }

    fn several_splices_keep_their_order_and_never_overlap() {
        let splice = |start, end, bytes: &str| Splice {
            span: crate::request::ByteSpan { start, end },
            bytes: bytes.into(),
        };
        let mut both = [splice(3, 4, "Z"), splice(1, 1, "a"), splice(1, 1, "b")];
        assert_eq!(spliced(b"0123", &mut both).unwrap(), b"0ab12Z");
        for mut wrong in [vec![splice(1, 3, ""), splice(2, 4, "")], vec![splice(3, 9, "")], vec![splice(3, 2, "")]] {
            assert_eq!(spliced(b"0123", &mut wrong), None, "{wrong:?}");
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_engine_reads_what_was_meant_and_all_else_as_before(
        name in ".*",
        continuous in proptest::bool::ANY,
        fields in proptest::collection::vec(
            proptest::sample::select(vec![
                r#""model":"a""#, r#""model":null"#, r#""model": {"model":[]}"#, r#""x":"model""#, r#""y":{"model":"a"}"#,
                r#""stream":true"#, r#""stream":false"#, r#""stream_options":null"#, r#""stream_options":{}"#,
                r#""stream_options":{"z":{}, "include_usage":false}"#, r#""stream_options":{"continuous_usage_stats":[1]}"#, r#""stream_options":{"include_usage":true}"#,
            ]),
            0..8,
        ),
    ) {
        let body = format!(r#"{{{}"model":"m","prompt":"p"}}"#, fields.iter().map(|f| format!("{f},")).collect::<String>());
        let facts = completion(&body).unwrap();
        let mut splices = facts.model_splices(&name);
        splices.extend(facts.usage_splices(continuous));
        let out = spliced(body.as_bytes(), &mut splices).unwrap();
        let out: Value = serde_json::from_slice(&out).unwrap();
        let mut expected: Value = serde_json::from_str(&body).unwrap();
        expected["model"] = json!(name);
        if expected["stream"] == json!(true) {
            expected["stream_options"]["include_usage"] = json!(true);
            if continuous {
                expected["stream_options"]["continuous_usage_stats"] = json!(true);
            }
        }
        proptest::prop_assert_eq!(out, expected);
    }
}
