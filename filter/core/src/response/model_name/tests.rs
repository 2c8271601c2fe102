use super::ModelRestorer;
use crate::response::any_split::{every_cut, forwarded};

fn restore<'a>(slices: impl IntoIterator<Item = &'a [u8]>, names: (&str, &str)) -> Vec<u8> {
    let Some(mut restorer) = ModelRestorer::new(names.0, names.1) else {
        return forwarded(slices, |_| None);
    };
    let mut out = forwarded(slices, |slice| restorer.feed(slice));
    out.extend_from_slice(&restorer.finish());
    out
}

/// Every way to cut it in two, and byte by byte, must give the same as the whole.
fn restore_every_cut(body: &str, names: (&str, &str)) -> String {
    let whole = restore([body.as_bytes()], names);
    assert_eq!(every_cut(body.as_bytes(), |slices| restore(slices, names)), whole, "{body}");
    String::from_utf8(whole).unwrap()
}

crate::tests! {
    fn the_models_field_is_restored_and_nothing_else() {
        for (body, expected) in [
            (r#"{"model":"base"}"#, r#"{"model":"mine"}"#),
            (r#" {"id":"1", "model" : "base" ,"n":1}"#, r#" {"id":"1", "model" : "mine" ,"n":1}"#),
            (r#"{"model":"b\u0061se"}"#, r#"{"model":"mine"}"#),
            (r#"{"model":"base","model":"base"}"#, r#"{"model":"mine","model":"mine"}"#),
            // Anthropic's first event, and the Responses API's events.
            (r#"{"message":{"model":"base"},"model":"base"}"#, r#"{"message":{"model":"mine"},"model":"mine"}"#),
            (r#"{"response":{"a":[{}],"model":"base"}}"#, r#"{"response":{"a":[{}],"model":"mine"}}"#),
            // Other names, other places.
            (r#"{"model":"base2"}"#, r#"{"model":"base2"}"#),
            (r#"{"model":"bas"}"#, r#"{"model":"bas"}"#),
            (r#"{"model":""}"#, r#"{"model":""}"#),
            (r#"{"model":null,"x":"base"}"#, r#"{"model":null,"x":"base"}"#),
            (r#"{"model":["base"]}"#, r#"{"model":["base"]}"#),
            (r#"{"model":{"model":"base"}}"#, r#"{"model":{"model":"base"}}"#),
            (r#"{"metadata":{"model":"base"}}"#, r#"{"metadata":{"model":"base"}}"#),
            (r#"{"response":[{"model":"base"}]}"#, r#"{"response":[{"model":"base"}]}"#),
            (r#"{"response":{"x":{"model":"base"}}}"#, r#"{"response":{"x":{"model":"base"}}}"#),
            (r#"{"choices":[{"message":{"model":"base"}}]}"#, r#"{"choices":[{"message":{"model":"base"}}]}"#),
            (r#"{"text":"{\"model\":\"base\"}"}"#, r#"{"text":"{\"model\":\"base\"}"}"#),
            (r#"[{"model":"base"}]"#, r#"[{"model":"base"}]"#),
            // What is cut off or no JSON passes.
            (r#"{"model":"ba"#, r#"{"model":"ba"#),
            (r#"{"model":"base"#, r#"{"model":"base"#),
            (r#"{"model":"base","#, r#"{"model":"mine","#),
            (r#"{x "model":"base"}"#, r#"{x "model":"base"}"#),
            ("", ""),
            ("  ", "  "),
        ] {
            assert_eq!(restore_every_cut(body, ("base", "mine")), expected);
        }
    }

    fn every_event_of_a_stream_is_restored() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = concat!(
                ": keep-alive\n\n",
                "event: message_start\ndata: {\"message\":{\"model\":\"base\"}}\n\n",
                "data: {\"model\":\"base\",\"x\":\"model\"}\n\n",
                "data:{\"model\": \"base\"}\n",
                "data: {\"model\": \"other\"}\n\n",
                "data: {\ndata: \"model\": \"base\"\ndata: }\n\n",
                "data: {\"model\":\"ba\ndata: se\"}\n\n",
                "data: [{\"model\":\"base\"}]\n\n",
                "data: oops\ndata: {\"model\":\"base\"\n\n",
                "id: {\"model\":\"base\"}\n\n",
                "data: {\"model\":\"base\"}\n\n",
                "data: [DONE]\n\n",
            )
            .replace('\n', end);
            let expected = concat!(
                ": keep-alive\n\n",
                "event: message_start\ndata: {\"message\":{\"model\":\"mine\"}}\n\n",
                "data: {\"model\":\"mine\",\"x\":\"model\"}\n\n",
                "data:{\"model\": \"mine\"}\n",
                "data: {\"model\": \"other\"}\n\n",
                "data: {\ndata: \"model\": \"mine\"\ndata: }\n\n",
                "data: {\"model\":\"ba\ndata: se\"}\n\n",
                "data: [{\"model\":\"base\"}]\n\n",
                "data: oops\ndata: {\"model\":\"mine\"\n\n",
                "id: {\"model\":\"base\"}\n\n",
                "data: {\"model\":\"mine\"}\n\n",
                "data: [DONE]\n\n",
            )
            .replace('\n', end);
            assert_eq!(restore_every_cut(&stream, ("base", "mine")), expected);
        }
    }

    fn names_are_escaped() {
        let body = "{\"model\":\"a/\\\"b\\\\é\"}";
        let restored = restore_every_cut(body, ("a/\"b\\é", "\"\n\u{1f600}"));
        let value: serde_json::Value = serde_json::from_str(&restored).unwrap();
        assert_eq!(value["model"], "\"\n\u{1f600}");
    }

    fn equal_or_empty_names_change_nothing() {
        for names in [("base", "base"), ("", "mine"), ("base", "")] {
            let body = r#"{"model":"base","x":{"model":""}}"#;
            assert_eq!(restore_every_cut(body, names), body);
        }
    }

    fn only_a_possible_name_is_held_back() {
        let mut restorer = ModelRestorer::new("base", "mine").unwrap();
        for (slice, forwarded) in [
            ("data: {\"a\":\"b", None),
            ("\",\"model\":", None),
            ("\"ba", Some("")),
            ("s", Some("")),
            ("x", Some("\"basx")),
            ("\"}\n\ndata: {\"model\":\"", Some("\"}\n\ndata: {\"model\":")),
            ("base\"}\n\n", Some("\"mine\"}\n\n")),
            (": keep-alive\n\n", None),
        ] {
            let got = restorer.feed(slice.as_bytes());
            assert_eq!(got.as_deref(), forwarded.map(str::as_bytes), "{slice}");
        }
        assert!(restorer.finish().is_empty());
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod any_bytes {
    use super::*;
    use crate::response::any_split::any_bytes::{sizes, slices, soup};
    use proptest::prelude::*;

    const PIECES: &[&str] = &[
        "\\",
        "\"model\":",
        "\"model\": \"base\"",
        "\"base\"",
        "\"message\":{",
        "ba",
        "se\"",
        "\\u0061",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_split_of_anything_gives_the_same(
            body in prop_oneof![soup(PIECES), proptest::collection::vec(any::<u8>(), 0..64)],
            sizes in sizes(),
        ) {
            let whole = restore([body.as_slice()], ("base", "mine"));
            prop_assert_eq!(restore(slices(&body, &sizes), ("base", "mine")), whole);
        }

        #[test]
        fn a_document_stays_the_same_but_for_its_model(
            model in "base|bas|basex|other", text in any::<String>(), incoming in ".+",
        ) {
            let body = serde_json::json!({"a": text, "model": model, "z": {"model": "base", "t": text}});
            let out = restore([body.to_string().as_bytes()], ("base", &incoming));
            let mut expected = body;
            if model == "base" {
                expected["model"] = incoming.clone().into();
            }
            let out: serde_json::Value = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(out, expected);
        }
    }
}
