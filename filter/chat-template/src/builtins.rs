//! The filters, tests and functions of Jinja that templates can use.
//!
//! Not all of minijinja's: each costs the module some kilobytes, and published templates use fewer than these. A
//! template that names another one is refused when it is compiled.

use crate::methods;
use crate::python_json::{Style, dumps};
use crate::shortening::MARK;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value, filters, functions, tests};
use std::borrow::Cow;

macro_rules! named {
    ($names:ident, $add:ident, $method:ident, { $($name:literal => $function:expr,)* }) => {
        /// Their names.
        pub(crate) const $names: &[&str] = &[$($name),*];

        /// Adds them all.
        pub(crate) fn $add(environment: &mut Environment<'static>) {
            $(environment.$method($name, $function);)*
        }
    };
}

named!(FILTERS, add_filters, add_filter, {
    "capitalize" => filters::capitalize,
    "count" => length,
    "d" => filters::default,
    "default" => filters::default,
    "dictsort" => filters::dictsort,
    "first" => filters::first,
    "float" => filters::float,
    "indent" => filters::indent,
    "int" => filters::int,
    "items" => filters::items,
    "join" => filters::join,
    "last" => filters::last,
    "length" => length,
    "list" => filters::list,
    "lower" => filters::lower,
    "map" => filters::map,
    "reject" => filters::reject,
    "rejectattr" => filters::rejectattr,
    "replace" => filters::replace,
    "reverse" => filters::reverse,
    "safe" => filters::safe,
    "select" => filters::select,
    "selectattr" => filters::selectattr,
    "sort" => filters::sort,
    "string" => filters::string,
    "title" => filters::title,
    "tojson" => to_json,
    "trim" => trim,
    "unique" => filters::unique,
    "upper" => filters::upper,
});

named!(TESTS, add_tests, add_test, {
    "boolean" => tests::is_boolean,
    "defined" => tests::is_defined,
    "eq" => tests::is_eq,
    "equalto" => tests::is_eq,
    "==" => tests::is_eq,
    "even" => tests::is_even,
    "false" => tests::is_false,
    "float" => tests::is_float,
    "ge" => tests::is_ge,
    "gt" => tests::is_gt,
    "in" => tests::is_in,
    "integer" => tests::is_integer,
    "iterable" => is_iterable,
    "le" => tests::is_le,
    "lt" => tests::is_lt,
    "mapping" => tests::is_mapping,
    "ne" => tests::is_ne,
    "!=" => tests::is_ne,
    "none" => tests::is_none,
    "number" => tests::is_number,
    "odd" => tests::is_odd,
    "sequence" => is_iterable,
    "string" => tests::is_string,
    "true" => tests::is_true,
    "undefined" => tests::is_undefined,
});

/// Adds Jinja's global functions.
pub(crate) fn add_functions(environment: &mut Environment<'static>) {
    environment.add_function("dict", functions::dict);
    environment.add_function("namespace", functions::namespace);
    environment.add_function("range", functions::range);
}

/// The length, but of a shortened text.
fn length(value: &Value) -> Result<usize, Error> {
    if value.as_str().is_some_and(|text| text.contains(MARK)) {
        return Err(Error::new(ErrorKind::InvalidOperation, "a shortened text"));
    }
    filters::length(value)
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

/// `transformers`' filter: `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
#[allow(clippy::needless_pass_by_value)] // minijinja wants them owned.
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
    // JSON would escape a shortened text's missing middle.
    dumps(value, &style)
        .ok()
        .filter(|json| !json.contains(MARK) && !json.contains("\\udbff\\udffe"))
        .map(Value::from)
        .ok_or_else(|| Error::new(ErrorKind::BadSerialization, "no JSON form"))
}
