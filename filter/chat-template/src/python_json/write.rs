use core::fmt::Write;
use minijinja::Value;
use minijinja::value::ValueKind;

/// The arguments of `json.dumps` that templates give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Style {
    /// What one level is indented by; `None` writes all on one line.
    pub(crate) indent: Option<String>,
    /// Between items.
    pub(crate) item_separator: String,
    /// Between key and value.
    pub(crate) key_separator: String,
    /// Fields in the order of their keys.
    pub(crate) sort_keys: bool,
    /// Everything beyond ASCII as `\uXXXX`.
    pub(crate) ensure_ascii: bool,
}

impl Style {
    /// Python's separators for this indent.
    pub(crate) fn new(indent: Option<String>) -> Self {
        let item_separator = if indent.is_some() { "," } else { ", " };
        Self {
            indent,
            item_separator: item_separator.into(),
            key_separator: ": ".into(),
            sort_keys: false,
            ensure_ascii: false,
        }
    }
}

/// A value that `json.dumps` has no form for (an undefined one, say), or one nested too deeply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unwritable;

/// As for reading.
const MAX_DEPTH: usize = 128;

/// Writes `value` as `json.dumps(value, …)` does.
pub(crate) fn dumps(value: &Value, style: &Style) -> Result<String, Unwritable> {
    let mut writer = Writer { style, out: String::new() };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer<'a> {
    style: &'a Style,
    out: String,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Unwritable> {
        if depth > MAX_DEPTH {
            return Err(Unwritable);
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.display(value),
            ValueKind::Number => {
                let float = f64::try_from(value.clone()).map_err(|_| Unwritable)?;
                self.out.push_str(&float_text(float));
            }
            ValueKind::String => self.string(value.as_str().ok_or(Unwritable)?),
            ValueKind::Seq => self.array(value, depth)?,
            ValueKind::Map => self.object(value, depth)?,
            _ => return Err(Unwritable),
        }
        Ok(())
    }

    fn display(&mut self, value: &Value) {
        // Writing to a string cannot fail.
        let _ = write!(self.out, "{value}");
    }

    fn array(&mut self, value: &Value, depth: usize) -> Result<(), Unwritable> {
        let inner = depth.saturating_add(1);
        self.out.push('[');
        let mut is_empty = true;
        for item in value.try_iter().map_err(|_| Unwritable)? {
            self.separate(&mut is_empty, inner);
            self.value(&item, inner)?;
        }
        self.close(is_empty, depth, ']');
        Ok(())
    }

    fn object(&mut self, value: &Value, depth: usize) -> Result<(), Unwritable> {
        let inner = depth.saturating_add(1);
        let object = value.as_object().ok_or(Unwritable)?;
        let mut fields: Vec<_> = object.try_iter_pairs().ok_or(Unwritable)?.collect();
        if self.style.sort_keys {
            // Python orders text by code points, which is the order of its UTF-8.
            fields.sort_by(|(a, _), (b, _)| a.as_str().cmp(&b.as_str()));
        }
        self.out.push('{');
        let mut is_empty = true;
        for (key, item) in &fields {
            self.separate(&mut is_empty, inner);
            match key.kind() {
                ValueKind::String => self.string(key.as_str().ok_or(Unwritable)?),
                ValueKind::Number | ValueKind::Bool | ValueKind::None => {
                    self.out.push('"');
                    self.value(key, inner)?;
                    self.out.push('"');
                }
                _ => return Err(Unwritable),
            }
            self.out.push_str(&self.style.key_separator);
            self.value(item, inner)?;
        }
        self.close(is_empty, depth, '}');
        Ok(())
    }

    fn separate(&mut self, is_first: &mut bool, depth: usize) {
        if !*is_first {
            self.out.push_str(&self.style.item_separator);
        }
        *is_first = false;
        self.new_line(depth);
    }

    fn close(&mut self, is_empty: bool, depth: usize, bracket: char) {
        if !is_empty {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        let mut rest = text;
        let is_plain = |c: char| {
            !(matches!(c, '"' | '\\' | '\0'..'\u{20}') || self.style.ensure_ascii && c > '\u{7e}')
        };
        while let Some(at) = rest.find(|c| !is_plain(c)) {
            let (plain, tail) = rest.split_at_checked(at).unwrap_or((rest, ""));
            self.out.push_str(plain);
            let mut characters = tail.chars();
            if let Some(character) = characters.next() {
                escape(character, &mut self.out);
            }
            rest = characters.as_str();
        }
        self.out.push_str(rest);
        self.out.push('"');
    }
}

fn escape(character: char, out: &mut String) {
    let short = match character {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        _ => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
            return;
        }
    };
    out.push_str(short);
}

/// `float.__repr__`: the shortest digits that read back, plain from 1e-4 to below 1e16, else with an exponent of
/// at least two digits; and the names that `json` gives to what is no number.
pub(crate) fn float_text(float: f64) -> String {
    if float.is_nan() {
        return "NaN".into();
    }
    if float.is_infinite() {
        return if float > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let magnitude = float.abs();
    if magnitude == 0.0 || (1e-4..1e16).contains(&magnitude) {
        return format!("{float:?}");
    }
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{digits}e-{exponent:0>2}"),
        None => format!("{digits}e+{exponent:0>2}"),
    }
}
