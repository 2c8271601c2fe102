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

    #[test]
    fn the_input_is_as_long_as_what_is_visited(
        parts in proptest::collection::vec((0..4, "\\PC{0,9}"), 0..6),
        prompts in proptest::collection::vec(any::<String>(), 1..4),
        rows in proptest::collection::vec(proptest::collection::vec(any::<u32>(), 1..5), 1..4),
    ) {
        let parts: Vec<_> = parts.iter().map(|(kind, text)| match kind {
            0 => serde_json::json!({"type": "image_url", "image_url": {"url": text}}),
            1 => serde_json::json!({"type": "video_url", "video_url": text}),
            2 => serde_json::json!({"type": "input_audio", "input_audio": {"data": text}}),
            _ => serde_json::json!({"type": "text", "text": text}),
        }).collect();
        let ids = rows.iter().map(|row| row.len() as u64).sum();
        for (path, body, token_ids) in [
            (PathClass::Chat, serde_json::json!({"model": "m", "messages": [{"role": "user", "content": parts}]}), 0),
            (PathClass::Completions, serde_json::json!({"model": "m", "prompt": prompts}), 0),
            (PathClass::Completions, serde_json::json!({"model": "m", "prompt": rows}), ids),
        ] {
            let body = serde_json::to_vec(&body).unwrap();
            let facts = scan_slices(path, [body.as_slice()]).unwrap();
            let length = InputLength::of(&facts);
            prop_assert_eq!(length.token_ids, token_ids);
            prop_assert_eq!(length.bytes + 4 * token_ids, visited(&facts));
        }
    }
}
