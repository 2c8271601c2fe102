//! Methods of Python's strings, lists and dicts that templates call.
//!
//! Own code, since minijinja-contrib's brings Python's format language with it, a good part of what the module may
//! weigh, and differs from Python here and there.

use crate::shortening::MARK;
use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

/// Calls `method` of `value`.
pub(crate) fn call(
    _state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => {
            refuse_marked(text, method, args)?;
            string(text, method, args)
        }
        None if args.first().is_some_and(is_marked) => Err(invalid("a shortened text")),
        None => match value.kind() {
            ValueKind::Map => map(value, method, args),
            ValueKind::Seq => sequence(value, method, args),
            ValueKind::Undefined => Err(Error::from(ErrorKind::UndefinedError)),
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        },
    }
}

fn invalid(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

fn is_marked(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains(MARK))
}

/// Refuses to look into a text of which the middle is missing (see `shortening`).
fn refuse_marked(text: &str, method: &str, args: &[Value]) -> Result<(), Error> {
    let looks_inside = !matches!(
        method,
        "strip" | "lstrip" | "rstrip" | "split" | "replace" | "startswith" | "endswith" | "join"
    );
    let compares = !matches!(method, "join" | "replace") && args.iter().any(is_marked);
    if compares || looks_inside && text.contains(MARK) {
        return Err(invalid("a shortened text"));
    }
    Ok(())
}

fn string(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let bare = || from_args::<()>(args);
    let all = |holds: fn(char) -> bool| Value::from(!text.is_empty() && text.chars().all(holds));
    Ok(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            let (start, end) = (method != "rstrip", method != "lstrip");
            Value::from(strip(text, chars, start, end))
        }
        "split" => split(text, args)?,
        "startswith" => affix(args, |prefix| text.starts_with(prefix))?,
        "endswith" => affix(args, |suffix| text.ends_with(suffix))?,
        "replace" => {
            let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
            let count =
                count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
            Value::from(text.replacen(old, new, count))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            let strings: Option<Vec<String>> =
                items.try_iter()?.map(|item| item.as_str().map(str::to_owned)).collect();
            Value::from(
                strings.ok_or_else(|| invalid("join: items that are no strings"))?.join(text),
            )
        }
        "find" | "rfind" => {
            let (what,): (&str,) = from_args(args)?;
            let at = if method == "find" { text.find(what) } else { text.rfind(what) };
            let characters = |at| text.get(..at).unwrap_or_default().chars().count();
            at.map_or(Value::from(-1), |at| Value::from(characters(at)))
        }
        "count" => {
            let (what,): (&str,) = from_args(args)?;
            Value::from(text.matches(what).count())
        }
        "upper" => bare().map(|()| Value::from(text.to_uppercase()))?,
        "lower" => bare().map(|()| Value::from(text.to_lowercase()))?,
        "capitalize" => bare().map(|()| Value::from(title(text, |_| false)))?,
        "title" => bare().map(|()| Value::from(title(text, |c| !c.is_alphabetic())))?,
        "splitlines" => bare().map(|()| lines(text))?,
        "isspace" => bare().map(|()| all(is_space))?,
        "isdigit" | "isnumeric" => bare().map(|()| all(char::is_numeric))?,
        "isalpha" => bare().map(|()| all(char::is_alphabetic))?,
        "isalnum" => bare().map(|()| all(char::is_alphanumeric))?,
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    })
}

/// `str.strip(chars)`, at either end; without `chars` what Python takes for white space.
pub(crate) fn strip<'a>(text: &'a str, chars: Option<&str>, start: bool, end: bool) -> &'a str {
    let strips = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if start { text.trim_start_matches(strips) } else { text };
    if end { text.trim_end_matches(strips) } else { text }
}

/// `str.isspace` of one character: Unicode's white space and four separators of ASCII.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// `str.split(sep=None, maxsplit=-1)`.
fn split(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let Some(separator) = separator else { return Ok(words(text, most)) };
    if separator.is_empty() {
        return Err(invalid("split: an empty separator"));
    }
    Ok(text.splitn(most.saturating_add(1), separator).map(Value::from).collect())
}

/// Words between white space, `most` cuts at most.
fn words(text: &str, most: usize) -> Value {
    let mut words = Vec::new();
    let mut rest = strip(text, None, true, false);
    while !rest.is_empty() {
        let end = if words.len() < most { rest.find(is_space) } else { None };
        let (word, tail) = end.and_then(|end| rest.split_at_checked(end)).unwrap_or((rest, ""));
        words.push(Value::from(word));
        rest = strip(tail, None, true, false);
    }
    Value::from(words)
}

/// `str.startswith` or `endswith` with a string or several.
fn affix(args: &[Value], holds: impl Fn(&str) -> bool) -> Result<Value, Error> {
    let (affix,): (&Value,) = from_args(args)?;
    if let Some(affix) = affix.as_str() {
        return Ok(Value::from(holds(affix)));
    }
    let mut any = false;
    for affix in affix.try_iter()? {
        any |= holds(affix.as_str().ok_or_else(|| invalid("no string to begin or end with"))?);
    }
    Ok(Value::from(any))
}

/// The first character, and those after one that `ends_word`, in upper case, the others in lower case.
fn title(text: &str, ends_word: fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut first = true;
    for character in text.chars() {
        if first {
            out.extend(character.to_uppercase());
        } else {
            out.extend(character.to_lowercase());
        }
        first = ends_word(character);
    }
    out
}

/// `str.splitlines()`.
fn lines(text: &str) -> Value {
    let ends = |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(ends).unwrap_or(rest.len());
        let (line, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
        lines.push(Value::from(line));
        let mut after = tail.chars();
        after.next();
        rest = tail.strip_prefix("\r\n").unwrap_or(after.as_str());
    }
    Value::from(lines)
}

fn map(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let pairs = || {
        let object = value.as_object();
        object.and_then(|object| object.try_iter_pairs()).into_iter().flatten()
    };
    match method {
        "get" => {
            let (key, default): (&Value, Option<Value>) = from_args(args)?;
            let found = value.as_object().and_then(|object| object.get_value(key));
            return Ok(found.or(default).unwrap_or_else(|| Value::from(())));
        }
        "items" | "keys" | "values" => from_args::<()>(args)?,
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    }
    Ok(match method {
        "items" => pairs().map(|(key, value)| Value::from(Tuple::from([key, value]))).collect(),
        "keys" => pairs().map(|(key, _)| key).collect(),
        _ => pairs().map(|(_, value)| value).collect(),
    })
}

fn sequence(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if method != "count" {
        return Err(Error::from(ErrorKind::UnknownMethod));
    }
    let (what,): (&Value,) = from_args(args)?;
    Ok(Value::from(value.try_iter()?.filter(|item| item == what).count()))
}
