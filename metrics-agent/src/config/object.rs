//! What every Kubernetes object has: a name, a namespace, labels, and a place in a file.

use super::document::Document;
use super::error::{Issue, Problem, did_you_mean};
use crate::timestamp::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::path::PathBuf;
use warmroute_shared_state::policy::routing::Split;

/// Longest name or namespace in bytes (Kubernetes' limit for names).
const MAX_NAME_BYTES: usize = 253;
/// Prefix of Warmroute's own annotations.
const OWN_ANNOTATIONS: &str = "warmroute/";
/// Annotation: how a weighted choice is made, `conversation` or `random`.
pub const SPLIT_ANNOTATION: &str = "warmroute/split";

/// A file and a line of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// The file, as the operator named it.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: u64,
}

impl Place {
    /// An issue at this place.
    #[must_use]
    pub fn issue(&self, problem: Problem) -> Issue {
        Issue::new(&self.file, self.line, problem)
    }

    /// Another line of the same file.
    #[must_use]
    pub fn at(&self, line: u64) -> Self {
        Self { file: self.file.clone(), line }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// An object's metadata, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// `default` if none was given.
    pub namespace: String,
    /// Unique in its namespace and kind.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// `creationTimestamp`; files that people write have none.
    pub created: Option<Timestamp>,
    /// [`SPLIT_ANNOTATION`].
    pub split: Option<Split>,
    /// Where the object begins.
    pub place: Place,
}

impl Head {
    /// `namespace/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Sorts older objects first, and those of no known age last.
    #[must_use]
    pub fn age(&self) -> (bool, Option<Timestamp>) {
        (self.created.is_none(), self.created)
    }
}

/// `metadata` as written. Everything that Kubernetes puts there is allowed, the most of it unread.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Metadata {
    name: Spanned<String>,
    namespace: Option<Spanned<String>>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, Spanned<String>>>,
    creation_timestamp: Option<Spanned<String>>,
    #[serde(rename = "generateName")]
    _generate_name: Option<IgnoredAny>,
    #[serde(rename = "uid")]
    _uid: Option<IgnoredAny>,
    #[serde(rename = "resourceVersion")]
    _resource_version: Option<IgnoredAny>,
    #[serde(rename = "generation")]
    _generation: Option<IgnoredAny>,
    #[serde(rename = "managedFields")]
    _managed_fields: Option<IgnoredAny>,
    #[serde(rename = "ownerReferences")]
    _owner_references: Option<IgnoredAny>,
    #[serde(rename = "finalizers")]
    _finalizers: Option<IgnoredAny>,
    #[serde(rename = "selfLink")]
    _self_link: Option<IgnoredAny>,
    #[serde(rename = "deletionTimestamp")]
    _deletion_timestamp: Option<IgnoredAny>,
    #[serde(rename = "deletionGracePeriodSeconds")]
    _deletion_grace_period_seconds: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object<S> {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    metadata: Metadata,
    spec: S,
    #[serde(rename = "status")]
    _status: Option<IgnoredAny>,
}

/// A fault at a line of the document.
pub(super) type Fault = (u64, Problem);

/// Reads an object with a `spec`.
///
/// # Errors
/// Its first fault.
pub(super) fn read<S: DeserializeOwned>(document: &Document<'_>) -> Result<(Head, S), Issue> {
    let object: Object<S> = document.parse()?;
    Ok((object.metadata.head(document)?, object.spec))
}

impl Metadata {
    /// The part that matters, checked.
    ///
    /// # Errors
    /// If a name, a time or an annotation cannot be.
    pub(super) fn head(self, document: &Document<'_>) -> Result<Head, Issue> {
        let place = document.place(1);
        self.checked(place).map_err(|(line, problem)| document.issue(line, problem))
    }

