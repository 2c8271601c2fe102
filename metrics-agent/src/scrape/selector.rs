//! Which series of an exposition are meant: a metric's name and labels that have to be there.
//!
//! llm-d's `metricSpec`: a PromQL instant vector selector, `name` or `name{label=value,…}`, where the quotes of a
//! value may be left out. Only `=` is known: llm-d accepts the other operators and passes over them, which reads
//! other series than those that were asked for.

use super::exposition;

/// Labels of one selector.
const MAX_LABELS: usize = 32;

/// A metric's name with labels that a series must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    name: String,
    labels: Vec<(String, String)>,
}

/// Why a text is no selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// Nothing before the brace, or nothing at all.
    #[error("there is no metric name; write `name` or `name{{label=value}}`")]
    NoName,
    /// A character that a name cannot have.
    #[error("a metric's name has letters, digits, `_` and `:` only, and no digit in front")]
    Name,
    /// A label's name is missing or has other characters.
    #[error("a label's name has letters, digits and `_` only, and no digit in front")]
    Label,
    /// `!=`, `=~`, `!~`.
    #[error("labels are compared by `=` only")]
    Operator,
    /// A value is missing, or its quotes do not end.
    #[error("a label's value is missing, or its quotes do not end")]
    Value,
    /// A brace without its counterpart, or something behind it.
    #[error("the labels end with `}}`, and nothing comes behind")]
    Braces,
    /// More labels than anyone needs.
    #[error("more than {MAX_LABELS} labels")]
    TooManyLabels,
}

impl Selector {
    /// All series of a family.
    #[must_use]
    pub fn family(name: &str) -> Self {
        Self { name: name.to_owned(), labels: Vec::new() }
    }

    /// The series of a family that have this label.
    #[must_use]
    pub fn with_label(name: &str, label: &str, value: &str) -> Self {
        Self { name: name.to_owned(), labels: vec![(label.to_owned(), value.to_owned())] }
    }

    /// Reads `name` or `name{label=value,…}`.
    ///
    /// # Errors
    /// If it is not that.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let text = text.trim();
        let (name, labels) = match text.split_once('{') {
            None if text.contains('}') => return Err(SelectorError::Braces),
            None => (text, None),
            Some((name, rest)) => (name.trim_end(), Some(rest)),
        };
        if name.is_empty() {
            return Err(SelectorError::NoName);
        }
        if !is_name(name, true) {
            return Err(SelectorError::Name);
        }
        let labels = labels.map(parse_labels).transpose()?.unwrap_or_default();
        Ok(Self { name: name.to_owned(), labels })
    }

    /// The family's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a series of this name, with these labels as they stand between its braces, is meant.
    #[must_use]
    pub fn selects(&self, name: &[u8], labels: &[u8]) -> bool {
        name == self.name.as_bytes()
            && self
                .labels
                .iter()
                .all(|(key, value)| exposition::label(labels, key).is_some_and(|v| v == *value))
    }
}

/// Reads what stands behind the opening brace.
fn parse_labels(mut rest: &str) -> Result<Vec<(String, String)>, SelectorError> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix('}') {
            return if behind.trim().is_empty() { Ok(labels) } else { Err(SelectorError::Braces) };
        }
        if labels.len() >= MAX_LABELS {
            return Err(SelectorError::TooManyLabels);
        }
        let (key, value) = rest.split_once('=').ok_or(SelectorError::Braces)?;
        if value.starts_with('~') || key.trim_end().ends_with('!') || key.contains('~') {
            return Err(SelectorError::Operator);
        }
        let key = key.trim();
        if !is_name(key, false) {
            return Err(SelectorError::Label);
        }
        let (value, behind) = parse_value(value.trim_start())?;
        labels.push((key.to_owned(), value));
        rest = behind.trim_start();
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None if rest.starts_with('}') => {}
            None => return Err(SelectorError::Braces),
        }
    }
}

