//! Reads configuration files: one file, or every YAML file of a folder and its subfolders.
//!
//! Names that begin with a dot are passed over. That is also what makes mounted ConfigMaps work:
//! there the visible names are links into a hidden folder that is swapped as a whole.

use super::error::{Issue, Problem};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Bytes of one file that are read at most (llm-d's limit, and a ConfigMap's).
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Files of a folder that are read at most.
pub const MAX_FILES: usize = 512;
/// Levels of subfolders; also what ends a loop of links.
const MAX_DEPTH: usize = 8;
/// Faults after which no more folders are read: folders that link to themselves several times
/// would otherwise be walked on every way through them.
const MAX_FAULTS: usize = 16;

/// One file's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Where it was found.
    pub path: PathBuf,
    /// What was in it.
    pub text: String,
}

/// Reads a file, or a folder's files in the order of their names.
///
/// # Errors
/// One issue for every file or folder that could not be read.
pub fn read(root: &Path) -> Result<Vec<Source>, Vec<Issue>> {
    let mut files = Vec::new();
    let mut issues = Vec::new();
    if root.is_dir() {
        walk(root, MAX_DEPTH, &mut files, &mut issues);
    } else {
        files.push(root.to_owned());
    }
    if files.len() > MAX_FILES {
        let what = "YAML files";
        issues.push(Issue::new(root, 0, Problem::TooMany { what, limit: MAX_FILES }));
        return Err(issues);
    }
    let mut sources = Vec::with_capacity(files.len());
    for path in files {
        match read_file(&path) {
            Ok(text) => sources.push(Source { path, text }),
            Err(problem) => issues.push(Issue::new(&path, 0, problem)),
        }
    }
    if issues.is_empty() { Ok(sources) } else { Err(issues) }
}

fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>, issues: &mut Vec<Issue>) {
    if depth == 0 {
        let what = "levels of folders";
        issues.push(Issue::new(folder, 0, Problem::TooMany { what, limit: MAX_DEPTH }));
        return;
    }
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            issues.push(Issue::new(folder, 0, Problem::Unreadable(error.to_string())));
            return;
        }
    };
    let mut paths = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) if entry.file_name().to_string_lossy().starts_with('.') => {}
            Ok(entry) => paths.push(entry.path()),
            Err(error) => {
                issues.push(Issue::new(folder, 0, Problem::Unreadable(error.to_string())));
            }
        }
    }
    paths.sort();
    for path in paths {
        if files.len() > MAX_FILES || issues.len() >= MAX_FAULTS {
            return;
        }
        if path.is_dir() {
            walk(&path, depth - 1, files, issues);
        } else if matches!(path.extension().and_then(|e| e.to_str()), Some("yaml" | "yml")) {
            files.push(path);
        }
    }
}

fn read_file(path: &Path) -> Result<String, Problem> {
    let unreadable = |error: std::io::Error| Problem::Unreadable(error.to_string());
    // Before it is opened: to open a pipe waits for a writer.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Problem::NotAFile);
    }
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Problem::TooLarge { limit: MAX_FILE_BYTES });
    }
    String::from_utf8(bytes).map_err(|_| Problem::NotUtf8)
}
