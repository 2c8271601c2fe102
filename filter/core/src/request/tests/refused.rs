//! What is wrong with a body, and how much is too much.

use super::*;
use crate::json::{JsonError, JsonErrorKind};
use crate::request::error::MessageFault;
use crate::request::scratch::MAX_ITEMS;

const MISSING_PROMPT: RequestError = RequestError::MissingInput { field: "prompt" };
const BAD_PROMPT: RequestError = RequestError::BadInput { field: "prompt" };

crate::tests! {
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
}
