//! Jinja as `transformers` sets it up (`_compile_jinja_template` in `transformers/utils/chat_template_utils.py`).

use crate::clock::strftime;
use crate::methods;
use crate::python_json::{Style, dumps};
use core::fmt;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};
use std::borrow::Cow;

/// The most steps of one rendering: instructions, items and 64-byte pieces of text made on the way. A chat of 400
/// messages and 220 KB takes about 60,000.
const FUEL: u64 = 4_000_000;

/// The name under which a rendering's clock, seconds since 1970, is found.
pub(crate) const CLOCK: &str = "warmroute_clock";

/// `trim_blocks` and `lstrip_blocks`, as `transformers` sets them.
pub(crate) fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

/// What `transformers` gives a template; `bare` leaves out its additions.
pub(crate) fn environment(bare: bool) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax()?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(100);
    environment.set_unknown_method_callback(methods::call);
    environment.add_filter("trim", trim);
    environment.add_filter("tojson", to_json);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_iterable);
    if !bare {
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
    }
    Ok(environment)
}

/// The source of an error that the template raised by itself.
#[derive(Debug)]
pub(crate) struct Raised;

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("raised by the template")
    }
}

impl core::error::Error for Raised {}

/// The message is dropped: templates put roles and contents into it.
fn raise_exception(_message: Rest<Value>) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised))
}

fn strftime_now(state: &State<'_, '_>, format: &str) -> Result<String, Error> {
    let clock = state.lookup(CLOCK).and_then(|clock| u64::try_from(clock).ok());
    clock
        .and_then(|unix_s| strftime(format, unix_s))
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "strftime_now: unknown directive"))
}

/// Jinja's `trim`, with Python's idea of white space.
fn trim(value: &Value, chars: Option<&str>) -> String {
    let text = value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed);
    methods::strip(&text, chars, true, true).to_owned()
}

/// Python iterates over strings and dicts, too, and both have a length and items.
fn is_iterable(value: &Value) -> bool {
    !matches!(value.kind(), ValueKind::None | ValueKind::Bool | ValueKind::Number)
}

/// `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn to_json(value: &Value, args: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let value = match args.get(index) {
            Some(value) => Some(value.clone()),
            None => named.get(name)?,
        };
        Ok(value.filter(|value| !value.is_none()))
    };
    let indent = argument(1, "indent")?.map(|indent| match indent.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(indent.as_usize().unwrap_or(0).min(64)),
    });
    let mut style = Style::new(indent);
    style.ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
    style.sort_keys = argument(3, "sort_keys")?.is_some_and(|value| value.is_true());
    if let Some(separators) = argument(2, "separators")? {
        let at = |index| separators.get_item_by_index(index).map(|item| item.to_string());
        style.item_separator = at(0)?;
        style.key_separator = at(1)?;
    }
    named.assert_all_used()?;
    dumps(value, &style)
        .map(Value::from)
        .map_err(|_| Error::new(ErrorKind::BadSerialization, "no JSON form"))
}
