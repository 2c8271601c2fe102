//! Scans Prometheus text for a few families, line by line.
//!
//! An own scanner and not a parser crate: a scrape is 60 to 200 kB of which about ten lines
//! matter, and every endpoint is scraped up to 20 times a second. Lines of other families cost
//! one search for their end. What cannot be read is skipped, never an error: engines differ.
//! Format: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::borrow::Cow;

/// One line: `name{labels} value`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample<'a> {
    /// Metric name.
    pub name: &'a [u8],
    /// What stands between the braces, unparsed.
    pub labels: &'a [u8],
    /// The value; may be NaN or infinite.
    pub value: f64,
}

/// The samples whose name `wanted` accepts, in order. A last line without its line feed is a
/// cut one and does not count.
pub fn samples<'a>(
    text: &'a [u8],
    wanted: impl Fn(&[u8]) -> bool,
) -> impl Iterator<Item = Sample<'a>> {
    let mut start = 0usize;
    let lines = memchr::memchr_iter(b'\n', text).map(move |end| {
        let line = text.get(start..end).unwrap_or_default();
        start = end.saturating_add(1);
        line
    });
    lines.filter_map(move |line| {
        let name = name_of(line);
        if wanted(name) { parse(line, name) } else { None }
    })
}

fn name_of(line: &[u8]) -> &[u8] {
    if line.first() == Some(&b'#') {
        return &[];
    }
    let end = memchr::memchr2(b'{', b' ', line).unwrap_or(line.len());
    line.get(..end).unwrap_or_default()
}

fn parse<'a>(line: &'a [u8], name: &'a [u8]) -> Option<Sample<'a>> {
    let rest = line.get(name.len()..)?;
    let (labels, rest) = match rest.strip_prefix(b"{") {
        Some(inside) => {
            let end = closing_brace(inside)?;
            (inside.get(..end)?, inside.get(end.checked_add(1)?..)?)
        }
        None => (&[][..], rest),
    };
    let mut words = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let value = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// Where the labels end: a brace inside a quoted value does not count.
fn closing_brace(inside: &[u8]) -> Option<usize> {
    let mut quoted = false;
    let mut escaped = false;
    for (at, byte) in inside.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// The value of the label `key`, unescaped; `None` if it is not there or the labels are broken.
#[must_use]
pub fn label<'a>(labels: &'a [u8], key: &str) -> Option<Cow<'a, str>> {
    let mut rest = labels;
    loop {
        let equals = memchr::memchr(b'=', rest)?;
        let name = rest.get(..equals)?.trim_ascii();
        let value = rest.get(equals.checked_add(1)?..)?.trim_ascii_start().strip_prefix(b"\"")?;
        let end = closing_quote(value)?;
        if name == key.as_bytes() {
            return unescape(value.get(..end)?);
        }
        rest = value.get(end.checked_add(1)?..)?.trim_ascii_start();
        rest = rest.strip_prefix(b",").unwrap_or(rest);
    }
}

fn closing_quote(value: &[u8]) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in value.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

fn unescape(raw: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(raw).ok()?;
    if !text.contains('\\') {
        return Some(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => {}
            },
            c => out.push(c),
        }
    }
    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(String, String, f64)> {
        let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        samples(text.as_bytes(), |name| !name.is_empty())
            .map(|s| (utf8(s.name), utf8(s.labels), s.value))
            .collect()
    }

    #[test]
    fn lines_as_engines_write_them() {
        let cases = [
            ("m 1\n", "m", "", 1.0),
            ("m{} 1.5e+09\n", "m", "", 1.5e9),
            ("a:b{x=\"1\"} 2.0 1700000000\n", "a:b", "x=\"1\"", 2.0),
            ("m{x=\"}\\\"}\",y=\"{\"} 3\n", "m", "x=\"}\\\"}\",y=\"{\"", 3.0),
            ("m\t4\n", "m\t4", "", f64::NAN),
            ("m{x=\"1\"}   5   \r\n", "m", "x=\"1\"", 5.0),
            ("m +Inf\n", "m", "", f64::INFINITY),
            ("m 7 # {trace=\"a\"} 1\n", "m", "", 7.0),
        ];
        for (text, name, labels, value) in cases {
            let found = all(text);
            if value.is_nan() {
                assert_eq!(found, [], "{text}");
            } else {
                assert_eq!(found, [(name.into(), labels.into(), value)], "{text}");
            }
        }
        assert!(all("m NaN\n")[0].2.is_nan());
    }

    #[test]
    fn what_cannot_be_read_is_skipped() {
        let text = "# HELP m x\n\nm\nm{x=\"1\" 1\nm{x=\"1\"}\nm one\n}{\nm 1\nm 2";
        assert_eq!(all(text), [("m".into(), String::new(), 1.0)], "the last line is cut");
    }

    #[test]
    fn labels_are_found_by_name() {
        let labels = br#"a="1", b="x,y=\"z\"\n\\", c="",d="4","#;
        let cases =
            [("a", Some("1")), ("b", Some("x,y=\"z\"\n\\")), ("c", Some("")), ("d", Some("4"))];
        for (key, value) in cases {
            assert_eq!(label(labels, key).as_deref(), value, "{key}");
        }
        assert_eq!(label(labels, "e"), None);
        assert_eq!(label(b"a=1", "a"), None);
        assert_eq!(label(b"a=\"1", "a"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_scanned(bytes in proptest::collection::vec(0u8.., 0..300)) {
            for sample in samples(&bytes, |_| true) {
                let _ = label(sample.labels, "a");
            }
        }

        #[test]
        fn any_line_like_bytes_are_scanned(text in "[a:{}\"\\\\=, 1\n#]{0,80}") {
            for sample in samples(text.as_bytes(), |_| true) {
                let _ = label(sample.labels, "a");
            }
        }

        #[test]
        fn a_written_sample_is_read_back(
            name in "[a-z_:]{1,12}", value in proptest::num::f64::NORMAL,
            text in "[^\r]{0,20}",
        ) {
            let escaped =
                text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let line = format!("{name}{{k=\"{escaped}\",z=\"1\"}} {value:e}\n");
            let found: Vec<_> = samples(line.as_bytes(), |_| true).collect();
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].value, value);
            assert_eq!(label(found[0].labels, "k").as_deref(), Some(text.as_str()));
        }
    }
}
