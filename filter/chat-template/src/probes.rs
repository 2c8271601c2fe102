//! What vLLM tries out on a template when it starts, to serve Anthropic's API with it
//! (`vllm/entrypoints/anthropic/serving.py`).

use crate::environment::environment;
use crate::request::{ChatRequest, Content, Message};
use crate::template::Template;
use minijinja::{Error, Value};

/// vLLM's `_detect_merge_inline_system`: whether a conversation with a system message in its midst makes the bare
/// template (no special tokens, none of `transformers`' functions) fail.
pub(crate) fn needs_system_first(text: &str) -> bool {
    let probe = || -> Result<(), Error> {
        let environment = environment(true)?;
        let message = |role: &str| {
            Value::from_pairs([("role", Value::from(role)), ("content", Value::from("t"))])
        };
        let messages = ["system", "user", "system", "user"].map(message).to_vec();
        let context =
            [("messages", Value::from(messages)), ("add_generation_prompt", Value::from(false))];
        environment.render_named_str("chat", text, Value::from_pairs(context)).map(|_| ())
    };
    probe().is_err()
}

/// vLLM's `_probe_disabled_thinking_effort`: `low` where the template rejects or ignores `none`.
pub(crate) fn disabled_thinking_effort(template: &Template) -> &'static str {
    let prompt = |effort| {
        let content = Content::Text(b"Hi");
        let message = Message { role: Some("user"), content, ..Default::default() };
        let request = ChatRequest {
            messages: vec![message],
            reasoning_effort: Some(effort),
            ..ChatRequest::default()
        };
        template.render(&request, 0, usize::MAX).ok()
    };
    let Some(none) = prompt("none") else { return "low" };
    let ignored = |effort| prompt(effort).as_ref() == Some(&none);
    if ["low", "medium", "high", "xhigh", "max"].into_iter().any(ignored) { "low" } else { "none" }
}
