//! Anthropic's messages as the chat that vLLM makes of them (`vllm/entrypoints/anthropic/serving.py`).

#[cfg(test)]
mod tests;

use super::facts::{Content, Message, Part, RequestFacts, TextSpan};
use warmroute_chat_template as template;
use warmroute_chat_template::{ChatRequest, RenderError, Template, ToolCall, ToolCalls, Tools};

/// How Claude Code's first line of a system prompt begins, new with every request: the engine drops the whole block.
pub(super) const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Strings that are put together from several of the body's. A chat borrows them, so they are made first.
#[derive(Default)]
pub(super) struct Joined {
    system: String,
    /// For each message its own text where it is joined: reasoning, or a system message's.
    messages: Vec<String>,
    /// The texts of tool results that are lists, in order.
    results: Vec<String>,
}

impl Joined {
    pub(super) fn new(facts: &RequestFacts, template: &Template) -> Self {
        let mut joined = Self::default();
        match facts.system {
            Content::Text(text) => joined.system.push_str(facts.str(text)),
            content => joined.system = system_text(facts, content),
        }
        for message in facts.messages() {
            let is_system = role(facts, message) == Some("system");
            let text = if is_system {
                system_text(facts, message.content)
            } else {
                facts
                    .parts(message.content)
                    .iter()
                    .filter_map(|part| thought(facts, part))
                    .collect()
            };
            if is_system && template.merges_inline_system() {
                joined.system.push_str(&text);
            }
            joined.messages.push(text);
            for part in facts.parts(message.content) {
                if let Part::ToolResult { content: content @ Content::Parts { .. }, .. } = *part {
                    joined.results.push(result_text(facts, content));
                }
            }
        }
        joined
    }

    /// The chat.
    pub(super) fn chat<'a>(
        &'a self,
        facts: &'a RequestFacts,
        template: &Template,
    ) -> Result<ChatRequest<'a>, RenderError> {
        let mut messages = Vec::with_capacity(facts.messages().len());
        if !self.system.is_empty() {
            messages.push(text_message("system", self.system.as_bytes()));
        }
        let mut results = self.results.iter();
        for (message, joined) in facts.messages().iter().zip(&self.messages) {
            match role(facts, message) {
                Some("system") if template.merges_inline_system() || joined.is_empty() => {}
                Some("system") => messages.push(text_message("system", joined.as_bytes())),
                Some(role @ ("user" | "assistant")) => {
                    turn(facts, message, role, joined, &mut results, &mut messages)?;
                }
                _ => return Err(RenderError::Refused("a role that the API does not know")),
            }
        }
        let effort = facts.reasoning_effort.map(|effort| facts.str(effort));
        let disabled = facts.disables_thinking.then(|| template.disabled_thinking_effort());
        Ok(ChatRequest {
            messages,
            tools: facts.tools.map(|tools| Tools::Anthropic(facts.raw(tools))),
            template_arguments: facts.chat_template_kwargs.map(|arguments| facts.raw(arguments)),
            reasoning_effort: disabled.or(effort),
            ..ChatRequest::default()
        })
    }
}

fn role<'a>(facts: &'a RequestFacts, message: &Message) -> Option<&'a str> {
    message.role.map(|role| facts.str(role))
}

fn text_message<'a>(role: &'a str, text: &'a [u8]) -> template::Message<'a> {
    let content = template::Content::Text(text);
    template::Message { role: Some(role), content, ..template::Message::default() }
}

/// The text of a system prompt or system message. A string begins with the header or not; of blocks each may.
fn system_text(facts: &RequestFacts, content: Content) -> String {
    let texts = match content {
        Content::Text(text) => vec![facts.str(text)],
        _ => facts.parts(content).iter().filter_map(|part| text(facts, part)).collect(),
    };
    texts.into_iter().filter(|text| !text.starts_with(BILLING_HEADER)).collect()
}

fn text<'a>(facts: &'a RequestFacts, part: &Part) -> Option<&'a str> {
    match *part {
        Part::Text(span) => Some(facts.str(span)),
        _ => None,
    }
}

fn thought<'a>(facts: &'a RequestFacts, part: &Part) -> Option<&'a str> {
    match *part {
        Part::Thinking(span) => Some(facts.str(span)),
        _ => None,
    }
}

fn result_text(facts: &RequestFacts, content: Content) -> String {
    let texts: Vec<&str> =
        facts.result_parts(content).iter().filter_map(|part| text(facts, part)).collect();
    texts.join("\n")
}

/// Adds what one message becomes: results of tools are messages of their own, before the rest.
fn turn<'a>(
    facts: &'a RequestFacts,
    message: &Message,
    role: &'a str,
    reasoning: &'a str,
    results: &mut core::slice::Iter<'a, String>,
    messages: &mut Vec<template::Message<'a>>,
) -> Result<(), RenderError> {
    let mut texts = Vec::new();
    let mut calls = Vec::new();
    let mut thinks = false;
    for part in facts.parts(message.content) {
        match *part {
            Part::Text(span) if span.is_empty() => {}
            Part::Text(span) => texts.push(template::Part::Text(facts.bytes(span))),
            Part::Thinking(_) => thinks = true,
            Part::ToolUse { id, name, .. } => calls.push(ToolCall {
                id: string(facts, id),
                name: string(facts, name).unwrap_or_default(),
                input: facts.tool_input(part).map(|input| facts.raw(input)),
            }),
            Part::ToolResult { id, content } if role == "user" => {
                let text = match content {
                    Content::None => &[],
                    Content::Text(span) => facts.bytes(span),
                    Content::Parts { .. } => {
                        only_text(facts, content)?;
                        results.next().map(String::as_bytes).unwrap_or_default()
                    }
                };
                let mut result = text_message("tool", text);
                result.tool_call_id = Some(string(facts, id).unwrap_or_default());
                messages.push(result);
            }
            // An assistant's is shown in Python's notation.
            Part::ToolResult { .. } => {
                return Err(RenderError::Unsupported("a tool's result from the assistant"));
            }
            Part::Skipped => {}
            Part::Media { .. } | Part::Other => {
                return Err(RenderError::Unsupported("a content block that is no text"));
            }
        }
    }
    let content = match (message.content, texts.as_slice()) {
        (Content::Text(span), _) => template::Content::Text(facts.bytes(span)),
        (_, []) => template::Content::None,
        (_, [template::Part::Text(text)]) => template::Content::Text(text),
        _ => template::Content::Parts(texts),
    };
    if role == "user" && matches!(content, template::Content::None) {
        return Ok(());
    }
    messages.push(template::Message {
        role: Some(role),
        content,
        reasoning: thinks.then_some(reasoning),
        tool_calls: (!calls.is_empty()).then_some(ToolCalls::List(calls)),
        ..template::Message::default()
    });
    Ok(())
}

fn string(facts: &RequestFacts, span: Option<TextSpan>) -> Option<&str> {
    span.map(|span| facts.str(span))
}

/// Images become a message of their own, tool references another.
fn only_text(facts: &RequestFacts, content: Content) -> Result<(), RenderError> {
    if facts.result_parts(content).iter().all(|part| matches!(part, Part::Text(_))) {
        Ok(())
    } else {
        Err(RenderError::Unsupported("a tool's result that is no text"))
    }
}
