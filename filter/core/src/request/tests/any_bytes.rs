//! Whatever a client sends is read or refused, and alike however it is cut.

use super::*;
use proptest::prelude::*;

/// Fragments of requests in any order: mostly wrong, sometimes right.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        r#""model":"m","#,
        r#""messages":["#,
        r#"{"role":"user","content":"#,
        r#""content":[{"type":"text","text":"hi"}]"#,
        r#""tools":[{}],"#,
        r#""prompt":"#,
        r#""input":["#,
        r#""input":"#,
        r#""items":["#,
        r#""token_ids":["#,
        r#""sampling_params":{"max_tokens":3}"#,
        r#""stream":true,"#,
        "1",
        "null",
        r#""x""#,
        r#""stream_options":{"include_usage":true}"#,
        r#""tool_calls":[{}]"#,
        ":",
        r#""content":"#,
    ];
    proptest::collection::vec(proptest::sample::select(PIECES), 0..14)
        .prop_map(|pieces| [b"{", pieces.concat().as_bytes(), b"}"].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_cut_of_anything_is_judged_alike(
        body in prop_oneof![soup(), proptest::collection::vec(any::<u8>(), 0..64)],
        cut in any::<usize>(),
        path in proptest::sample::select(vec![
            PathClass::Chat, PathClass::Completions, PathClass::Embeddings, PathClass::Responses, PathClass::Conversations,
            PathClass::Images, PathClass::Messages, PathClass::Generate, PathClass::SglangGenerate,
        ]),
    ) {
        let (a, b) = body.split_at(cut % (body.len() + 1));
        let judge = |facts: Result<RequestFacts, RequestError>| facts.map(|f| describe(&f));
        let whole = judge(scan_slices(path, [body.as_slice()]));
        prop_assert_eq!(judge(scan_slices(path, [a, b])), whole.clone());
        prop_assert_eq!(judge(scan_slices(path, body.chunks(1))), whole);
    }

    #[test]
    fn text_comes_through_unchanged(role in any::<String>(), text in any::<String>(), cut in any::<usize>()) {
        let body = serde_json::json!({
            "messages": [{"role": role, "content": [{"type": "text", "text": text}]}],
            "model": "m",
        });
        let body = serde_json::to_vec(&body).unwrap();
        let (a, b) = body.split_at(cut % body.len());
        let facts = scan_slices(PathClass::Chat, [a, b]).unwrap();
        prop_assert_eq!(stream(&facts, 0), [role.as_bytes(), text.as_bytes()].concat());
    }
}
