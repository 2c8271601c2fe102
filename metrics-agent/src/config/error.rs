//! What can be wrong with configuration: which file, which line, what, and what to do.

use std::path::{Path, PathBuf};

/// One fault or remark, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The file it is in, as the operator named it.
    pub file: PathBuf,
    /// Line in that file, from 1; `None` when it concerns the whole file.
    pub line: Option<u64>,
    /// What is wrong.
    pub problem: Problem,
}

impl Issue {
    /// A problem at a line of a file. Line 0 stands for "not known".
    #[must_use]
    pub fn new(file: &Path, line: u64, problem: Problem) -> Self {
        Self { file: file.to_owned(), line: (line > 0).then_some(line), problem }
    }
}

impl std::fmt::Display for Issue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.problem)
    }
}

/// What is wrong. Every message ends with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The operating system refused to read it.
    #[error("cannot be read ({0}); check that the path exists and that the agent may read it")]
    Unreadable(String),
    /// A pipe, socket or device: it could be waited for without end.
    #[error("is not a regular file; give a file or a folder of files")]
    NotAFile,
    /// Bytes that are no text.
    #[error("is not UTF-8 text; save it as UTF-8")]
    NotUtf8,
    /// A file beyond the size that is read.
    #[error("is larger than {limit} bytes; split it into several files")]
    TooLarge {
        /// Bytes that are read at most.
        limit: u64,
    },
    /// A folder with more files or levels than are read.
    #[error("has more than {limit} {what}; give a smaller folder")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many are allowed.
        limit: usize,
    },
    /// A file with nothing in it: more likely half written than meant.
    #[error("is empty; write `endpoints: []` if no endpoint is meant")]
    Empty,
    /// Nothing in the whole configuration names endpoints.
    #[error("holds no endpoint list; add a document with `endpoints:`")]
    NoEndpointList,
    /// The YAML parser's own words.
    #[error("{0}; correct the YAML here")]
    Yaml(String),
    /// A field that the document's kind does not have.
    #[error("unknown field `{field}`; {advice}")]
    UnknownField {
        /// As written.
        field: String,
        /// The nearest valid name, or all of them.
        advice: String,
    },
    /// A field that must be there.
    #[error("field `{0}` is missing; add it")]
    MissingField(&'static str),
    /// A field with a value that it cannot have.
    #[error("`{field}` is `{value}`; give {expected}")]
    BadValue {
        /// Which field.
        field: &'static str,
        /// As written, cut if long.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A name of something that there is not: a type, a reference, a version.
    #[error("{what} `{name}` is not known; {advice}")]
    Unknown {
        /// What it should be the name of.
        what: &'static str,
        /// As written, cut if long.
        name: String,
        /// The nearest valid name, or all of them.
        advice: String,
    },
    /// Something that Warmroute does not do.
    #[error("{what} is not supported; {instead}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// What to use instead.
        instead: &'static str,
    },
    /// Things that cannot be together, or not like this.
    #[error("{0}")]
    Conflict(String),
    /// Two entries that would be the same endpoint.
    #[error("{what} `{value}` is already used at {first}; remove one of the two")]
    Duplicate {
        /// `name` or `address`.
        what: &'static str,
        /// The shared value.
        value: String,
        /// `file:line` of the first.
        first: String,
    },
    /// An endpoint that two documents of a kind are about.
    #[error("selects endpoint `{endpoint}`, which {first} selects too; narrow `endpointLabels`")]
    SelectedTwice {
        /// The first such endpoint.
        endpoint: String,
        /// `file:line` of the other document.
        first: String,
    },
    /// A document whose kind is nothing the agent reads.
    #[error("kind `{kind}` is not known; {advice}")]
    UnknownKind {
        /// As written.
        kind: String,
        /// What is known.
        advice: String,
    },
    /// A document of another project, passed over (a warning).
    #[error("kind `{0}` is not read by the agent; the document was passed over")]
    ForeignKind(String),
}

impl Problem {
    /// A value that a field cannot have.
    #[must_use]
    pub fn bad(field: &'static str, value: &str, expected: &'static str) -> Self {
        Self::BadValue { field, value: cut(value), expected }
    }

    /// A name of nothing.
    #[must_use]
    pub fn unknown(what: &'static str, name: &str, advice: String) -> Self {
        Self::Unknown { what, name: cut(name), advice }
    }
}

/// The start of a text, in one line.
fn cut(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The name of `valid` that is nearest to `given`, if one is near enough to be what was meant.
#[must_use]
pub fn nearest<'a>(given: &str, valid: &[&'a str]) -> Option<&'a str> {
    let (distance, name) = valid
        .iter()
        .map(|name| (distance(&given.to_lowercase(), &name.to_lowercase()), *name))
        .min()?;
    (distance <= name.len().div_ceil(3)).then_some(name)
}

/// Advice for a name that is none of `valid`.
#[must_use]
pub fn did_you_mean(given: &str, valid: &[&str]) -> String {
    match nearest(given, valid) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("valid here: {}", valid.join(", ")),
    }
}

/// Levenshtein distance in characters; inputs are names, cut at 64 characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut left = i + 1;
        let mut next = vec![left];
        for (pair, y) in row.windows(2).zip(&b) {
            if let [diagonal, above] = pair {
                left = (diagonal + usize::from(x != *y)).min(above + 1).min(left + 1);
                next.push(left);
            }
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_finds_its_name_and_nonsense_does_not() {
        let fields = ["name", "namespace", "address", "port", "labels"];
        let cases = [
            ("adress", Some("address")),
            ("prot", Some("port")),
            ("Labels", Some("labels")),
            ("namespac", Some("namespace")),
            ("weight", None),
            ("", None),
        ];
        for (given, expected) in cases {
            assert_eq!(nearest(given, &fields), expected, "{given}");
        }
        assert_eq!(did_you_mean("zzz", &["a", "b"]), "valid here: a, b");
    }

    #[test]
    fn an_issue_names_file_line_and_remedy() {
        let issue = Issue::new(Path::new("pool.yaml"), 7, Problem::MissingField("port"));
        assert_eq!(issue.to_string(), "pool.yaml:7: field `port` is missing; add it");
        let whole = Issue::new(Path::new("pool.yaml"), 0, Problem::Empty);
        assert!(whole.to_string().starts_with("pool.yaml: is empty"));
    }
}