    fn checked(self, place: Place) -> Result<Head, Fault> {
        let namespace = match self.namespace {
            Some(namespace) => checked_name("namespace", namespace)?,
            None => "default".to_owned(),
        };
        Ok(Head {
            namespace,
            name: checked_name("name", self.name)?,
            labels: self.labels.unwrap_or_default(),
            created: self.creation_timestamp.as_ref().map(timestamp).transpose()?,
            split: split(&self.annotations.unwrap_or_default())?,
            place,
        })
    }
}

/// A name that Kubernetes could have allowed, or nearly.
///
/// # Errors
/// If it is empty, long, or has characters that would be misread elsewhere.
pub(super) fn checked_name(field: &'static str, name: Spanned<String>) -> Result<String, Fault> {
    let line = name.referenced.line();
    let text = name.value;
    let fine = !text.is_empty()
        && text.len() <= MAX_NAME_BYTES
        && text.chars().all(|c| !c.is_control() && !c.is_whitespace() && c != '/');
    if fine {
        return Ok(text);
    }
    let expected = "1 to 253 bytes without spaces, `/` or control characters";
    Err((line, Problem::bad(field, &text, expected)))
}

fn timestamp(time: &Spanned<String>) -> Result<Timestamp, Fault> {
    Timestamp::parse(&time.value).ok_or_else(|| {
        let expected = "a time of RFC 3339, like 2026-01-31T12:00:00Z";
        (time.referenced.line(), Problem::bad("creationTimestamp", &time.value, expected))
    })
}

fn split(annotations: &BTreeMap<String, Spanned<String>>) -> Result<Option<Split>, Fault> {
    let mut split = None;
    for (key, value) in annotations.iter().filter(|(key, _)| key.starts_with(OWN_ANNOTATIONS)) {
        let line = value.referenced.line();
        if key != SPLIT_ANNOTATION {
            let advice = did_you_mean(key, &[SPLIT_ANNOTATION]);
            return Err((line, Problem::unknown("annotation", key, advice)));
        }
        split = Some(match value.value.as_str() {
            "conversation" => Split::Conversation,
            "random" => Split::Random,
            other => {
                let expected = "`conversation` or `random`";
                return Err((line, Problem::bad(SPLIT_ANNOTATION, other, expected)));
            }
        });
    }
    Ok(split)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn head(metadata: &str) -> Result<Head, String> {
        let text =
            format!("apiVersion: v\nkind: K\nmetadata:\n{metadata}spec: {{}}\nstatus: {{x: 1}}\n");
        let document = Document::new(Path::new("o.yaml"), 10, &text);
        read::<BTreeMap<String, String>>(&document).map(|(head, _)| head).map_err(|i| i.to_string())
    }

    #[test]
    fn all_that_kubernetes_writes_is_taken() {
        let text = "  name: a\n  namespace: n\n  labels: {x: y}\n  uid: u\n  resourceVersion: \"1\"\n  \
                    generation: 2\n  managedFields:\n  - manager: m\n  ownerReferences: []\n  \
                    finalizers: []\n  creationTimestamp: \"2026-01-31T12:00:00Z\"\n  annotations:\n    \
                    kubectl.kubernetes.io/last-applied-configuration: |\n      {}\n    \
                    warmroute/split: random\n";
        let head = head(text).unwrap();
        assert_eq!(head.full_name(), "n/a");
        assert_eq!(head.created, Timestamp::parse("2026-01-31T12:00:00Z"));
        assert_eq!(head.split, Some(Split::Random));
        assert_eq!(head.labels["x"], "y");
        assert_eq!(head.place.to_string(), "o.yaml:11");
    }

    #[test]
    fn what_is_left_out_has_defaults() {
        let head =
            head("  name: a\n  creationTimestamp: null\n  labels:\n  annotations:\n").unwrap();
        assert_eq!(
            (head.full_name().as_str(), head.created, head.split),
            ("default/a", None, None)
        );
    }

    #[test]
    fn each_fault_names_its_line() {
        let cases = [
            ("  nam: a\n", "o.yaml:14: unknown field `nam`; did you mean `name`?"),
            ("  namespace: a\n", "o.yaml:14: field `name` is missing"),
            ("  name: a/b\n", "o.yaml:14: `name` is `a/b`"),
            ("  name: a\n  namespace: ''\n", "o.yaml:15: `namespace` is ``"),
            ("  name: a\n  creationTimestamp: yesterday\n", "o.yaml:15: `creationTimestamp` is"),
            (
                "  name: a\n  annotations:\n    warmroute/split: sticky\n",
                "o.yaml:16: `warmroute/split` is `sticky`; give `conversation` or `random`",
            ),
            (
                "  name: a\n  annotations:\n    warmroute/spilt: random\n",
                "o.yaml:16: annotation `warmroute/spilt` is not known; did you mean `warmroute/split`?",
            ),
        ];
        for (metadata, message) in cases {
            let shown = head(metadata).unwrap_err();
            assert!(shown.starts_with(message), "{metadata}\n{shown}");
        }
    }

    #[test]
    fn the_older_comes_first_and_the_undated_last() {
        let dated = |created| Head { created: Timestamp::parse(created), ..Head::default() };
        // As texts they would stand the other way round.
        let all =
            ["2025-01-01T01:00:00+02:00", "2025-01-01T00:00:00Z", "2025-01-01T00:00:00.5Z", ""];
        let all = all.map(dated);
        assert!(all.windows(2).all(|pair| pair[0].age() < pair[1].age()));
    }
}
