//! Configuration: YAML documents of a file or a folder, checked as a whole.
//!
//! Strict: one fault refuses everything that was read with it, and the configuration in force
//! stays ([`watch`]). `check-config` prints what [`Configuration`] understood.

pub mod document;
pub mod error;
pub mod file_discovery;
pub mod kv_events;
pub mod model;
pub mod source;
pub mod watch;

use document::{Document, Kind};
use error::{Issue, Problem};
use file_discovery::{EndpointSpec, Located};
use kv_events::KvEventsSpec;
use model::ModelSpec;
use source::Source;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

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
    /// Whose KV cache events are followed, and how. No two select the same endpoint.
    pub kv_events: Vec<KvEventsSpec>,
    /// Models that are told byte for byte. No two share a name, alias or adapter.
    pub models: Vec<ModelSpec>,
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
    /// Where each of the `KVEvents` documents begins.
    kv_events_places: Vec<Place>,
}

/// A file and a line of it.
struct Place {
    file: PathBuf,
    line: u64,
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
                Ok(Kind::KvEvents) => match kv_events::read(&document) {
                    Ok(spec) => {
                        self.configuration.kv_events.push(spec);
                        let line = document.line_offset.saturating_add(1);
                        self.kv_events_places.push(Place { file: source.path.clone(), line });
                    }
                    Err(issue) => self.issues.push(issue),
                },
                Ok(Kind::Model) => match model::read(&document) {
                    Ok((spec, names)) => self.add_model(&source.path, spec, names),
                    Err(issue) => self.issues.push(issue),
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
        if let Err(problem) = kv_events::label_ports(&spec.labels) {
            self.issues.push(Issue::new(file, line, problem));
        }
        self.configuration.endpoints.push(spec);
    }

    fn add_model(&mut self, file: &Path, spec: ModelSpec, names: model::Names) {
        for (value, line) in names {
            let here = format!("{}:{line}", file.display());
            if let Some(first) = self.first.insert(("model name", value.clone()), here) {
                let problem = Problem::Duplicate { what: "model name", value, first };
                self.issues.push(Issue::new(file, line, problem));
            }
        }
        self.configuration.models.push(spec);
    }

    /// An endpoint whose events two documents are about: which of them holds is anybody's guess.
    fn check_selectors(&mut self) {
        let documents = self.configuration.kv_events.iter().zip(&self.kv_events_places);
        for (index, (document, place)) in documents.clone().enumerate() {
            let twice = documents.clone().take(index).find_map(|(earlier, first)| {
                let both =
                    |e: &&EndpointSpec| earlier.selects(&e.labels) && document.selects(&e.labels);
                Some((self.configuration.endpoints.iter().find(both)?, first))
            });
            if let Some((endpoint, first)) = twice {
                let first = format!("{}:{}", first.file.display(), first.line);
                let problem = Problem::SelectedTwice { endpoint: endpoint.full_name(), first };
                self.issues.push(Issue::new(&place.file, place.line, problem));
            }
        }
    }

    fn finish(mut self, root: &Path, files: usize) -> Result<Configuration, Vec<Issue>> {
        self.configuration.files = files;
        self.check_selectors();
        if self.configuration.endpoints.len() > MAX_ENDPOINTS {
            let problem = Problem::TooMany { what: "endpoints", limit: MAX_ENDPOINTS };
            self.issues.push(Issue::new(root, 0, problem));
        }
        if self.configuration.models.len() > model::MAX_MODELS {
            let problem = Problem::TooMany { what: "models", limit: model::MAX_MODELS };
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
    fn an_endpoint_has_one_source_of_events() {
        let kv = |labels: &str| format!("kind: KVEvents\nendpointLabels: {labels}\n");
        let list = "endpoints:\n- {name: a, address: 10.0.0.1, port: 80, labels: {x: y}}\n";
        let all = |first: &str, second: &str| {
            let documents = format!("{}---\n{}", kv(first), kv(second));
            load(&[source("a.yaml", list), source("kv.yaml", &documents)])
        };
        assert_eq!(all("{x: y}", "{x: z}").unwrap().kv_events.len(), 2);
        let issues = all("{}", "{x: y}").unwrap_err();
        let expected = "kv.yaml:4: selects endpoint `default/a`, which kv.yaml:1 selects too";
        assert!(issues[0].starts_with(expected), "{issues:?}");
        let bad = "endpoints:\n- {name: a, address: 10.0.0.1, port: 80, \
                   labels: {warmroute/kv-events-port: x}}\n";
        let issues = load(&[source("a.yaml", bad)]).unwrap_err();
        assert!(issues[0].starts_with("a.yaml:2: `warmroute/kv-events-port` is `x`"), "{issues:?}");
    }

    #[test]
    fn a_models_names_are_its_own() {
        let models = "kind: Model\nname: m\nfolder: f\naliases: [n]\n---\nkind: Model\n\
                      name: o\nfolder: f\nadapters:\n- n\n- m\n";
        let issues = load(&[source("a.yaml", A), source("m.yaml", models)]).unwrap_err();
        let expected = [
            "m.yaml:10: model name `n` is already used at m.yaml:4; remove one of the two",
            "m.yaml:11: model name `m` is already used at m.yaml:2; remove one of the two",
        ];
        assert_eq!(issues, expected);
        let one = "kind: Model\nname: m\nfolder: nowhere\n";
        let all = load(&[source("a.yaml", A), source("c/m.yaml", one)]).unwrap();
        assert_eq!(all.models[0].folder, Path::new("c/nowhere"));
    }

    #[test]
    fn one_bad_file_refuses_the_whole() {
        let issues = load(&[source("a.yaml", A), source("b.yaml", "endpoints: [{name: b}]")]);
        assert!(issues.unwrap_err()[0].starts_with("b.yaml:1: field `address` is missing"));
    }
}
