//! What is asked of the model: prompts and messages of every shape.

use super::*;

crate::tests! {
    fn prompts_of_every_shape() {
        for (prompt, expected) in [
            (r#""hello""#, vec!["hello"]),
            (r#"["hello"]"#, vec!["hello"]),
            (r#"["a","","c"]"#, vec!["a", "", "c"]),
            ("[1,2,3]", vec!["[1, 2, 3]"]),
            ("[0]", vec!["[0]"]),
            ("[1.0]", vec!["[1]"]),
            ("[[1,2],[3]]", vec!["[1, 2]", "[3]"]),
        ] {
            let facts = completion_of(prompt).unwrap();
            let prompts: Vec<_> = facts.prompts().iter().map(|p| prompt_of(&facts, *p)).collect();
            assert_eq!(prompts, expected, "{prompt}");
            assert_eq!(facts.prompt_count(), expected.len());
        }
    }

    fn messages_that_lack_things_are_accepted() {
        let facts = chat_of(r#"[{"content":"a"},{"role":"developer"},{"role":null,"content":[]},{}]"#);
        assert_eq!(facts.unwrap().messages().len(), 4);
    }

    fn content_parts_of_every_kind() {
        for (part, expected) in [
            (r#"{"type":"text","text":"a"}"#, "text:a"),
            (r#"{"text":"a"}"#, "text:a"),
            (r#""a""#, "text:a"),
            (r#"{"type":"input_text","text":"a"}"#, "text:a"),
            (r#"{"type":"text"}"#, "other"),
            (r#"{"type":"text","text":null}"#, "other"),
            (r#"{"type":"refusal","refusal":"no"}"#, "other"),
            (r#"{}"#, "other"),
            (r#"{"image_url":{"url":"u"},"type":"image_url"}"#, "Image:u:"),
            (r#"{"type":"image_url","image_url":"u"}"#, "Image:u:"),
            (r#"{"image_url":{"url":"u"}}"#, "Image:u:"),
            (r#"{"type":"image_url","image_url":{"url":{"url":"u"}}}"#, "other"),
            (r#"{"type":"image_url","image_url":null}"#, "other"),
            (r#"{"type":"video_url","video_url":{"url":"v"}}"#, "Video:v:"),
            (r#"{"type":"audio_url","audio_url":{"url":"a"}}"#, "Audio:a:"),
            (r#"{"type":"input_audio","input_audio":{"format":"wav","data":"AAAA"}}"#, "Audio:AAAA:wav"),
            (r#"{"type":"text","text":"a","image_url":{"url":"u"}}"#, "text:a"),
            (r#"{"type":"image_url","text":"a","image_url":{"url":"u"}}"#, "Image:u:"),
        ] {
            let facts = chat_of(&format!(r#"[{{"role":"user","content":[{part}]}}]"#)).unwrap();
            assert_eq!(content(&facts, &facts.messages()[0]), [expected], "{part}");
        }
    }

    fn reasoning_has_two_names() {
        for fields in [
            r#""reasoning":"r""#,
            r#""reasoning_content":"r""#,
            r#""reasoning":"r","reasoning_content":null"#,
            r#""reasoning":"r","reasoning_content":"old""#,
            r#""reasoning_content":"old","reasoning":"r""#,
            r#""reasoning":null,"reasoning_content":"r""#,
        ] {
            let facts = chat_of(&format!("[{{{fields}}}]")).unwrap();
            let reasoning = facts.messages()[0].reasoning.map(|span| facts.str(span));
            assert_eq!(reasoning, Some("r"), "{fields}");
        }
    }
}
