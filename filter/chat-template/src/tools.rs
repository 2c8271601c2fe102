//! Tools as vLLM's schema lets them through to the template (`ChatCompletionToolsParam.model_dump()`): fields in a
//! fixed order, unknown ones dropped, a null description or null parameters kept.

use crate::conversation::json;
use crate::error::RenderError;
use crate::request::Tools;
use minijinja::Value;
use minijinja::value::ValueKind;

const BAD_TOOLS: RenderError = RenderError::Refused("tools of a wrong shape");

/// The list that templates know as `tools`.
pub(crate) fn tools_value(tools: Tools<'_>) -> Result<Value, RenderError> {
    let (Tools::OpenAi(raw) | Tools::Anthropic(raw)) = tools;
    let list = json(raw)?;
    if list.kind() != ValueKind::Seq {
        return Err(BAD_TOOLS);
    }
    let items = list.try_iter().map_err(|_| BAD_TOOLS)?;
    let convert = |tool: &Value| match tools {
        Tools::OpenAi(_) => openai_tool(tool),
        Tools::Anthropic(_) => anthropic_tool(tool),
    };
    let converted: Vec<Value> = items.map(|tool| convert(&tool)).collect::<Result<_, _>>()?;
    // Anthropic's API takes an empty list, OpenAI's does not.
    if converted.is_empty() && matches!(tools, Tools::OpenAi(_)) {
        return Err(BAD_TOOLS);
    }
    Ok(Value::from(converted))
}

fn openai_tool(tool: &Value) -> Result<Value, RenderError> {
    if tool.kind() != ValueKind::Map {
        return Err(BAD_TOOLS);
    }
    if tool
        .get_attr("type")
        .is_ok_and(|kind| !kind.is_undefined() && kind.as_str() != Some("function"))
    {
        return Err(BAD_TOOLS);
    }
    let deferred = flag(tool, "defer_loading")?;
    let function = field(tool, "function", |kind| kind == ValueKind::Map)?;
    let own_deferred = flag(&function, "defer_loading")?;
    let parameters = optional(&function, "parameters", |kind| kind == ValueKind::Map)?;
    let function = definition(&function, parameters, own_deferred.or_else(|| deferred.clone()))?;
    Ok(tool_value(function, deferred))
}

fn anthropic_tool(tool: &Value) -> Result<Value, RenderError> {
    if tool.kind() != ValueKind::Map {
        return Err(BAD_TOOLS);
    }
    let schema = field(tool, "input_schema", |kind| kind == ValueKind::Map)?;
    let schema = if schema.get_attr("type").is_ok_and(|kind| kind.is_undefined()) {
        let pairs = schema.as_object().and_then(|object| object.try_iter_pairs());
        let default = (Value::from("type"), Value::from("object"));
        Value::from_pairs(pairs.into_iter().flatten().chain([default]))
    } else {
        schema
    };
    let deferred = flag(tool, "defer_loading")?;
    Ok(tool_value(definition(tool, schema, deferred)?, None))
}

/// The inner object.
fn definition(
    source: &Value,
    parameters: Value,
    deferred: Option<Value>,
) -> Result<Value, RenderError> {
    let mut fields = vec![
        ("name", field(source, "name", |kind| kind == ValueKind::String)?),
        ("description", optional(source, "description", |kind| kind == ValueKind::String)?),
        ("parameters", parameters),
    ];
    fields.extend(flag(source, "strict")?.map(|strict| ("strict", strict)));
    fields.extend(deferred.map(|deferred| ("defer_loading", deferred)));
    Ok(Value::from_pairs(fields))
}

fn tool_value(function: Value, deferred: Option<Value>) -> Value {
    let mut fields = vec![("type", Value::from("function")), ("function", function)];
    fields.extend(deferred.map(|deferred| ("defer_loading", deferred)));
    Value::from_pairs(fields)
}

/// A field that must be there and of the right kind.
fn field(source: &Value, name: &str, fits: fn(ValueKind) -> bool) -> Result<Value, RenderError> {
    let value = source.get_attr(name).map_err(|_| BAD_TOOLS)?;
    if fits(value.kind()) { Ok(value) } else { Err(BAD_TOOLS) }
}

/// A field that may be missing or null: null then.
fn optional(source: &Value, name: &str, fits: fn(ValueKind) -> bool) -> Result<Value, RenderError> {
    let value = source.get_attr(name).map_err(|_| BAD_TOOLS)?;
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(Value::from(())),
        kind if fits(kind) => Ok(value),
        _ => Err(BAD_TOOLS),
    }
}

/// A boolean that is left out where it is missing or null.
fn flag(source: &Value, name: &str) -> Result<Option<Value>, RenderError> {
    let value = source.get_attr(name).map_err(|_| BAD_TOOLS)?;
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(None),
        ValueKind::Bool => Ok(Some(value)),
        // Pydantic takes "yes", 1 and more for true.
        _ => Err(RenderError::Unsupported("a tool's flag that is no boolean")),
    }
}
