//! The tools of a chat as one canonical JSON text: keys sorted, numbers as `f64`, and escaped as Go's
//! `json.Marshal` does, which also escapes `<`, `>` and `&`. Clients that write the same tools in another
//! order share a prefix.

use serde_json::{Number, Value};
use std::borrow::Cow;

/// Longer tools are used as they were written: the tree that sorting needs would cost many times their size.
const MAX_SORTED_BYTES: usize = 256 << 10;

/// The canonical form of `raw`, well-formed JSON; empty for an empty list and for what is no list.
pub(super) fn canonical(raw: &[u8]) -> Cow<'_, [u8]> {
    if raw.len() > MAX_SORTED_BYTES {
        return Cow::Borrowed(raw);
    }
    match serde_json::from_slice(raw) {
        Ok(Value::Array(items)) if !items.is_empty() => {
            let mut out = Vec::with_capacity(raw.len());
            array(&items, &mut out);
            Cow::Owned(out)
        }
        Ok(_) => Cow::Borrowed(&[]),
        // A number beyond f64, say: no canonical form, but still a text that repeats.
        Err(_) => Cow::Borrowed(raw),
    }
}

fn value(any: &Value, out: &mut Vec<u8>) {
    match any {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(n) => number(n, out),
        Value::String(s) => string(s, out),
        Value::Array(items) => array(items, out),
        // The map is sorted by key.
        Value::Object(fields) => {
            out.push(b'{');
            for (index, (name, field)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                string(name, out);
                out.push(b':');
                value(field, out);
            }
            out.push(b'}');
        }
    }
}

fn array(items: &[Value], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        value(item, out);
    }
    out.push(b']');
}

/// As Go writes a `float64`: plain from 1e-6 to below 1e21, else with an exponent.
fn number(number: &Number, out: &mut Vec<u8>) {
    let float = number.as_f64().unwrap_or_default();
    let magnitude = float.abs();
    let text = if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{float:e}");
        if text.contains("e-") { text } else { text.replace('e', "e+") }
    } else {
        format!("{float}")
    };
    out.extend_from_slice(text.as_bytes());
}

fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for character in text.chars() {
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..'\u{20}' => {
                let escape = format!("\\u{:04x}", u32::from(character));
                out.extend_from_slice(escape.as_bytes());
            }
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::canonical;

    crate::tests! {
        fn written_as_go_would() {
            for (raw, expected) in [
                ("[]", ""),
                ("null", ""),
                (r#"{"a":1}"#, ""),
                ("[ 1 , true, null ]", "[1,true,null]"),
                (r#"[{"b":1,"a":{"d":[],"c":{}}}]"#, r#"[{"a":{"c":{},"d":[]},"b":1}]"#),
                (r#"[{"a":1,"a":2}]"#, r#"[{"a":2}]"#),
                (r#"["<b>&"]"#, r#"["\u003cb\u003e\u0026"]"#),
                (r#"["\u0041\u00e9\u2028\b\f\n\u0001\/\u007f"]"#, "[\"Aé\\u2028\\b\\f\\n\\u0001/\u{7f}\"]"),
                ("[1.0, 1.50, -0.0, 0.000001, 1e20]", "[1,1.5,-0,0.000001,100000000000000000000]"),
                ("[1e-7, 1e21, -2.5e30]", "[1e-7,1e+21,-2.5e+30]"),
                ("[9007199254740993]", "[9007199254740992]"),
                ("[1e999, 1]", "[1e999, 1]"),
            ] {
                let got = canonical(raw.as_bytes());
                assert_eq!(String::from_utf8_lossy(&got), expected, "{raw}");
            }
        }

        fn long_tools_are_taken_as_written() {
            let raw = format!("[{}1]", " ".repeat(300_000));
            assert_eq!(canonical(raw.as_bytes()), raw.as_bytes());
        }
    }
}
