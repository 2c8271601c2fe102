//! Kind `Model`: a model whose prompts the agent can tell byte for byte.
//!
//! ```yaml
//! apiVersion: warmroute/v1alpha1
//! kind: Model
//! name: Qwen/Qwen3-8B         # as its engines serve it
//! aliases: [qwen, default]    # other names that they serve it by
//! adapters: [support-de]      # LoRA adapters on it; those that events name are learned
//! folder: models/qwen3        # tokenizer.json, tokenizer_config.json, chat_template.jinja; from this file's folder
//! ```
//!
//! The fields may stand under `spec:`. A folder that does not load makes the model approximate;
//! it does not refuse the configuration.

use super::document::Document;
use super::error::{Issue, Problem};
use super::kind::Kind;
use super::source::Source;
use crate::tokenizer::files::FILES;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use warmroute_shared_state::model::MAX_NAMES;

/// Models of all documents together.
pub const MAX_MODELS: usize = 64;
/// Longest name in bytes.
pub const MAX_NAME_BYTES: usize = 253;

/// One document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSpec {
    /// The name that its engines serve it by.
    pub name: String,
    /// Other names that they serve it by.
    pub aliases: Vec<String>,
    /// LoRA adapters that are known of.
    pub adapters: Vec<String>,
    /// Where its files are.
    pub folder: PathBuf,
}

impl ModelSpec {
    /// Changes when one of the folder's files does (by time and size).
    #[must_use]
    pub fn stamp(&self) -> u64 {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        for name in FILES {
            let state = std::fs::metadata(self.folder.join(name))
                .map_or([0, 0, 0], |meta| [meta.mtime(), meta.mtime_nsec(), meta.size() as i64]);
            state.iter().for_each(|part| hash.update(&part.to_le_bytes()));
        }
        hash.digest()
    }
}

/// A document's names, each with its line of the file.
pub(super) type Names = Vec<(String, u64)>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped {
    #[serde(rename = "apiVersion")]
    _api_version: Option<IgnoredAny>,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    #[serde(rename = "metadata")]
    _metadata: Option<IgnoredAny>,
    spec: Raw,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(rename = "apiVersion")]
    _api_version: Option<IgnoredAny>,
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    #[serde(rename = "metadata")]
    _metadata: Option<IgnoredAny>,
    name: Spanned<String>,
    #[serde(default)]
    aliases: Vec<Spanned<String>>,
    #[serde(default)]
    adapters: Vec<Spanned<String>>,
    folder: Spanned<String>,
}

/// Reads one document.
///
/// # Errors
/// Its first fault.
pub(super) fn read(document: &Document<'_>) -> Result<(ModelSpec, Names), Issue> {
    let raw = if document.has_key("spec") {
        document.parse::<Wrapped>()?.spec
    } else {
        document.parse::<Raw>()?
    };
    let mut names = Names::new();
    for name in [&raw.name].into_iter().chain(&raw.aliases).chain(&raw.adapters) {
        let line = name.referenced.line();
        let text = name.value.clone();
        let fine = !text.is_empty()
            && text.len() <= MAX_NAME_BYTES
            && !text.chars().any(|c| c.is_control() || c.is_whitespace());
        if !fine {
            let expected = "names of 1 to 253 bytes without spaces or control characters";
            let field = if std::ptr::eq(name, &raw.name) { "name" } else { "aliases or adapters" };
            return Err(document.issue(line, bad(field, &text, expected)));
        }
        names.push((text, line.saturating_add(document.line_offset)));
    }
    if raw.aliases.len() > MAX_NAMES || raw.adapters.len() > MAX_NAMES {
        let limit = MAX_NAMES;
        let what = "aliases or adapters";
        return Err(document.issue(raw.name.referenced.line(), Problem::TooMany { what, limit }));
    }
    if raw.folder.value.is_empty() {
        let problem = bad("folder", "", "the path of a folder with tokenizer.json");
        return Err(document.issue(raw.folder.referenced.line(), problem));
    }
    let beside = document.file.parent().unwrap_or(Path::new("."));
    let values = |list: Vec<Spanned<String>>| list.into_iter().map(|name| name.value).collect();
    let spec = ModelSpec {
        name: raw.name.value,
        aliases: values(raw.aliases),
        adapters: values(raw.adapters),
        folder: beside.join(raw.folder.value),
    };
    Ok((spec, names))
}

