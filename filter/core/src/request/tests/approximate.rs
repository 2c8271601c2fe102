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

    fn the_input_is_as_long_as_what_is_visited() {
        // Its tools are counted as they were written.
        let tools = r#"{"function":{"a":"1","b":1,"name":"f"},"type":"function"}"#;
        let as_sorted = FULL_CHAT.replace(r#""tools":[ {"type":"function","function":{"name":"f","b":1,"a":"<"}} ]"#, &format!(r#""tools":[{tools}]"#));
        assert_ne!(as_sorted, FULL_CHAT);
        let media = r#"{"model":"m","messages":[{"content":["abc",{"type":"video_url","video_url":{"url":"v"}},"d",
            {"type":"input_audio","input_audio":{"format":"wav","data":"AAAAAA"}}]}]}"#;
        let responses = r#"{"model":"m","input":[{"role":"user","content":"x"}],"instructions":"Be brief.","tools":[{"b":1,"a":2}]}"#;
        let messages = r#"{"model":"m","max_tokens":1,"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"s"}],
            "messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"a"},
            {"type":"image","source":{"data":"d"}},{"type":"text","text":"b"}]}]}]}"#;
        for (path, body, token_ids) in [
            (PathClass::Chat, as_sorted.as_str(), 0),
            (PathClass::Chat, media, 0),
            (PathClass::Messages, messages, 0),
            (PathClass::Responses, responses, 0),
            (PathClass::Completions, r#"{"model":"m","prompt":["one","three"]}"#, 0),
            (PathClass::Completions, r#"{"model":"m","prompt":[1,2,3]}"#, 3),
            (PathClass::Completions, FULL_COMPLETION, 4),
            (PathClass::Embeddings, r#"{"model":"m","input":[[1],[2,3]]}"#, 3),
            (PathClass::Generate, r#"{"model":"m","token_ids":[1,258]}"#, 2),
            (PathClass::SglangGenerate, r#"{"input_ids":[7]}"#, 1),
            (PathClass::Images, r#"{"model":"m","prompt":"a cat"}"#, 0),
        ] {
            let facts = scan_slices(path, [body.as_bytes()]).unwrap();
            let length = InputLength::of(&facts);
            assert_eq!(length.token_ids, token_ids, "{body}");
            assert_eq!(length.bytes + 4 * length.token_ids, visited(&facts), "{body}");
        }
    }
}
