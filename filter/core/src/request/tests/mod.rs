//! Tables of bodies and what is read of them.

#[cfg(not(target_arch = "wasm32"))]
mod any_bytes;
mod apis;
mod approximate;
mod conversation;
mod splice;

use super::error::MessageFault;
use super::scratch::{KEEP_BYTES, MAX_ITEMS};
use super::{
    BodyScan, Content, Message, Part, PathClass, Prompt, RequestError, RequestFacts, Scratch,
    TextSpan, visit_prompt,
};
use crate::json::{JsonError, JsonErrorKind};
use std::fmt::Write;

pub(super) fn scan_slices<'a>(
    path: PathClass,
    slices: impl IntoIterator<Item = &'a [u8]>,
) -> Result<RequestFacts, RequestError> {
    let mut scan = BodyScan::new(path, Scratch::default());
    for slice in slices {
        if let Err(error) = scan.feed(slice) {
            assert_eq!(scan.feed(b"{}"), Err(error), "an error stays");
            return Err(scan.finish().expect_err("an error stays"));
        }
    }
    scan.finish()
}

const MISSING_PROMPT: RequestError = RequestError::MissingInput { field: "prompt" };
const BAD_PROMPT: RequestError = RequestError::BadInput { field: "prompt" };

fn chat(body: &str) -> Result<RequestFacts, RequestError> {
    scan_slices(PathClass::Chat, [body.as_bytes()])
}

fn completion(body: &str) -> Result<RequestFacts, RequestError> {
    scan_slices(PathClass::Completions, [body.as_bytes()])
}

