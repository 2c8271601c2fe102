//! What a template sees besides the conversation and the tools.

use crate::conversation::json;
use crate::error::RenderError;
use crate::request::ChatRequest;
use minijinja::Value;
use minijinja::value::ValueKind;

/// Arguments of `apply_chat_template` that a request must not set: they would change what is called, not what is
/// rendered.
const RESERVED: [&str; 12] = [
    "chat_template",
    "conversation",
    "documents",
    "max_length",
    "messages",
    "padding",
    "return_assistant_tokens_mask",
    "return_dict",
    "return_tensors",
    "tokenize",
    "tools",
    "truncation",
];

/// The values of `reasoning_effort` that the engine's schema takes.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Special tokens, then the request's own arguments.
pub(super) fn arguments(
    special_tokens: &[(String, Value)],
    request: &ChatRequest<'_>,
) -> Result<Vec<(String, Value)>, RenderError> {
    let mut arguments = special_tokens.to_vec();
    let mut sets_thinking = false;
    if let Some(raw) = request.template_arguments {
        let object = json(raw)?;
        if object.kind() != ValueKind::Map {
            return Err(RenderError::Refused("chat_template_kwargs is no object"));
        }
        for (name, value) in
            object.as_object().and_then(|o| o.try_iter_pairs()).into_iter().flatten()
        {
            let name = name.as_str().unwrap_or_default();
            sets_thinking |= name == "enable_thinking";
            // The engine takes these two values for "not set".
            if value.is_none() || value.as_str() == Some("auto") {
                continue;
            }
            if RESERVED.contains(&name) {
                return Err(RenderError::Unsupported("a reserved chat_template_kwargs name"));
            }
            arguments.push((name.to_owned(), value));
        }
    }
    if let Some(effort) = request.reasoning_effort {
        if !EFFORTS.contains(&effort) {
            return Err(RenderError::Refused("an unknown reasoning_effort"));
        }
        arguments.push(("reasoning_effort".into(), Value::from(effort)));
        if !sets_thinking {
            arguments.push(("enable_thinking".into(), Value::from(effort != "none")));
        }
    }
    Ok(arguments)
}

/// `documents`.
pub(super) fn documents_value(documents: Option<&[u8]>) -> Result<Value, RenderError> {
    let Some(raw) = documents else { return Ok(Value::from(())) };
    let wrong = RenderError::Refused("documents of a wrong shape");
    let list = json(raw)?;
    if list.kind() != ValueKind::Seq {
        return Err(wrong);
    }
    for document in list.try_iter().map_err(|_| wrong)? {
        let pairs = document.as_object().filter(|_| document.kind() == ValueKind::Map);
        let mut pairs = pairs.and_then(|object| object.try_iter_pairs()).ok_or(wrong)?;
        if pairs.any(|(_, text)| text.as_str().is_none()) {
            return Err(wrong);
        }
    }
    Ok(list)
}
