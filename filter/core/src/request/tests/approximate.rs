//! The stream of bytes that stands for a prompt whose model is not known.

use super::*;

crate::tests! {
    fn approximate_stream_of_a_chat() {
        let facts = chat(FULL_CHAT).unwrap();
        let image = xxhash_rust::xxh64::xxh64(b"http://h/i.png", 0) as u32;
        let tools = r#"[{"function":{"a":"\u003c","b":1,"name":"f"},"type":"function"}]"#;
        let mut expected = format!("{tools}systemBe \"brief\".\nusersee é😀").into_bytes();
        expected.resize(expected.len().next_multiple_of(4), 0);
        for _ in 0..225 {
            expected.extend_from_slice(&image.to_le_bytes());
        }
        expected.extend_from_slice(b"assistanttool42");
        assert_eq!(stream(&facts, 0), expected);
        for limit in [0, 1, 90, 100, 101, 500, expected.len()] {
            let mut cut = Vec::new();
            visit_prompt(&facts, 0, limit, &mut |piece| cut.extend_from_slice(piece));
            assert_eq!(cut, expected[..limit], "limit {limit}");
        }
    }

    fn media_stand_for_as_many_tokens_as_guessed() {
        for (part, content, tokens) in [
            (r#"{"type":"video_url","video_url":{"url":"v"}}"#, "v", 4500),
            (r#"{"type":"input_audio","input_audio":{"format":"wav","data":"AAAAAA"}}"#, "AAAAAAwav", 3),
            (r#"{"type":"input_audio","input_audio":{"data":""}}"#, "", 1),
        ] {
            let facts = chat_of(&format!(r#"[{{"content":[{part}]}}]"#)).unwrap();
            let hash = xxhash_rust::xxh64::xxh64(content.as_bytes(), 0) as u32;
            assert_eq!(stream(&facts, 0), hash.to_le_bytes().repeat(tokens), "{part}");
        }
    }

    fn media_start_at_a_multiple_of_four() {
        for text in ["", "a", "ab", "abc", "abcd"] {
            let image = r#"{"type":"image_url","image_url":{"url":"u"}}"#;
            let facts = chat_of(&format!(r#"[{{"content":["{text}",{image}]}}]"#)).unwrap();
            let hash = xxhash_rust::xxh64::xxh64(b"u", 0) as u32;
            let mut expected = text.as_bytes().to_vec();
            expected.resize(text.len().next_multiple_of(4), 0);
            expected.extend_from_slice(&hash.to_le_bytes().repeat(225));
            assert_eq!(stream(&facts, 0), expected, "{text}");
        }
    }

    fn approximate_streams_of_completions_are_apart() {
        let facts = completion_of(r#"["one","two"]"#).unwrap();
        assert_eq!(stream(&facts, 0), b"one");
        assert_eq!(stream(&facts, 1), b"two");
        assert_eq!(stream(&facts, 2), b"");
        assert_eq!(stream(&completion_of("[1,258]").unwrap(), 0), [1, 0, 0, 0, 2, 1, 0, 0]);
    }
}
