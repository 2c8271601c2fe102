//! Facts as text.

use super::*;
use crate::request::Captured;
use std::fmt::Write;

/// Everything that facts say, as text.
pub(in crate::request) fn describe(facts: &RequestFacts) -> String {
    let mut out = format!("{facts:?} {:?} {}", facts.model, facts.model_name());
    let text = |span: Option<TextSpan>| span.map(|span| facts.str(span).to_owned());
    let raw = |captured: Option<Captured>| {
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

pub(in crate::request) fn content(facts: &RequestFacts, message: &Message) -> Vec<String> {
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

pub(super) fn prompt_of(facts: &RequestFacts, prompt: Prompt) -> String {
    match prompt {
        Prompt::Text(span) => facts.str(span).to_owned(),
        Prompt::Tokens(span) => {
            let (ids, _) = facts.bytes(span).as_chunks::<4>();
            let ids: Vec<_> = ids.iter().map(|id| u32::from_le_bytes(*id)).collect();
            format!("{ids:?}")
        }
    }
}
