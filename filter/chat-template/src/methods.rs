//! Methods of Python's strings, lists and dicts that templates call.

use crate::shortening::MARK;
use minijinja::value::{ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

/// Calls `method` of `value`: what minijinja-contrib does not have, or does differently from Python, is here.
pub(crate) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return other(state, value, method, args);
    };
    refuse_marked(text, method, args)?;
    match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            let (start, end) = (method != "rstrip", method != "lstrip");
            Ok(Value::from(strip(text, chars, start, end)))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        // Python refuses an empty separator, Rust splits between all characters.
        "split" if args.first().and_then(Value::as_str) == Some("") => {
            Err(Error::new(ErrorKind::InvalidOperation, "empty separator"))
        }
        _ => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn is_marked(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains(MARK))
}

/// Refuses to look into a text of which the middle is missing (see `shortening`).
fn refuse_marked(text: &str, method: &str, args: &[Value]) -> Result<(), Error> {
    let looks_inside = !matches!(
        method,
        "strip"
            | "lstrip"
            | "rstrip"
            | "split"
            | "replace"
            | "startswith"
            | "endswith"
            | "join"
            | "format"
    );
    let compares = !matches!(method, "join" | "format" | "replace") && args.iter().any(is_marked);
    if compares || looks_inside && text.contains(MARK) {
        return Err(Error::new(ErrorKind::InvalidOperation, "a shortened text"));
    }
    Ok(())
}

fn other(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    // `dict.get` of a key that maps to `None` gives `None`, not the default: so does pycompat.
    if args.first().is_some_and(is_marked) {
        return Err(Error::new(ErrorKind::InvalidOperation, "a shortened text"));
    }
    if value.kind() == ValueKind::Undefined {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    pycompat::unknown_method_callback(state, value, method, args)
}

/// `str.strip(chars)`, at either end; without `chars` what Python takes for white space.
pub(crate) fn strip<'a>(text: &'a str, chars: Option<&str>, start: bool, end: bool) -> &'a str {
    let strips = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if start { text.trim_start_matches(strips) } else { text };
    if end { text.trim_end_matches(strips) } else { text }
}

/// `str.isspace` of one character: Unicode's white space and four separators of ASCII.
fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}