/// A chat with `messages`.
fn chat_of(messages: &str) -> Result<RequestFacts, RequestError> {
    chat(&format!(r#"{{"model":"m","messages":{messages}}}"#))
}

/// A completion with `prompt`.
fn completion_of(prompt: &str) -> Result<RequestFacts, RequestError> {
    completion(&format!(r#"{{"model":"m","prompt":{prompt}}}"#))
}

/// Everything that facts say, as text.
pub(super) fn describe(facts: &RequestFacts) -> String {
    let mut out = format!("{facts:?} {:?} {}", facts.model, facts.model_name());
    let text = |span: Option<TextSpan>| span.map(|span| facts.str(span).to_owned());
    let raw = |captured: Option<super::Captured>| {
        captured.map(|c| {
            let copy = String::from_utf8_lossy(facts.raw(c)).into_owned();
            (c.body, copy)
        })
    };
    write!(
        out,
        " {:?} {:?} {:?} {:x} {} {:?}",
        facts.model_spans(),
        text(match facts.input {
            Content::Text(span) => Some(span),
            _ => None,
        }),
        raw(facts.items),
        facts.conversation_key(),
        facts.is_multimodal(),
        facts.usage_splices(true),
    )
    .unwrap();
    write!(
        out,
        " {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        facts.choices,
        facts.stream_options,
        text(facts.cache_salt),
        text(facts.chat_template),
        facts.add_generation_prompt,
        facts.continue_final_message,
        raw(facts.tools),
        raw(facts.tool_choice),
        raw(facts.documents),
        raw(facts.chat_template_kwargs),
    )
    .unwrap();
    for message in facts.messages() {
        write!(
            out,
            "\n{:?} {:?} {:?} {:?} {:?} {:?}",
            text(message.role),
            text(message.name),
            text(message.tool_call_id),
            text(message.reasoning),
            raw(facts.tool_calls(message)),
            content(facts, message),
        )
        .unwrap();
    }
    let system = Message { content: facts.system, ..Message::default() };
    write!(out, "\n{:?} {:?}", content(facts, &system), facts.disables_thinking).unwrap();
    for prompt in facts.prompts() {
        write!(out, "\n{:?}", prompt_of(facts, *prompt)).unwrap();
    }
    out
}

pub(super) fn content(facts: &RequestFacts, message: &Message) -> Vec<String> {
    match message.content {
        Content::None => vec![],
        Content::Text(span) => vec![facts.str(span).to_owned()],
        Content::Parts { .. } => parts(facts, facts.parts(message.content)),
    }
}

fn parts(facts: &RequestFacts, list: &[Part]) -> Vec<String> {
    list.iter()
        .map(|part| match *part {
            Part::Text(span) => format!("text:{}", facts.str(span)),
            Part::Media { kind, content, format } => {
                format!("{kind:?}:{}:{}", facts.str(content), facts.str(format))
            }
            Part::Thinking(span) => format!("thinking:{}", facts.str(span)),
            Part::ToolUse { id, name, .. } => {
                let text = |span: Option<TextSpan>| span.map_or("-", |span| facts.str(span));
                let input = facts.tool_input(part).map_or(&b"-"[..], |input| facts.raw(input));
                let input = String::from_utf8_lossy(input);
                format!("use:{}:{}:{input}", text(id), text(name))
            }
            Part::ToolResult { id, content } => {
                let id = id.map_or("-", |span| facts.str(span));
                let result = match content {
                    Content::Text(span) => facts.str(span).to_owned(),
                    _ => format!("{:?}", parts(facts, facts.result_parts(content))),
                };
                format!("result:{id}:{result}")
            }
            Part::Skipped => "skipped".into(),
            Part::Other => "other".into(),
        })
        .collect()
}

fn prompt_of(facts: &RequestFacts, prompt: Prompt) -> String {
    match prompt {
        Prompt::Text(span) => facts.str(span).to_owned(),
        Prompt::Tokens(span) => {
            let (ids, _) = facts.bytes(span).as_chunks::<4>();
            let ids: Vec<_> = ids.iter().map(|id| u32::from_le_bytes(*id)).collect();
            format!("{ids:?}")
        }
    }
}

/// The approximate stream of one prompt.
pub(super) fn stream(facts: &RequestFacts, index: usize) -> Vec<u8> {
    let mut out = Vec::new();
    visit_prompt(facts, index, usize::MAX, &mut |piece| out.extend_from_slice(piece));
    out
}

const FULL_CHAT: &str = r#" { "x":[{"model":"no"}], "messages":[
    {"content":"Be \"brief\".\n","role":"system"},
    {"role":"user","name":"ann","content":[{"text":"see\u0020é😀","type":"text"},
        {"type":"image_url","image_url":{"detail":"low","url":"http://h/i.png"}}]},
    {"role":"assistant","content":null,"tool_calls":[ {"id":"c1", "content":"[]{}"} ],"reasoning_content":"hm"},
    {"role":"tool","tool_call_id":"c1","content":"42"}],
    "tools":[ {"type":"function","function":{"name":"f","b":1,"a":"<"}} ],
    "tool_choice":"auto", "documents":null, "chat_template_kwargs":{"k":[1]},
    "stream":true, "stream_options":{"include_usage":false,"continuous_usage_stats":true},
    "max_tokens":7, "max_completion_tokens":9, "n":2, "cache_salt":"s", "add_generation_prompt":true,
    "continue_final_message":false, "chat_template":"{{t}}", "\u006dodel":"ll\u0061ma" } "#;

const FULL_COMPLETION: &str = r#"{"prompt":[[1,2,4294967295],[30]],"model":"m","max_tokens":16,
    "max_completion_tokens":1,"messages":7,"tools":[1],"stream":false,"stream_options":null}"#;

crate::tests! {
    fn a_full_chat_is_read() {
        let facts = chat(FULL_CHAT).unwrap();
        assert_eq!(facts.model_name(), "llama");
        assert_eq!(&FULL_CHAT[facts.model.unwrap().span.range()], r#""ll\u0061ma""#);
        assert!(facts.stream);
        assert_eq!(facts.max_output_tokens, Some(9));
        assert_eq!(facts.choices, Some(2));
        assert_eq!(facts.cache_salt.map(|s| facts.str(s)), Some("s"));
        assert_eq!(facts.chat_template.map(|s| facts.str(s)), Some("{{t}}"));
        assert_eq!(facts.add_generation_prompt, Some(true));
        assert_eq!(facts.continue_final_message, Some(false));
        assert_eq!(facts.documents, None);
        assert_eq!(facts.body_bytes, FULL_CHAT.len());
        for (captured, raw) in [
            (facts.tools, r#"[ {"type":"function","function":{"name":"f","b":1,"a":"<"}} ]"#),
            (facts.tool_choice, r#""auto""#),
            (facts.chat_template_kwargs, r#"{"k":[1]}"#),
            (facts.tool_calls(&facts.messages()[2]), r#"[ {"id":"c1", "content":"[]{}"} ]"#),
        ] {
            let captured = captured.unwrap();
            assert_eq!(facts.raw(captured), raw.as_bytes());
            assert_eq!(&FULL_CHAT[captured.body.range()], raw);
        }
        let messages: Vec<_> = facts
            .messages()
            .iter()
            .map(|m| (facts.str(m.role.unwrap()), content(&facts, m)))
            .collect();
        assert_eq!(
            messages,
            [
                ("system", vec!["Be \"brief\".\n".to_owned()]),
                ("user", vec!["text:see é😀".to_owned(), "Image:http://h/i.png:".to_owned()]),
                ("assistant", vec![]),
                ("tool", vec!["42".to_owned()]),
            ]
        );
        let text = |span: Option<TextSpan>| facts.str(span.unwrap());
        assert_eq!(text(facts.messages()[1].name), "ann");
        assert_eq!(text(facts.messages()[2].reasoning), "hm");
        assert_eq!(text(facts.messages()[3].tool_call_id), "c1");
    }

    fn a_cut_anywhere_changes_nothing() {
        for (path, body) in [
            (PathClass::Chat, FULL_CHAT),
            (PathClass::Completions, FULL_COMPLETION),
        ] {
            let body = body.as_bytes();
            let whole = scan_slices(path, [body]).unwrap();
            let expected = (describe(&whole), stream(&whole, 0));
            let check = |got: Result<RequestFacts, RequestError>, cut: &str| {
                let got = got.unwrap();
                assert_eq!((describe(&got), stream(&got, 0)), expected, "{cut}");
            };
            check(scan_slices(path, body.chunks(1)), "byte by byte");
            check(scan_slices(path, body.chunks(7)), "seven by seven");
            for cut in 0..body.len() {
                let (a, b) = body.split_at(cut);
                check(scan_slices(path, [a, b]), &format!("cut at {cut}"));
            }
        }
    }

    fn a_completion_ignores_what_is_a_chats() {
        let facts = completion(FULL_COMPLETION).unwrap();
        assert_eq!(facts.max_output_tokens, Some(16));
        assert_eq!(facts.tools, None);
        assert!(facts.messages().is_empty());
        assert!(!facts.stream);
    }

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

    fn wrong_prompts_are_refused() {
        for prompt in [r#""""#, "[]", "null"] {
            assert_eq!(completion_of(prompt).unwrap_err(), MISSING_PROMPT, "{prompt}");
        }
        for prompt in [
            "5", "true", "{}", "[null]", "[{}]", r#"["a",1]"#, r#"[1,"a"]"#, r#"[[1],"a"]"#,
            r#"["a",[1]]"#, "[1,[2]]", "[[1],2]", "[[]]", "[[1],[]]", r#"[["a"]]"#, "[[[1]]]", "[-1]",
            "[1.5]", "[4294967296]", "[[1,null]]",
        ] {
            assert_eq!(completion_of(prompt).unwrap_err(), BAD_PROMPT, "{prompt}");
        }
        assert_eq!(completion(r#"{"model":"m"}"#).unwrap_err(), MISSING_PROMPT);
    }

    fn wrong_bodies_are_refused() {
        let not_json = |kind, offset| RequestError::NotJson(JsonError { kind, offset });
        for (body, expected) in [
            ("", not_json(JsonErrorKind::UnexpectedEnd, 0)),
            (r#"{"model":"#, not_json(JsonErrorKind::UnexpectedEnd, 9)),
            ("{\"model\":\"m\"} x", not_json(JsonErrorKind::TrailingBytes, 14)),
            (r#"{"model":"\ud800"}"#, not_json(JsonErrorKind::LoneSurrogate, 10)),
            ("[]", RequestError::NotAnObject),
            ("null", RequestError::NotAnObject),
            ("\"x\"", RequestError::NotAnObject),
            ("7", RequestError::NotAnObject),
            ("{}", RequestError::MissingModel),
            (r#"{"model":""}"#, RequestError::MissingModel),
            (r#"{"model":null}"#, RequestError::MissingModel),
            (r#"{"model":["m"]}"#, RequestError::MissingModel),
            (r#"{"Model":"big","MODEL":"big"}"#, RequestError::MissingModel),
            (r#"{"model":"m"}"#, RequestError::MissingMessages),
        ] {
            assert_eq!(chat(body).unwrap_err(), expected, "{body}");
        }
        let deep = format!(r#"{{"model":"m","x":{}"#, "[".repeat(10_000));
        let RequestError::NotJson(error) = chat(&deep).unwrap_err() else {
            panic!("not refused as JSON");
        };
        assert_eq!(error.kind, JsonErrorKind::TooDeep);
    }

    fn wrong_messages_are_refused() {
        for messages in ["[]", "null"] {
            assert_eq!(chat_of(messages).unwrap_err(), RequestError::MissingMessages, "{messages}");
        }
        let at = |index: u32, fault| RequestError::BadMessages { index: Some(index), fault };
        let array = RequestError::BadMessages { index: None, fault: MessageFault::NotAnArray };
        for (messages, expected) in [
            (r#""hi""#, array),
            ("{}", array),
            ("3", array),
            ("[1]", at(0, MessageFault::NotAnObject)),
            (r#"[{},"x"]"#, at(1, MessageFault::NotAnObject)),
            ("[{},[]]", at(1, MessageFault::NotAnObject)),
            (r#"[{"role":1}]"#, at(0, MessageFault::Role)),
            (r#"[{"role":{}}]"#, at(0, MessageFault::Role)),
            (r#"[{"content":{}}]"#, at(0, MessageFault::Content)),
            (r#"[{},{},{"content":5}]"#, at(2, MessageFault::Content)),
            (r#"[{"content":[5]}]"#, at(0, MessageFault::Part)),
            (r#"[{"content":[null]},7]"#, at(0, MessageFault::Part)),
        ] {
            assert_eq!(chat_of(messages).unwrap_err(), expected, "{messages}");
        }
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

    fn fields_that_alter_tokens_are_noticed() {
        for (path, field, expected) in [
            (PathClass::Chat, r#""add_special_tokens":true"#, true),
            (PathClass::Chat, r#""add_special_tokens":false"#, false),
            (PathClass::Chat, r#""truncate_prompt_tokens":7"#, true),
            (PathClass::Chat, r#""truncate_prompt_tokens":null,"suffix":"x""#, false),
            (PathClass::Completions, r#""add_special_tokens":true"#, false),
            (PathClass::Completions, r#""add_special_tokens":false"#, true),
            (PathClass::Completions, r#""suffix":"x""#, true),
            (PathClass::Completions, r#""suffix":null"#, false),
        ] {
            let body = format!(r#"{{"model":"m","messages":[{{}}],"prompt":"p",{field}}}"#);
            let facts = scan_slices(path, [body.as_bytes()]).unwrap();
            assert_eq!(facts.alters_tokens, expected, "{path:?} {field}");
        }
    }

    fn messages_that_lack_things_are_accepted() {
        let facts = chat_of(r#"[{"content":"a"},{"role":"developer"},{"role":null,"content":[]},{}]"#);
        assert_eq!(facts.unwrap().messages().len(), 4);
    }

    fn of_duplicate_keys_the_last_wins() {
        let body = r#"{"model":"cheap","stream":true,"max_tokens":1,"messages":7,"stream_options":{"include_usage":true},
            "messages":[{"role":"user","content":[{"text":"old"}],"content":"new","role":"system"}],
            "max_tokens":900,"stream":false,"stream_options":{},"\u006dodel":"big"}"#;
        let facts = chat(body).unwrap();
        assert_eq!(facts.model_name(), "big");
        assert_eq!(&body[facts.model.unwrap().span.range()], r#""big""#);
        assert!(!facts.stream);
        assert_eq!(facts.max_output_tokens, Some(900));
        assert_eq!(facts.stream_options.unwrap().include_usage, None);
        assert_eq!(stream(&facts, 0), b"systemnew");

        let twice = r#"{"model":"m","messages":[{"content":"a"}],"messages":[{"content":"b"},{"content":"c"}]}"#;
        assert_eq!(stream(&chat(twice).unwrap(), 0), b"bc");
        let undone = r#"{"model":"m","messages":[{"content":"a"}],"messages":null}"#;
        assert_eq!(chat(undone).unwrap_err(), RequestError::MissingMessages);
        let mended = r#"{"model":"m","messages":[1],"messages":[{"content":"a"}]}"#;
        assert_eq!(stream(&chat(mended).unwrap(), 0), b"a");
        let mended = r#"{"model":"m","messages":[{"role":1}],"messages":[{"content":"a"}]}"#;
        assert_eq!(stream(&chat(mended).unwrap(), 0), b"a");
        let no_model = r#"{"model":"m","model":5,"messages":[{}]}"#;
        assert_eq!(chat(no_model).unwrap_err(), RequestError::MissingModel);
        let prompts = r#"{"model":"m","prompt":["a","b"],"prompt":"c"}"#;
        assert_eq!(completion(prompts).unwrap().prompt_count(), 1);
    }

    fn output_limits_follow_llm_d() {
        for (fields, expected) in [
            (r#""max_tokens":5"#, Some(5)),
            (r#""max_tokens":0"#, Some(0)),
            (r#""max_tokens":5.0"#, Some(5)),
            (r#""max_tokens":-1"#, None),
            (r#""max_tokens":1.5"#, None),
            (r#""max_tokens":"5""#, None),
            (r#""max_tokens":null"#, None),
            (r#""max_tokens":5,"max_completion_tokens":6"#, Some(6)),
            (r#""max_completion_tokens":"x","max_tokens":5"#, Some(5)),
            (r#""max_completion_tokens":-6,"max_tokens":5"#, Some(5)),
            (r#""x":1"#, None),
        ] {
            let body = format!(r#"{{"model":"m","messages":[{{}}],{fields}}}"#);
            assert_eq!(chat(&body).unwrap().max_output_tokens, expected, "{fields}");
        }
    }

    fn stream_options_say_what_to_splice() {
        let read = |value: &str| {
            let body = format!(r#"{{"model":"m","prompt":"p","stream_options":{value}}}"#);
            let options = completion(&body).unwrap().stream_options.unwrap();
            assert_eq!(&body[options.span.start as usize..][..1], &value[..1]);
            if options.is_object {
                assert_eq!(&body[options.span.range()], value);
            }
            let field = |f: Option<super::Field<Option<bool>>>| {
                f.map(|f| (f.value, body[f.span.range()].to_owned()))
            };
            let (a, b) = (field(options.include_usage), field(options.continuous_usage_stats));
            (options.is_object, options.is_empty, a, b)
        };
        let said = |value: Option<bool>, text: &str| Some((value, text.to_owned()));
        assert_eq!(read("null"), (false, false, None, None));
        assert_eq!(read("true"), (false, false, None, None));
        assert_eq!(read("{ }"), (true, true, None, None));
        assert_eq!(read(r#"{"x":1}"#), (true, false, None, None));
        assert_eq!(
            read(r#"{"include_usage":true}"#),
            (true, false, said(Some(true), "true"), None)
        );
        assert_eq!(
            read(r#"{"continuous_usage_stats": false ,"include_usage":null}"#),
            (true, false, said(None, "null"), said(Some(false), "false"))
        );
        assert_eq!(completion(r#"{"model":"m","prompt":"p"}"#).unwrap().stream_options, None);
    }

    fn lists_are_bounded() {
        let many = |item: &str| format!("[{}{item}]", format!("{item},").repeat(MAX_ITEMS));
        let too_many = |field| RequestError::TooMany { field, limit: MAX_ITEMS };
        assert_eq!(chat_of(&many("{}")).unwrap_err(), too_many("messages"));
        let parts = format!(r#"[{{"content":{}}}]"#, many("{}"));
        assert_eq!(chat_of(&parts).unwrap_err(), too_many("messages"));
        assert_eq!(completion_of(&many(r#""""#)).unwrap_err(), too_many("prompt"));
        assert_eq!(completion_of(&many("[1]")).unwrap_err(), too_many("prompt"));
        assert_eq!(completion_of(&many("1")).unwrap().prompt_count(), 1);
    }

    fn buffers_come_back_but_not_the_huge_ones() {
        let small = chat(FULL_CHAT).unwrap().into_scratch();
        let held = small.held_bytes();
        assert!(held > 0);
        let mut scan = BodyScan::new(PathClass::Chat, small);
        scan.feed(FULL_CHAT.as_bytes()).unwrap();
        let again = scan.finish().unwrap();
        assert_eq!(describe(&again), describe(&chat(FULL_CHAT).unwrap()));
        assert_eq!(again.into_scratch().held_bytes(), held, "reused, not grown");

        let huge = completion_of(&format!("\"{}\"", "x".repeat(10 * KEEP_BYTES))).unwrap();
        let mut scratch = huge.into_scratch();
        assert!(scratch.held_bytes() >= 10 * KEEP_BYTES);
        scratch.recycle();
        assert!(scratch.held_bytes() <= 2 * KEEP_BYTES);
    }

    fn nothing_printed_holds_text() {
        let facts = chat(FULL_CHAT).unwrap();
        let printed = format!("{facts:?} {:?}", facts.scratch);
        assert!(!printed.contains("brief") && !printed.contains("llama"), "{printed}");
    }
}