/// A value, quoted or not, and what comes behind it.
fn parse_value(text: &str) -> Result<(String, &str), SelectorError> {
    let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        let end = text.find([',', '}']).ok_or(SelectorError::Braces)?;
        let (value, behind) = text.split_at(end);
        let value = value.trim();
        let fine = !value.is_empty() && !value.contains(['"', '\'', '{']);
        return if fine { Ok((value.to_owned(), behind)) } else { Err(SelectorError::Value) };
    };
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => {
                let behind = text.get(at.saturating_add(1)..).unwrap_or_default();
                return Ok((value, behind));
            }
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, c)) => value.push(c),
                None => break,
            },
            c => value.push(c),
        }
    }
    Err(SelectorError::Value)
}

fn is_name(text: &str, colons: bool) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    text.chars().all(fine) && text.chars().next().is_some_and(|c| !c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, Vec<(String, String)>) {
        let Selector { name, labels } = Selector::parse(text).unwrap();
        (name, labels)
    }

    #[test]
    fn selectors_as_llm_d_writes_them() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>()
        };
        type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);
        let cases: [Case<'_>; 9] = [
            ("vllm:num_requests_waiting", "vllm:num_requests_waiting", &[]),
            (" m ", "m", &[]),
            ("m{}", "m", &[]),
            ("m{type=waiting}", "m", &[("type", "waiting")]),
            ("m {type = waiting , tier=gold}", "m", &[("type", "waiting"), ("tier", "gold")]),
            ("m{type=\"waiting\"}", "m", &[("type", "waiting")]),
            ("m{type='a,b}',x=1}", "m", &[("type", "a,b}"), ("x", "1")]),
            ("m{type=\"a\\\"b\\\\\\n\",}", "m", &[("type", "a\"b\\\n")]),
            ("m{type=\"\"}", "m", &[("type", "")]),
        ];
        for (text, name, wanted) in cases {
            assert_eq!(parsed(text), (name.to_owned(), labels(wanted)), "{text}");
        }
    }

    #[test]
    fn what_is_no_selector_says_why() {
        use SelectorError::{Braces, Label, Name, NoName, Operator, TooManyLabels, Value};
        let many = format!("m{{{}}}", "a=b,".repeat(40));
        let cases = [
            ("", NoName),
            ("{a=b}", NoName),
            ("m m", Name),
            ("1m", Name),
            ("rate(m)", Name),
            ("m{a=b", Braces),
            ("m}", Braces),
            ("m{a=b}[5m]", Braces),
            ("m{a}", Braces),
            ("m{a=\"b\" c}", Braces),
            ("m{=b}", Label),
            ("m{a:b=c}", Label),
            ("m{a!=b}", Operator),
            ("m{a=~\"b\"}", Operator),
            ("m{a!~\"b\",c=d}", Operator),
            ("m{a=}", Value),
            ("m{a=\"b}", Value),
            ("m{a=b\"c\"}", Value),
            (&many, TooManyLabels),
        ];
        for (text, error) in cases {
            assert_eq!(Selector::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_series_is_meant_if_it_has_all_labels() {
        let selector = Selector::parse("m{a=1,b=x}").unwrap();
        let cases: [(&str, &str, bool); 6] = [
            ("m", "a=\"1\",b=\"x\"", true),
            ("m", "z=\"0\",b=\"x\",a=\"1\"", true),
            ("m", "a=\"1\"", false),
            ("m", "a=\"1\",b=\"y\"", false),
            ("m", "", false),
            ("n", "a=\"1\",b=\"x\"", false),
        ];
        for (name, labels, wanted) in cases {
            assert_eq!(selector.selects(name.as_bytes(), labels.as_bytes()), wanted, "{labels}");
        }
        assert!(Selector::family("m").selects(b"m", b"a=\"1\""));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_judged(text in "[a-z0-9_:{}=\"'\\\\,!~ é]{0,40}") {
            let _ = Selector::parse(&text);
        }

        #[test]
        fn any_unicode_is_judged(text in ".{0,40}") {
            let _ = Selector::parse(&text);
        }

        #[test]
        fn a_quoted_value_comes_back(value in ".{0,20}") {
            let quoted =
                value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let (_, labels) = parsed(&format!("m{{k=\"{quoted}\"}}"));
            assert_eq!(labels, [("k".to_owned(), value)]);
        }
    }
}