fn bad(field: &'static str, value: &str, expected: &'static str) -> Problem {
    Problem::BadValue { field, value: value.chars().take(80).collect(), expected }
}

/// The models that these sources name, whatever else is wrong with them: whose folders are watched.
pub(super) fn named_by(sources: &[Source]) -> Vec<ModelSpec> {
    let mut models = Vec::new();
    // Most documents are something else, and need not be parsed for it at each look.
    for source in sources.iter().filter(|source| source.text.contains("Model")) {
        let documents = Document::split(&source.path, &source.text).into_iter();
        for document in documents.filter(|document| document.text.contains("Model")) {
            if models.len() < MAX_MODELS && document.kind() == Ok(Kind::Model) {
                models.extend(read(&document).ok().map(|(spec, _)| spec));
            }
        }
    }
    models
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(ModelSpec, Names), Issue> {
        read(&Document::new(Path::new("conf/models.yaml"), 10, text))
    }

    #[test]
    fn all_fields_flat_or_under_spec() {
        let flat = "apiVersion: warmroute/v1alpha1\nkind: Model\nname: Qwen/Qwen3-8B\n\
                    aliases:\n- qwen\nadapters: [a, b]\nfolder: models/qwen3\n";
        let expected = ModelSpec {
            name: "Qwen/Qwen3-8B".into(),
            aliases: vec!["qwen".into()],
            adapters: vec!["a".into(), "b".into()],
            folder: "conf/models/qwen3".into(),
        };
        let (spec, names) = parse(flat).unwrap();
        assert_eq!(spec, expected);
        let names: Vec<_> = names.iter().map(|(name, line)| (name.as_str(), *line)).collect();
        assert_eq!(names, [("Qwen/Qwen3-8B", 13), ("qwen", 15), ("a", 16), ("b", 16)]);
        let spec = "kind: Model\nspec:\n  name: m\n  folder: /abs\n";
        let (spec, _) = parse(spec).unwrap();
        assert_eq!((spec.folder, spec.aliases.len()), (PathBuf::from("/abs"), 0));
    }

    #[test]
    fn each_fault_names_its_line() {
        let many = format!("name: m\nfolder: f\naliases: [{}]", "a,".repeat(MAX_NAMES + 1));
        let cases = [
            ("name: m", 2, "field `folder` is missing"),
            ("folder: m", 2, "field `name` is missing"),
            ("name: m\nfolder: f\nalias: [x]", 4, "did you mean `aliases`?"),
            ("name: ''\nfolder: f", 2, "`name` is ``"),
            ("name: m\nfolder: ''", 3, "`folder` is ``"),
            ("name: m\nfolder: f\nadapters:\n- a\n- b c", 6, "`b c`"),
            (&many, 2, "more than 1024 aliases"),
        ];
        for (fields, line, message) in cases {
            let issue = parse(&format!("kind: Model\n{fields}\n")).unwrap_err();
            let shown = issue.to_string();
            assert!(shown.contains(message), "{fields}\n{shown}");
            assert_eq!(issue.line, Some(line + 10), "{fields}\n{shown}");
        }
    }

    #[test]
    fn the_stamp_follows_the_folders_files() {
        let folder = tempfile::tempdir().unwrap();
        let spec = ModelSpec {
            name: "m".into(),
            aliases: vec![],
            adapters: vec![],
            folder: folder.path().into(),
        };
        let mut stamps = vec![spec.stamp()];
        for (name, text) in [("tokenizer.json", "{}"), ("chat_template.jinja", "x")] {
            std::fs::write(folder.path().join(name), text).unwrap();
            assert_eq!(spec.stamp(), spec.stamp());
            stamps.push(spec.stamp());
        }
        std::fs::write(folder.path().join("tokenizer.json"), "{ }").unwrap();
        stamps.push(spec.stamp());
        std::fs::write(folder.path().join("README.md"), "").unwrap();
        assert_eq!(stamps.last(), Some(&spec.stamp()));
        stamps.sort_unstable();
        stamps.dedup();
        assert_eq!(stamps.len(), 4);
    }

    #[test]
    fn models_of_sources_are_found_beside_anything_else() {
        let text =
            "endpoints: []\n---\nkind: Model\nname: m\nfolder: f\n---\nkind: Model\nname: x\n";
        let sources = [Source { path: "c/a.yaml".into(), text: text.into() }];
        let found: Vec<_> = named_by(&sources).into_iter().map(|model| model.folder).collect();
        assert_eq!(found, [PathBuf::from("c/f")]);
    }
}
