//! Tests of rendering: what Jinja does with a template, and what vLLM does to a request before.

mod jinja;
mod quick;
mod requests;
mod templates;

use crate::{ChatRequest, Content, Message, RenderError, Template, TemplateSource};

pub(crate) fn compile(text: &str) -> Template {
    let special_tokens = vec![("bos_token".to_owned(), "<s>".to_owned())];
    Template::compile(&TemplateSource { text: text.into(), special_tokens }).unwrap()
}

pub(crate) fn render(template: &str, request: &ChatRequest<'_>) -> Result<String, RenderError> {
    let mut out = Vec::new();
    compile(template).render_chat(request, 1_796_009_000, 10_000, &mut |piece| {
        out.extend_from_slice(piece);
    })?;
    Ok(String::from_utf8(out).unwrap())
}

/// A message of plain text.
pub(crate) fn says<'a>(role: &'a str, text: &'a str) -> Message<'a> {
    Message { role: Some(role), content: Content::Text(text.as_bytes()), ..Message::default() }
}

/// A request of one user message.
pub(crate) fn one() -> ChatRequest<'static> {
    ChatRequest { messages: vec![says("user", "q")], ..ChatRequest::default() }
}
