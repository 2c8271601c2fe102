//! Model mapping: a ConfigMap that says which names stand for a base model.
//!
//! Format: llm-d's payload processor; `data.baseModel`, and `data.adapters` as a YAML list in a text.

use super::document::Document;
use super::error::{Problem, did_you_mean};
use super::object::{Fault, Head};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

/// Label that tells a mapping from other ConfigMaps; its value is `true`.
pub const MAPPING_LABEL: &str = "inference.llm-d.ai/ipp-managed";
const FIELDS: &[&str] = &["baseModel", "adapters"];
/// Adapters of a mapping at most.
const MAX_ADAPTERS: usize = 1024;

/// One mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct MappingSpec {
    /// The ConfigMap.
    pub head: Head,
    /// The base model.
    pub base_model: String,
    /// Names that stand for it besides its own.
    pub adapters: Vec<String>,
}

/// Reads the data of a ConfigMap with the label.
///
/// # Errors
/// Its first fault.
pub(super) fn read(
    head: Head,
    mut data: BTreeMap<String, Spanned<String>>,
    document: &Document<'_>,
) -> Result<MappingSpec, Fault> {
    let base = data.remove("baseModel").ok_or((1, Problem::MissingField("baseModel")))?;
    let base_line = base.referenced.line();
    let adapters = data.remove("adapters");
    if let Some((field, value)) = data.into_iter().next() {
        let advice = did_you_mean(&field, FIELDS);
        // A value in a block begins one line below its key.
        let key =
            |line: u64| document.text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?);
        let line = value.referenced.line();
        let above = line.saturating_sub(1);
        let named = |line: &u64| {
            key(*line).is_some_and(|text| text.trim_start().starts_with(field.as_str()))
        };
        let line = [line, above].into_iter().find(named).unwrap_or(line);
        return Err((line, Problem::UnknownField { field, advice }));
    }
    let base_model = base.value.trim().to_owned();
    // It is told to routes as a header.
    if base_model.is_empty() || base_model.chars().any(char::is_control) {
        let expected = "a model's name, in one line";
        return Err((base_line, Problem::bad("baseModel", &base_model, expected)));
    }
    let adapters = adapters.map_or_else(|| Ok(Vec::new()), |text| names(&text))?;
    Ok(MappingSpec { head, base_model, adapters })
}

/// The names of a list in a text. Numbers are names too; nothing else is.
fn names(text: &Spanned<String>) -> Result<Vec<String>, Fault> {
    let line = text.referenced.line();
    let expected = "a YAML list of names, as text";
    let refuse = |line| (line, Problem::bad("adapters", &text.value, expected));
    if text.value.trim().is_empty() {
        return Ok(Vec::new());
    }
    let list: Vec<Option<String>> =
        serde_saphyr::from_str(&text.value).map_err(|_| refuse(line))?;
    let mut names: Vec<String> = Vec::new();
    for name in list.into_iter().flatten().filter(|name| !name.is_empty()) {
        if name.chars().any(char::is_control) {
            return Err(refuse(line));
        }
        if !names.contains(&name) {
            names.push(name);
        }
        if names.len() > MAX_ADAPTERS {
            return Err((line, Problem::TooMany { what: "adapters", limit: MAX_ADAPTERS }));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::super::config_map::{self, Content};
    use super::*;
    use std::path::Path;

    fn parse(data: &str) -> Result<MappingSpec, String> {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n  labels: {{{MAPPING_LABEL}: \"true\"}}\ndata:\n{data}"
        );
        match config_map::read(&Document::new(Path::new("m.yaml"), 0, &text)) {
            Ok(Content::Mapping(mapping)) => Ok(mapping),
            other => Err(format!("{}", other.unwrap_err())),
        }
    }

    #[test]
    fn adapters_are_a_list_in_a_text() {
        let mapping = parse("  baseModel: base\n  adapters: |\n    - a\n    # remark\n    - \"b\"\n    - 7\n    - a\n").unwrap();
        assert_eq!(
            (mapping.base_model.as_str(), mapping.adapters),
            ("base", vec!["a".into(), "b".into(), "7".into()])
        );
        for none in ["", "  adapters: ''\n", "  adapters: '[]'\n"] {
            assert_eq!(
                parse(&format!("  baseModel: base\n{none}")).unwrap().adapters,
                Vec::<String>::new()
            );
        }
    }

    #[test]
    fn each_fault_names_its_line() {
        let cases = [
            ("  adapters: '[]'\n", "m.yaml:1: field `baseModel` is missing"),
            ("  baseModel: ''\n", "m.yaml:7: `baseModel` is ``"),
            (
                "  baseModel: \"a\\nb\"\n",
                "m.yaml:7: `baseModel` is `a b`; give a model's name, in one line",
            ),
            ("  baseModel: b\n  adapters: '[\"a\\nb\"]'\n", "m.yaml:8: `adapters` is"),
            (
                "  baseModel: b\n  adapters: a, b\n",
                "m.yaml:8: `adapters` is `a, b`; give a YAML list",
            ),
            ("  baseModel: b\n  adapters: '[{a: b}]'\n", "m.yaml:8: `adapters` is"),
            (
                "  baseModel: b\n  adapter: '[]'\n",
                "m.yaml:8: unknown field `adapter`; did you mean `adapters`?",
            ),
            ("  baseModel: b\n  adapter: |\n    - x\n", "m.yaml:8: unknown field `adapter`"),
        ];
        for (data, message) in cases {
            let shown = parse(data).unwrap_err();
            assert!(shown.starts_with(message), "{data}\n{shown}");
        }
    }
}
