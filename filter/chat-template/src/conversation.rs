//! Messages as vLLM hands them to a template (`vllm/renderers/chat_utils.py`).

use crate::content_format::ContentFormat;
use crate::error::RenderError;
use crate::message_value::MessageValue;
use crate::python_json::{JsonFault, loads};
use crate::request::{ChatRequest, Content, Message, Part, ToolCall, ToolCalls};
use minijinja::Value;
use minijinja::value::ValueKind;
use std::borrow::Cow;

/// Claude Code's first line of a system prompt, new with every request: the engine drops it.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// A message, reshaped.
#[derive(Clone)]
pub(crate) struct Turn<'a> {
    pub(crate) role: &'a str,
    pub(crate) content: Body<'a>,
    tool_calls: Option<Value>,
    reasoning: Option<&'a str>,
    tool_call_id: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Turn<'a> {
    /// Whether there is nothing to it but its role and its content.
    pub(crate) fn is_only_text(&self) -> bool {
        self.tool_calls.is_none() && self.labels().eq([self.role])
    }

    /// All its texts but the content; the reasoning, too.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &'a str> {
        let others = [self.reasoning, self.tool_call_id, self.name];
        others.into_iter().flatten().chain([self.role])
    }
}

/// A reshaped content.
#[derive(Clone)]
pub(crate) enum Body<'a> {
    Text(Cow<'a, [u8]>),
    Parts(Vec<Cow<'a, [u8]>>),
}

/// Reshapes the messages for a template that takes contents as `format` says. One that does not know the role
/// `developer` gets `system` instead, all system messages in one.
pub(crate) fn turns<'a>(
    request: &ChatRequest<'a>,
    format: ContentFormat,
    knows_developer: bool,
) -> Result<Vec<Turn<'a>>, RenderError> {
    let turns: Result<Vec<_>, _> =
        request.messages.iter().map(|message| turn(message, format)).collect();
    let mut turns = turns?;
    if !knows_developer && turns.iter().any(|turn| turn.role == "developer") {
        for turn in &mut turns {
            if turn.role == "developer" {
                turn.role = "system";
            }
        }
        turns = one_system_message(turns);
    }
    Ok(turns)
}

fn turn<'a>(message: &Message<'a>, format: ContentFormat) -> Result<Turn<'a>, RenderError> {
    let role = message.role.ok_or(RenderError::Refused("a message without a role"))?;
    let is_assistant = role == "assistant";
    let tool_calls = match &message.tool_calls {
        Some(calls) if is_assistant => tool_calls(calls)?,
        _ => None,
    };
    Ok(Turn {
        role,
        content: body(message, role, format)?,
        tool_calls,
        reasoning: message.reasoning.filter(|_| is_assistant),
        tool_call_id: message.tool_call_id.filter(|_| role == "tool"),
        name: message.name,
    })
}

fn body<'a>(
    message: &Message<'a>,
    role: &str,
    format: ContentFormat,
) -> Result<Body<'a>, RenderError> {
    let mut texts: Vec<&'a [u8]> = match &message.content {
        Content::None => vec![],
        Content::Text(text) => vec![text],
        Content::Parts(parts) => {
            let text = |part: &Part<'a>| match *part {
                Part::Text(text) => Ok(text),
                Part::Other => Err(RenderError::Unsupported("a content part that is no text")),
            };
            parts.iter().map(text).collect::<Result<_, _>>()?
        }
    };
    if role == "system" {
        texts = texts.into_iter().filter_map(without_billing_header).collect();
    }
    // Templates take a tool's content as a string whatever else they take.
    if format == ContentFormat::Parts && role != "tool" {
        return Ok(Body::Parts(texts.into_iter().map(Cow::Borrowed).collect()));
    }
    Ok(Body::Text(match *texts {
        [] => Cow::Borrowed(&[]),
        [text] => Cow::Borrowed(text),
        _ => Cow::Owned(texts.join(&b'\n')),
    }))
}

fn without_billing_header(text: &[u8]) -> Option<&[u8]> {
    if !text.starts_with(BILLING_HEADER.as_bytes()) {
        return Some(text);
    }
    let end = memchr::memchr(b'\n', text)?.saturating_add(1);
    text.get(end..).filter(|rest| !rest.is_empty())
}

