//! Follows the configuration while the agent runs.
//!
//! By polling, not by file notifications: those miss ConfigMap swaps and network file systems,
//! and a few files are read in less than a millisecond. New content must be the same in two looks
//! before it is judged, so that a file that is being written is left alone; if it is bad, what is
//! in force stays in force.

use super::Configuration;
use super::error::{Issue, Problem};
use super::model;
use super::source::{self, Source};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

/// Time between two looks at the files.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Decides which content is to be judged. Pure: fingerprints in, decision out.
#[derive(Debug)]
pub struct Steady {
    judged: u64,
    candidate: Option<u64>,
}

impl Steady {
    /// `judged`: the content that is in force.
    #[must_use]
    pub fn new(judged: u64) -> Self {
        Self { judged, candidate: None }
    }

    /// Whether content with this fingerprint is to be judged now.
    pub fn look(&mut self, fingerprint: u64) -> bool {
        if fingerprint == self.judged {
            self.candidate = None;
            return false;
        }
        if self.candidate != Some(fingerprint) {
            self.candidate = Some(fingerprint);
            return false;
        }
        self.candidate = None;
        self.judged = fingerprint;
        true
    }
}

/// What a look at the files found.
pub type Found = Result<Vec<Source>, Vec<Issue>>;

/// Fingerprint of what was read, or of why it could not be.
#[must_use]
pub fn fingerprint(found: &Found) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let mut add = |part: &str| {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    };
    match found {
        Ok(sources) => {
            for source in sources {
                add(&source.path.to_string_lossy());
                add(&source.text);
            }
        }
        Err(issues) => {
            add("unreadable");
            for issue in issues {
                add(&issue.to_string());
            }
        }
    }
    hash.digest()
}

/// Reads the files and their fingerprint, into which the files of models' folders go by time and
/// size.
pub fn look(root: &Path) -> (Found, u64) {
    let found = source::read(root);
    let mut parts = vec![fingerprint(&found)];
    if let Ok(sources) = &found {
        parts.extend(model::named_by(sources).iter().map(model::ModelSpec::stamp));
    }
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_le_bytes()).collect();
    (found, xxhash_rust::xxh3::xxh3_64(&bytes))
}

/// A new content was judged.
pub type Verdict = Result<Configuration, Vec<Issue>>;

/// Watches `root` and sends the verdict on every new content, until nobody receives them.
pub async fn run(root: PathBuf, in_force: u64, every: Duration, verdicts: mpsc::Sender<Verdict>) {
    let mut steady = Steady::new(in_force);
    loop {
        tokio::time::sleep(every).await;
        let path = root.clone();
        // On threads of their own: a large configuration takes longer than a scrape may wait.
        let Ok((found, fingerprint)) = spawn_blocking(move || look(&path)).await else {
            continue;
        };
        if verdicts.is_closed() {
            return;
        }
        if steady.look(fingerprint) {
            let path = root.clone();
            let judge = move || found.and_then(|s| Configuration::from_sources(&path, &s));
            let verdict = spawn_blocking(judge).await.unwrap_or_else(|failed| {
                Err(vec![Issue::new(&root, 0, Problem::Yaml(failed.to_string()))])
            });
            if verdicts.send(verdict).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_judged_once_when_it_was_the_same_twice() {
        let mut steady = Steady::new(1);
        let looks = [1, 1, 2, 3, 3, 3, 1, 4, 1, 1, 1];
        let judged: Vec<bool> = looks.iter().map(|look| steady.look(*look)).collect();
        let expected = [false, false, false, false, true, false, false, false, false, true, false];
        assert_eq!(judged, expected);
    }

    #[test]
    fn a_models_new_files_are_new_content() {
        let folder = tempfile::tempdir().unwrap();
        let text = "kind: Model\nname: m\nfolder: model\n";
        std::fs::write(folder.path().join("m.yaml"), text).unwrap();
        let before = look(folder.path()).1;
        assert_eq!(look(folder.path()).1, before);
        std::fs::create_dir(folder.path().join("model")).unwrap();
        std::fs::write(folder.path().join("model/tokenizer.json"), "{}").unwrap();
        assert_ne!(look(folder.path()).1, before);
    }

    #[test]
    fn the_fingerprint_tells_contents_and_faults_apart() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let all = [
            fingerprint(&Ok(vec![])),
            fingerprint(&Ok(vec![source("a", "bc")])),
            fingerprint(&Ok(vec![source("ab", "c")])),
            fingerprint(&Ok(vec![source("a", ""), source("b", "c")])),
            fingerprint(&Err(vec![])),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(all[n + 1..].iter().all(|other| other != one), "{n}");
        }
    }
}
