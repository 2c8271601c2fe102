//! Configuration: YAML documents of a file or a folder, checked as a whole.
//!
//! Strict: one fault refuses everything that was read with it, and the configuration in force
//! stays ([`watch`]). `check-config` prints what [`Configuration`] understood.

pub mod document;
pub mod error;
pub mod file_discovery;
pub mod source;
pub mod watch;

use document::{Document, Kind};
use error::{Issue, Problem};
use file_discovery::{EndpointSpec, Located};
use source::Source;
use std::collections::HashMap;
use std::path::Path;

/// Endpoints of all lists together.
pub const MAX_ENDPOINTS: usize = 4096;

/// Everything that the files say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Configuration {
    /// Endpoints, in the order of the files.
    pub endpoints: Vec<EndpointSpec>,
    /// How many files were read.
    pub files: usize,
    /// How many lists of endpoints there were.
    pub endpoint_lists: usize,
    /// What was passed over.
    pub warnings: Vec<Issue>,
}

impl Configuration {
    /// Reads a file or a folder.
    ///
    /// # Errors
    /// Every fault that was found.
    pub fn load(root: &Path) -> Result<Self, Vec<Issue>> {
        Self::from_sources(root, &source::read(root)?)
    }

    /// Checks what was read from `root`.
    ///
    /// # Errors
    /// Every fault that was found.
    pub fn from_sources(root: &Path, sources: &[Source]) -> Result<Self, Vec<Issue>> {
        let mut builder = Builder::default();
        for source in sources {
            builder.add(source);
        }
        builder.finish(root, sources.len())
    }
}

#[derive(Default)]
struct Builder {
    configuration: Configuration,
    issues: Vec<Issue>,
    /// Where each name and each address was first given.
    first: HashMap<(&'static str, String), String>,
}

impl Builder {
    fn add(&mut self, source: &Source) {
        let documents = Document::split(&source.path, &source.text);
        if documents.is_empty() {
            self.issues.push(Issue::new(&source.path, 0, Problem::Empty));
        }
        for document in documents {
            match document.kind() {
                Ok(Kind::EndpointList) => match file_discovery::read(&document) {
                    Ok(endpoints) => {
                        self.configuration.endpoint_lists += 1;
                        for endpoint in endpoints {
                            self.add_endpoint(&source.path, endpoint);
                        }
                    }
                    Err(issues) => self.issues.extend(issues),
                },
                Err(issue) if matches!(issue.problem, Problem::ForeignKind(_)) => {
                    self.configuration.warnings.push(issue);
                }
                Err(issue) => self.issues.push(issue),
            }
        }
    }

    fn add_endpoint(&mut self, file: &Path, Located { line, spec }: Located) {
        let here = format!("{}:{line}", file.display());
        for (what, value) in [("name", spec.full_name()), ("address", spec.address.to_string())] {
            let earlier = self.first.insert((what, value.clone()), here.clone());
            if let Some(first) = earlier {
                let problem = Problem::Duplicate { what, value, first };
                self.issues.push(Issue::new(file, line, problem));
            }
        }
        self.configuration.endpoints.push(spec);
    }

    fn finish(mut self, root: &Path, files: usize) -> Result<Configuration, Vec<Issue>> {
        self.configuration.files = files;
        if self.configuration.endpoints.len() > MAX_ENDPOINTS {
            let problem = Problem::TooMany { what: "endpoints", limit: MAX_ENDPOINTS };
            self.issues.push(Issue::new(root, 0, problem));
        }
        if self.issues.is_empty() && self.configuration.endpoint_lists == 0 {
            self.issues.push(Issue::new(root, 0, Problem::NoEndpointList));
        }
        if self.issues.is_empty() { Ok(self.configuration) } else { Err(self.issues) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    fn load(sources: &[Source]) -> Result<Configuration, Vec<String>> {
        Configuration::from_sources(Path::new("conf"), sources)
            .map_err(|issues| issues.iter().map(ToString::to_string).collect())
    }

    const A: &str = "endpoints:\n- {name: a, address: 10.0.0.1, port: 80}\n";

    #[test]
    fn lists_of_several_files_and_documents_are_joined() {
        let b = "# b\n---\nendpoints:\n- {name: b, address: 10.0.0.2, port: 80}\n---\n\
                 apiVersion: v1\nkind: Service\n";
        let all = load(&[source("a.yaml", A), source("b.yaml", b)]).unwrap();
        let names: Vec<_> = all.endpoints.iter().map(EndpointSpec::full_name).collect();
        assert_eq!(names, ["default/a", "default/b"]);
        assert_eq!((all.files, all.endpoint_lists, all.warnings.len()), (2, 2, 1));
        assert_eq!(all.warnings[0].line, Some(6));
    }

    #[test]
    fn a_name_or_address_given_twice_is_refused_with_both_places() {
        let again = "endpoints:\n- {name: a, address: 10.0.0.2, port: 80}\n\
                     - {name: c, address: 10.0.0.1, port: 80}\n";
        let issues = load(&[source("a.yaml", A), source("b.yaml", again)]).unwrap_err();
        assert_eq!(issues.len(), 2);
        assert!(issues[0].starts_with("b.yaml:2: name `default/a` is already used at a.yaml:2"));
        assert!(issues[1].starts_with("b.yaml:3: address `10.0.0.1:80` is already used at a.yaml"));
    }

    #[test]
    fn nothing_is_not_an_empty_pool() {
        for text in ["", "\n# soon\n", "---\n"] {
            assert!(load(&[source("a.yaml", text)]).unwrap_err()[0].contains("is empty"));
        }
        assert!(load(&[]).unwrap_err()[0].contains("no endpoint list"));
        assert_eq!(load(&[source("a.yaml", "endpoints: []")]).unwrap().endpoints, []);
    }

    #[test]
    fn one_bad_file_refuses_the_whole() {
        let issues = load(&[source("a.yaml", A), source("b.yaml", "endpoints: [{name: b}]")]);
        assert!(issues.unwrap_err()[0].starts_with("b.yaml:1: field `address` is missing"));
    }
}
