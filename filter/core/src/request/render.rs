//! The bytes of the prompt that the engine tokenizes: the facts of a body, through the model's template.

use super::anthropic::Joined;
use super::facts::{Content, Message, Part, RequestFacts, TextSpan};
use super::path::PathClass;
use warmroute_chat_template as template;
use warmroute_chat_template::{ChatRequest, RenderError, Template};

/// Renders a chat as the engine would, `limit` bytes at most, and calls `out` with the bytes in order. Nothing is
/// given out if it fails: the request's prompt is then known only approximately.
///
/// `clock_unix_s` is what a template that shows the date shows.
///
/// # Errors
/// Why the bytes cannot be known; see [`RenderError`].
pub fn render_prompt(
    facts: &RequestFacts,
    template: &Template,
    clock_unix_s: u64,
    limit: usize,
    out: &mut dyn FnMut(&[u8]),
) -> Result<(), RenderError> {
    if facts.alters_tokens {
        return Err(RenderError::Unsupported("fields that change the prompt's tokens"));
    }
    if facts.chat_template.is_some() {
        return Err(RenderError::Unsupported("a template of the request's own"));
    }
    match facts.path {
        PathClass::Chat => template.render_chat(&chat_request(facts), clock_unix_s, limit, out),
        PathClass::Messages => {
            let joined = Joined::new(facts, template);
            template.render_chat(&joined.chat(facts, template)?, clock_unix_s, limit, out)
        }
        _ => Err(RenderError::Unsupported("an API without a template")),
    }
}

fn chat_request(facts: &RequestFacts) -> ChatRequest<'_> {
    ChatRequest {
        messages: facts.messages().iter().map(|message| chat_message(facts, message)).collect(),
        tools: facts.tools.map(|tools| template::Tools::OpenAi(facts.raw(tools))),
        documents: facts.documents.map(|documents| facts.raw(documents)),
        template_arguments: facts.chat_template_kwargs.map(|arguments| facts.raw(arguments)),
        reasoning_effort: text(facts, facts.reasoning_effort),
        add_generation_prompt: facts.add_generation_prompt,
        continue_final_message: facts.continue_final_message,
    }
}

fn text(facts: &RequestFacts, span: Option<TextSpan>) -> Option<&str> {
    span.map(|span| facts.str(span))
}

fn chat_message<'a>(facts: &'a RequestFacts, message: &Message) -> template::Message<'a> {
    let tool_calls = facts.tool_calls(message);
    template::Message {
        role: text(facts, message.role),
        content: chat_content(facts, message.content),
        name: text(facts, message.name),
        tool_call_id: text(facts, message.tool_call_id),
        reasoning: text(facts, message.reasoning),
        tool_calls: tool_calls.map(|calls| template::ToolCalls::Json(facts.raw(calls))),
    }
}

fn chat_content(facts: &RequestFacts, content: Content) -> template::Content<'_> {
    match content {
        Content::None => template::Content::None,
        Content::Text(span) => template::Content::Text(facts.bytes(span)),
        Content::Parts { .. } => {
            let part = |part: &Part| match *part {
                Part::Text(span) | Part::Thinking(span) => template::Part::Text(facts.bytes(span)),
                _ => template::Part::Other,
            };
            template::Content::Parts(facts.parts(content).iter().map(part).collect())
        }
    }
}
