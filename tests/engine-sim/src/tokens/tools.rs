//! Chats with tools, rendered by the model's own template after vLLM's reshaping of tools and calls.

use std::sync::OnceLock;

use warmroute_chat_template::{
    ChatRequest, Content, RenderError, Template, TemplateError, TemplateSource, ToolCalls, Tools,
};

use super::template::Message;
use crate::model_folder::CHAT_TEMPLATE;

/// Longest prompt, bytes.
const LIMIT: usize = 64 << 20;

/// Why a chat with tools has no prompt.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// `assets/chat_template.jinja` is no template.
    #[error("assets/chat_template.jinja does not compile: {0}")]
    Template(&'static TemplateError),
    /// The tools or calls are not what vLLM takes.
    #[error("the chat template cannot be applied to these messages and tools: {0}")]
    Render(#[from] RenderError),
}

/// The text that the engine would tokenize. `calls`: each message's `tool_calls`, and `tools`, both as
/// raw JSON.
pub fn render(
    messages: &[Message<'_>],
    calls: &[Option<&str>],
    tools: Option<&str>,
    add_generation_prompt: bool,
) -> Result<String, ToolsError> {
    static TEMPLATE: OnceLock<Result<Template, TemplateError>> = OnceLock::new();
    let template = TEMPLATE.get_or_init(|| {
        let source = TemplateSource { text: CHAT_TEMPLATE.to_owned(), ..TemplateSource::default() };
        Template::compile(&source)
    });
    let template = template.as_ref().map_err(ToolsError::Template)?;
    let messages =
        messages.iter().zip(calls).map(|(message, calls)| warmroute_chat_template::Message {
            role: Some(&message.role),
            content: Content::Text(message.content.as_bytes()),
            tool_calls: calls.map(|calls| ToolCalls::Json(calls.as_bytes())),
            ..warmroute_chat_template::Message::default()
        });
    let request = ChatRequest {
        messages: messages.collect(),
        tools: tools.map(|tools| Tools::OpenAi(tools.as_bytes())),
        add_generation_prompt: Some(add_generation_prompt),
        ..ChatRequest::default()
    };
    let mut prompt = Vec::new();
    // The template shows no clock.
    template.render_chat(&request, 0, LIMIT, &mut |bytes| prompt.extend_from_slice(bytes))?;
    Ok(String::from_utf8_lossy(&prompt).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::template;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tools_come_first_and_calls_after_the_content() {
        let messages = [Message::new("user", "Weather?"), Message::new("assistant", "")];
        let tools =
            r#"[{"type":"function","function":{"name":"look","parameters":{"b":1,"a":2}}}]"#;
        let calls = r#"[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"x\": 1}"}}]"#;
        let prompt = render(&messages, &[None, Some(calls)], Some(tools), true).unwrap();
        let (head, rest) = prompt.split_once("<|im_end|>\n").unwrap();
        assert!(head.starts_with("<|im_start|>system\n# Tools\n{\"type\": \"function\""), "{head}");
        assert!(head.contains(r#""parameters": {"b": 1, "a": 2}"#), "{head}");
        assert!(
            rest.starts_with("<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n[{")
        );
        assert!(rest.contains(r#""arguments": {"x": 1}"#), "parsed, as vLLM does: {rest}");
        assert!(rest.ends_with("]<|im_end|>\n<|im_start|>assistant\n"));
    }

    #[test]
    fn what_vllm_refuses_is_refused() {
        assert!(render(&[Message::new("user", "x")], &[None], Some("[1]"), true).is_err());
    }

    proptest! {
        #[test]
        fn without_tools_the_template_gives_what_the_quick_way_gives(
            messages in prop::collection::vec(("[a-z]{1,9}", "(\\PC|\\s|<\\|im_end\\|>|\\{\\{ x \\}\\}){0,30}"), 1..5),
            generate: bool,
        ) {
            let messages: Vec<_> = messages.iter().map(|(role, text)| Message::new(&**role, &**text)).collect();
            let calls = vec![None; messages.len()];
            prop_assert_eq!(render(&messages, &calls, None, generate).unwrap(), template::render(&messages, generate));
        }
    }
}