/// All system messages in one at the front, if there is more than that one.
fn one_system_message(turns: Vec<Turn<'_>>) -> Vec<Turn<'_>> {
    let is_system = |turn: &Turn<'_>| turn.role == "system";
    if !turns.iter().skip(1).any(is_system) {
        return turns;
    }
    let (system, others): (Vec<_>, Vec<_>) = turns.into_iter().partition(is_system);
    let texts: Vec<Vec<u8>> = system
        .into_iter()
        .map(|turn| match turn.content {
            Body::Text(text) => text.into_owned(),
            Body::Parts(texts) => texts.join(&b'\n'),
        })
        .filter(|text| !text.is_empty())
        .collect();
    let merged = Turn {
        role: "system",
        content: Body::Text(Cow::Owned(texts.join(b"\n\n".as_slice()))),
        tool_calls: None,
        reasoning: None,
        tool_call_id: None,
        name: None,
    };
    core::iter::once(merged).chain(others).collect()
}

const BAD_TOOL_CALLS: RenderError = RenderError::Refused("tool_calls of a wrong shape");

/// The calls with their arguments parsed; `None` for an empty list, which the engine drops.
fn tool_calls(calls: &ToolCalls<'_>) -> Result<Option<Value>, RenderError> {
    let calls: Vec<Value> = match calls {
        ToolCalls::Json(raw) => {
            let list = json(raw)?;
            if list.kind() != ValueKind::Seq {
                return Err(BAD_TOOL_CALLS);
            }
            let items = list.try_iter().map_err(|_| BAD_TOOL_CALLS)?;
            items.map(|item| openai_call(&item)).collect::<Result<_, _>>()?
        }
        ToolCalls::List(list) => list.iter().map(anthropic_call).collect::<Result<_, _>>()?,
    };
    Ok((!calls.is_empty()).then(|| Value::from(calls)))
}

/// The fields in the order in which vLLM's schema gives them: its own first, then what else was sent.
fn openai_call(call: &Value) -> Result<Value, RenderError> {
    let field = |value: &Value, name: &str| value.get_attr(name).ok().filter(|v| !v.is_undefined());
    let text = |value: &Value, name: &str| field(value, name).filter(|v| v.as_str().is_some());
    let function = field(call, "function").ok_or(BAD_TOOL_CALLS)?;
    if field(call, "type").and_then(|kind| kind.to_str()).as_deref() != Some("function") {
        return Err(BAD_TOOL_CALLS);
    }
    let written = text(&function, "arguments").ok_or(BAD_TOOL_CALLS)?;
    let arguments = match loads(written.as_str().unwrap_or_default()) {
        Ok(value) if value.kind() == ValueKind::Map => value,
        Err(JsonFault::BeyondUs) => return Err(RenderError::Unsupported("arguments of a call")),
        // What is no object lives on in the conversation; the engine goes on without it.
        Ok(_) | Err(JsonFault::Malformed) => no_arguments(),
    };
    let name = text(&function, "name").ok_or(BAD_TOOL_CALLS)?;
    let id = text(call, "id").ok_or(BAD_TOOL_CALLS)?;
    let function = with_others(&function, vec![("arguments", arguments), ("name", name)]);
    let kind = Value::from("function");
    Ok(with_others(call, vec![("id", id), ("function", function), ("type", kind)]))
}

/// A map of `known`, then of the other fields of `source`.
fn with_others(source: &Value, known: Vec<(&'static str, Value)>) -> Value {
    let pairs = source.as_object().and_then(|object| object.try_iter_pairs());
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let others = pairs
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.as_str().is_none_or(|name| !names.contains(&name)));
    Value::from_pairs(
        known.into_iter().map(|(name, value)| (Value::from(name), value)).chain(others),
    )
}

fn no_arguments() -> Value {
    Value::from_pairs(core::iter::empty::<(&str, Value)>())
}

fn anthropic_call(call: &ToolCall<'_>) -> Result<Value, RenderError> {
    let arguments = call.input.map_or_else(|| Ok(no_arguments()), json)?;
    let arguments = match arguments.kind() {
        ValueKind::Map => arguments,
        ValueKind::None => no_arguments(),
        _ => return Err(RenderError::Refused("a tool_use whose input is no object")),
    };
    // The engine would make one up from its clock.
    let id = call.id.filter(|id| !id.is_empty());
    let id = id.ok_or(RenderError::Unsupported("a tool_use without an id"))?;
    let function = [("name", Value::from(call.name)), ("arguments", arguments)];
    Ok(Value::from_pairs([
        ("id", Value::from(id)),
        ("type", Value::from("function")),
        ("function", Value::from_pairs(function)),
    ]))
}

/// A value that the body's scanner found well-formed.
pub(crate) fn json(raw: &[u8]) -> Result<Value, RenderError> {
    let text = core::str::from_utf8(raw).map_err(|_| RenderError::Refused("not UTF-8"))?;
    loads(text).map_err(|fault| match fault {
        JsonFault::Malformed => RenderError::Refused("malformed JSON"),
        JsonFault::BeyondUs => {
            RenderError::Unsupported("JSON beyond 128-bit integers or 128 levels")
        }
    })
}

/// The list that templates know as `messages`.
pub(crate) fn messages_value(turns: Vec<Turn<'_>>) -> Result<Value, RenderError> {
    Ok(Value::from(turns.into_iter().map(turn_value).collect::<Result<Vec<_>, _>>()?))
}

/// A text that a template is to see.
pub(crate) fn checked(text: &[u8]) -> Result<&str, RenderError> {
    core::str::from_utf8(text).map_err(|_| RenderError::Refused("a content that is not UTF-8"))
}

fn turn_value(turn: Turn<'_>) -> Result<Value, RenderError> {
    let content = match turn.content {
        Body::Text(text) => Value::from(checked(&text)?),
        Body::Parts(texts) => {
            let part = |text: Cow<'_, [u8]>| {
                let text = Value::from(checked(&text)?);
                Ok(Value::from_pairs([("type", Value::from("text")), ("text", text)]))
            };
            Value::from(texts.into_iter().map(part).collect::<Result<Vec<_>, RenderError>>()?)
        }
    };
    let mut fields = vec![("role", Value::from(turn.role)), ("content", content)];
    if let Some(calls) = turn.tool_calls {
        fields.push(("tool_calls", calls));
    }
    if let Some(reasoning) = turn.reasoning {
        let reasoning = Value::from(reasoning);
        fields.push(("reasoning", reasoning.clone()));
        fields.push(("reasoning_content", reasoning));
    }
    if let Some(id) = turn.tool_call_id {
        fields.push(("tool_call_id", Value::from(id)));
    }
    if let Some(name) = turn.name {
        fields.push(("name", Value::from(name)));
    }
    if turn.role == "developer" {
        fields.push(("tools", Value::from(())));
    }
    Ok(Value::from_object(MessageValue(fields)))
}
