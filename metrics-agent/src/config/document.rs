//! Cuts YAML streams into documents and finds out what kind each one is.
//!
//! The stream is cut here and not by the YAML library, so that each document is read straight
//! into the type of its kind, with its line numbers: a marker (`---`) at the start of a line
//! cannot be part of any YAML scalar.

use super::error::{Issue, Problem, did_you_mean};
use super::kind::{self, Kind};
use super::object::Place;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// One YAML document of a file.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// The file it is in.
    pub file: &'a Path,
    /// Lines of the file before it.
    pub line_offset: u64,
    /// Its text.
    pub text: &'a str,
    /// The text's lines are not lines of the file (it stood in a quoted scalar): all is on the first.
    pub one_line: bool,
}

#[derive(Deserialize)]
struct Head {
    kind: Option<String>,
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    endpoints: Option<serde::de::IgnoredAny>,
}

impl<'a> Document<'a> {
    /// A document whose lines follow the first `line_offset` lines of the file.
    #[must_use]
    pub fn new(file: &'a Path, line_offset: u64, text: &'a str) -> Self {
        Self { file, line_offset, text, one_line: false }
    }

    /// The documents of a file, without those that hold only blank lines and comments.
    pub fn split(file: &'a Path, text: &'a str) -> Vec<Self> {
        let mut documents = Vec::new();
        let (mut start, mut at) = (0usize, 0usize);
        let mut first_line = 0;
        for (number, line) in (0u64..).zip(text.split_inclusive('\n')) {
            let marker = line.trim_end();
            let begins = line
                .strip_prefix("---")
                .filter(|rest| rest.trim().is_empty() || rest.starts_with([' ', '\t']));
            if let Some(rest) =
                begins.filter(|rest| !matches!(rest.trim().as_bytes(), [] | [b'#', ..]))
            {
                // The document begins on the marker's line.
                documents.push((start, at, first_line));
                start = at.saturating_add(line.len()).saturating_sub(rest.len());
                first_line = number;
            } else if begins.is_some() || marker == "..." {
                documents.push((start, at, first_line));
                start = at.saturating_add(line.len());
                first_line = number.saturating_add(1);
            }
            at = at.saturating_add(line.len());
        }
        documents.push((start, at, first_line));
        documents
            .into_iter()
            .filter_map(|(start, end, line_offset)| {
                Some(Self::new(file, line_offset, text.get(start..end)?))
            })
            .filter(|document| {
                document.text.lines().any(|line| {
                    let line = line.trim_start();
                    !line.is_empty() && !line.starts_with(['#', '%'])
                })
            })
            .collect()
    }

    /// What the document is about.
    ///
    /// # Errors
    /// If it is not YAML or of no kind that is known. [`Problem::ForeignKind`] is a warning.
    pub fn kind(&self) -> Result<Kind, Issue> {
        let head: Head = self.parse()?;
        let Some(kind) = head.kind else {
            return if head.endpoints.is_some() || self.has_key("endpoints") {
                Ok(Kind::EndpointList)
            } else {
                Err(self.issue(1, Problem::UnknownKind { kind: "(none)".into(), advice: known() }))
            };
        };
        kind::find(&kind, head.api_version.as_deref()).map_err(|problem| {
            let key =
                if matches!(problem, Problem::Unknown { .. }) { "apiVersion" } else { "kind" };
            self.issue(self.line_of_key(key), problem)
        })
    }

    /// Line of `key` at the top, 1 if it is not there.
    fn line_of_key(&self, key: &str) -> u64 {
        let is_key = |line: &str| line.strip_prefix(key).is_some_and(|l| l.starts_with(':'));
        (1u64..).zip(self.text.lines()).find(|(_, line)| is_key(line)).map_or(1, |(n, _)| n)
    }

    /// Whether `key` stands at the top.
    #[must_use]
    pub fn has_key(&self, key: &str) -> bool {
        self.text.lines().any(|line| line.strip_prefix(key).is_some_and(|l| l.starts_with(':')))
    }

    /// Reads the document into its type.
    ///
    /// # Errors
    /// With the line of the file where reading stopped.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Issue> {
        let options = serde_saphyr::options! { with_snippet: false };
        serde_saphyr::from_str_with_options(self.text, options).map_err(|error| {
            let line = error.location().map_or(0, |location| location.line());
            self.issue(line, problem(error.without_snippet()))
        })
    }

    /// An issue at a line of this document, counted from 1; 0 = not known.
    #[must_use]
    pub fn issue(&self, line: u64, problem: Problem) -> Issue {
        Issue::new(self.file, self.line(line), problem)
    }

    /// A line of this document, counted from 1, as a line of the file; 0 = not known.
    #[must_use]
    pub fn line(&self, line: u64) -> u64 {
        match line {
            0 => 0,
            _ if self.one_line => self.line_offset.saturating_add(1),
            line => line.saturating_add(self.line_offset),
        }
    }

    /// A line of this document as a place.
    #[must_use]
    pub fn place(&self, line: u64) -> Place {
        Place { file: self.file.to_owned(), line: self.line(line) }
    }
}

fn known() -> String {
    "give `endpoints:` at the top, or a `kind`".to_owned()
}

fn problem(error: &serde_saphyr::Error) -> Problem {
    match error {
        serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => {
            Problem::UnknownField { field: field.clone(), advice: did_you_mean(field, expected) }
        }
        serde_saphyr::Error::SerdeMissingField { field, .. } => Problem::MissingField(field),
        other => {
            let text = other.to_string();
            let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("not YAML");
            // The line in it counts from the start of the document, not of the file.
            let line = line.split(" at line ").next().unwrap_or(line);
            Problem::Yaml(line.trim().chars().take(300).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<(u64, &str)> {
        Document::split(Path::new("f"), text)
            .into_iter()
            .map(|d| (d.line_offset, d.text.trim()))
            .collect()
    }

    #[test]
    fn documents_keep_their_lines() {
        assert_eq!(split("a: 1\n---\nb: 2\n"), [(0, "a: 1"), (2, "b: 2")]);
        assert_eq!(split("# only\n---\n\n--- # x\nb: 2\n...\n"), [(4, "b: 2")]);
        assert_eq!(split("a: |\n  ---\n  x\n"), [(0, "a: |\n  ---\n  x")]);
        assert_eq!(split(""), []);
    }

    #[test]
    fn kinds_are_found_and_others_are_told_apart() {
        let kind = |text| Document::new(Path::new("f"), 4, text).kind();
        assert_eq!(kind("endpoints: []"), Ok(Kind::EndpointList));
        assert_eq!(kind("endpoints:\n"), Ok(Kind::EndpointList));
        let foreign = kind("apiVersion: apps/v1\nkind: Deployment\n").unwrap_err();
        assert_eq!(foreign.problem, Problem::ForeignKind("Deployment".into()));
        let foreign = kind("apiVersion: kubeai.org/v1\nkind: Model\n").unwrap_err();
        assert_eq!(foreign.problem, Problem::ForeignKind("Model".into()));
        assert_eq!(kind("apiVersion: warmroute/v1alpha1\nkind: Model\n"), Ok(Kind::Model));
        let slip = kind("kind: EndpointLists\n").unwrap_err();
        assert_eq!(slip.line, Some(5));
        assert!(slip.to_string().contains("did you mean `EndpointList`?"), "{slip}");
        let none = kind("endpoint: []\n").unwrap_err();
        assert!(none.to_string().contains("`endpoints:` at the top"), "{none}");
    }
}
