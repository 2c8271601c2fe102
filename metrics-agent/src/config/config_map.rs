//! `ConfigMap`: text by key. Two kinds of content are read: a picker's configuration under any key, and a model
//! mapping, told by its label.

use super::document::Document;
use super::error::{Issue, Problem, nearest};
use super::model_mapping::{self, MAPPING_LABEL, MappingSpec};
use super::object::{Head, Metadata};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

const PICKER_KIND: &str = "EndpointPickerConfig";

/// What a ConfigMap holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A model mapping.
    Mapping(MappingSpec),
    /// Texts that are pickers' configurations.
    Pickers(Head, Vec<Text>),
    /// Nothing for the agent.
    Nothing(Head),
}

/// A text under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The key, without the extension of a YAML file.
    pub name: String,
    /// Lines of the file before it.
    pub line_offset: u64,
    /// Whether its lines are none of the file's: it stands in one quoted scalar.
    pub one_line: bool,
    /// The text.
    pub text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Raw {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    metadata: Metadata,
    #[serde(default)]
    data: Option<BTreeMap<String, Spanned<String>>>,
    #[serde(rename = "binaryData")]
    _binary_data: Option<IgnoredAny>,
    #[serde(rename = "immutable")]
    _immutable: Option<IgnoredAny>,
}

/// Reads one document.
///
/// # Errors
/// Its first fault.
pub fn read(document: &Document<'_>) -> Result<Content, Issue> {
    let raw: Raw = document.parse()?;
    let head = raw.metadata.head(document)?;
    let data = raw.data.unwrap_or_default();
    if head.labels.get(MAPPING_LABEL).is_some_and(|value| value == "true") {
        let mapping = model_mapping::read(head, data, document);
        return mapping
            .map(Content::Mapping)
            .map_err(|(line, problem)| document.issue(line, problem));
    }
    let mut texts = Vec::new();
    for (key, value) in data.into_iter().filter(|(_, value)| is_picker(document, &value.value)) {
        let stem = [".yaml", ".yml"].iter().find_map(|ending| key.strip_suffix(ending));
        texts.push(locate(document, stem.unwrap_or(&key), value));
    }
    Ok(if texts.is_empty() { Content::Nothing(head) } else { Content::Pickers(head, texts) })
}

/// What a text says that it is.
#[derive(Deserialize)]
struct Kinded {
    kind: Option<String>,
}

/// Whether a text means to be a picker's configuration, right or not: JSON and any other spelling of YAML, too.
fn is_picker(document: &Document<'_>, text: &str) -> bool {
    let read = Document::new(document.file, 0, text).parse::<Kinded>();
    if let Ok(Kinded { kind: Some(kind) }) = read {
        return nearest(&kind, &[PICKER_KIND]).is_some();
    }
    // It cannot be read: what is wrong with it is to be told.
    let kinds = text.lines().filter_map(|line| line.strip_prefix("kind:"));
    kinds
        .map(|kind| kind.split('#').next().unwrap_or(kind).trim().trim_matches(['"', '\'']))
        .any(|kind| nearest(kind, &[PICKER_KIND]).is_some())
}

/// Where the lines of a value are. A block (`|`) begins on the line after its mark; anything else is one line to us.
fn locate(document: &Document<'_>, name: &str, value: Spanned<String>) -> Text {
    let at = usize::try_from(value.referenced.line()).unwrap_or(0);
    let line = |n: usize| n.checked_sub(1).and_then(|n| document.text.lines().nth(n)).unwrap_or("");
    let is_mark = |n: usize| {
        let text = line(n).split(" #").next().unwrap_or("").trim_end();
        text.rsplit([' ', ':']).next().is_some_and(|last| last.starts_with('|'))
    };
    // The library says where the mark is, or where the text is: look at both.
    let first = value.value.lines().next().unwrap_or("");
    let before = match (is_mark(at), at.checked_sub(1)) {
        (true, _) => Some(at),
        (false, Some(above)) if is_mark(above) && line(at).trim() == first.trim() => Some(above),
        _ => None,
    };
    let line = before.unwrap_or(at.saturating_sub(1));
    let line_offset = document.line_offset.saturating_add(u64::try_from(line).unwrap_or(0));
    let one_line = before.is_none() || document.one_line;
    Text { name: name.to_owned(), line_offset, one_line, text: value.value }
}

/// A ConfigMap that says nothing to the agent.
#[must_use]
pub fn nothing(head: &Head) -> Issue {
    let text = format!(
        "ConfigMap `{}` holds no {PICKER_KIND} and has no label {MAPPING_LABEL}; it was passed over",
        head.full_name()
    );
    head.place.issue(Problem::Conflict(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn texts(data: &str) -> Vec<Text> {
        let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n{data}");
        match read(&Document::new(Path::new("c.yaml"), 100, &text)).unwrap() {
            Content::Pickers(_, texts) => texts,
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_pickers_text_keeps_its_lines() {
        let picker = "kind: EndpointPickerConfig\nplugins: []\n";
        for data in [
            "  a.yaml: |\n    kind: EndpointPickerConfig\n    plugins: []\n",
            "  a.yaml: |  # a remark\n    kind: EndpointPickerConfig\n    plugins: []\n",
            "  a.yaml: |2\n    kind: EndpointPickerConfig\n    plugins: []\n",
        ] {
            let found = texts(data);
            assert_eq!(found.len(), 1, "{data}");
            assert_eq!((found[0].line_offset, found[0].one_line), (105, false), "{data}");
        }
        let first =
            texts("  b: other\n  a.yaml: |-\n    kind: EndpointPickerConfig\n    plugins: []\n");
        assert_eq!((first[0].line_offset, first[0].one_line), (106, false));
        assert_eq!(first[0].text, picker.trim_end());
        let quoted = texts("  a.yaml: \"kind: EndpointPickerConfig\\nplugins: []\\n\"\n");
        let expected =
            Text { name: "a".into(), line_offset: 104, one_line: true, text: picker.into() };
        assert_eq!(quoted, [expected]);
    }

    #[test]
    fn other_texts_are_nothing_and_a_slip_is_still_a_picker() {
        assert_eq!(texts("  a: x\n  b: |\n    kind: Deployment\n"), []);
        assert_eq!(texts("  a: |\n    kind: EndpointPickerConfg\n").len(), 1);
    }
}
