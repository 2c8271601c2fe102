//! Jinja's and Python's ways: `jinja.json` holds snippets and what `transformers` 5.19 with Jinja 3.1 makes of them,
//! null where it raises.

use super::render;
use crate::request::{ChatRequest, Content, Message, ToolCalls, Tools};

const CALLS: &str = r#"[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1,\"b\":[true,null,1.5]}"}}]"#;
const TOOLS: &str = r#"[{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2}}}]"#;

/// What the snippets saw.
fn request() -> ChatRequest<'static> {
    ChatRequest {
        messages: vec![
            super::says("system", " S "),
            super::says("user", "hé<b>"),
            Message {
                role: Some("assistant"),
                content: Content::Text(b"x</think>y"),
                tool_calls: Some(ToolCalls::Json(CALLS.as_bytes())),
                ..Message::default()
            },
        ],
        tools: Some(Tools::OpenAi(TOOLS.as_bytes())),
        template_arguments: Some(br#"{"flag":false,"n":3}"#),
        ..ChatRequest::default()
    }
}

#[test]
fn as_transformers_renders_it() {
    let rows: Vec<(String, Option<String>)> =
        serde_json::from_str(include_str!("jinja.json")).unwrap();
    let mut faults = Vec::new();
    for (template, expected) in rows {
        let source = crate::TemplateSource {
            text: template.clone(),
            special_tokens: vec![("bos_token".into(), "<s>".into())],
        };
        let rendered =
            crate::Template::compile(&source).ok().and_then(|_| render(&template, &request()).ok());
        if rendered != expected {
            faults.push(format!("{template}\n  here   {rendered:?}\n  Python {expected:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
