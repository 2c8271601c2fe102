//! Turns of a conversation share a key, other conversations have another.

use super::*;

fn key(path: PathClass, fields: &str) -> u64 {
    let body = format!(r#"{{"model":"m",{fields}}}"#);
    scan_slices(path, [body.as_bytes()]).unwrap().conversation_key()
}

fn chat_key(messages: &str) -> u64 {
    key(PathClass::Chat, &format!(r#""messages":[{messages}]"#))
}

const SYSTEM: &str = r#"{"role":"system","content":"Be brief."}"#;
const FIRST: &str = r#"{"role":"user","content":"Hi"}"#;

crate::tests! {
    fn later_turns_keep_the_key() {
        let first = chat_key(&format!("{SYSTEM},{FIRST}"));
        for later in [
            r#"{"role":"assistant","content":"Hello"},{"role":"user","content":"And?"}"#,
            r#"{"role":"assistant","tool_calls":[{}]},{"role":"tool","content":"5"},{"role":"system","content":"New rule"}"#,
        ] {
            assert_eq!(chat_key(&format!("{SYSTEM},{FIRST},{later}")), first, "{later}");
        }
    }

    fn how_it_is_written_does_not_matter() {
        let first = chat_key(&format!("{SYSTEM},{FIRST}"));
        for same in [
            r#"{"content":"Be brief.","role":"system"},{"name":"n","content":"H\u0069","role":"user"}"#,
            r#"{"role":"system","content":[{"type":"text","text":"Be "},"brief."]},{"role":"user","content":[{"type":"text","text":"Hi"}]}"#,
            r#"{"role":"developer","content":"Be "},{"role":"system","content":"brief."},{"role":"user","content":"Hi"}"#,
        ] {
            assert_eq!(chat_key(same), first, "{same}");
        }
    }

    fn other_openings_have_other_keys() {
        let openings = [
            format!("{SYSTEM},{FIRST}"),
            FIRST.to_owned(),
            SYSTEM.to_owned(),
            format!(r#"{SYSTEM},{{"role":"user","content":"Hi "}}"#),
            format!(r#"{SYSTEM},{{"role":"user","content":"hi"}}"#),
            format!(r#"{{"role":"system","content":"Be brief. "}},{FIRST}"#),
            r#"{"role":"system","content":"Be brief.Hi"},{"role":"user","content":""}"#.to_owned(),
            r#"{"role":"user","content":"Be brief.Hi"}"#.to_owned(),
            format!(r#"{SYSTEM},{{"role":"assistant","content":"Hello"}}"#),
            r#"{"role":"user","content":["Hi",{"type":"image_url","image_url":{"url":"a"}}]}"#.to_owned(),
            r#"{"role":"user","content":["Hi",{"type":"image_url","image_url":{"url":"b"}}]}"#.to_owned(),
            r#"{"role":"user","content":["Hi",{"type":"video_url","video_url":{"url":"b"}}]}"#.to_owned(),
            r#"{"role":"user","content":["Hia"]}"#.to_owned(),
        ];
        let keys: std::collections::BTreeSet<u64> = openings.iter().map(|o| chat_key(o)).collect();
        assert_eq!(keys.len(), openings.len());
    }

    fn anthropics_system_counts_but_not_its_billing_line() {
        let of = |system: &str, more: &str| {
            key(PathClass::Messages, &format!(r#""system":{system},"messages":[{FIRST}{more}]"#))
        };
        let first = of(r#""Be brief.""#, "");
        let blocks = r#"[{"type":"text","text":"x-anthropic-billing-header: 17"},{"type":"text","text":"Be brief."}]"#;
        assert_eq!(of(blocks, r#",{"role":"assistant","content":"Hello"}"#), first);
        assert_ne!(of(r#""Be long.""#, ""), first);
        assert_eq!(first, chat_key(&format!("{SYSTEM},{FIRST}")), "the same as a chat");
    }

    fn responses_have_it_in_instructions_and_input() {
        let of = |fields: &str| key(PathClass::Responses, fields);
        let first = of(r#""instructions":"Be brief.","input":"Hi""#);
        for same in [
            r#""instructions":"Be brief.","input":[{"role":"user","content":"Hi"}]"#,
            r#""instructions":"Be brief.","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]},{"type":"function_call","name":"f","arguments":"{}"}]"#,
            r#""input":[{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi"},{"role":"user","content":"More"}]"#,
        ] {
            assert_eq!(of(same), first, "{same}");
        }
        assert_ne!(of(r#""instructions":"Be brief.","input":"Ho""#), first);
        let items = r#""items":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]"#;
        assert_eq!(key(PathClass::Conversations, items), first);
    }

    fn a_prompt_counts_by_its_first_256_bytes() {
        let of = |prompt: &str| key(PathClass::Completions, &format!(r#""prompt":{prompt}"#));
        let start = "x".repeat(256);
        assert_eq!(of(&format!(r#""{start}a""#)), of(&format!(r#"["{start}bc","other"]"#)));
        assert_ne!(of(r#""xa""#), of(r#""xb""#));
        assert_ne!(of("[1,2]"), of("[1,3]"));
        let ids = key(PathClass::Generate, r#""token_ids":[1,2]"#);
        assert_eq!(of("[1,2]"), ids);
    }
}
