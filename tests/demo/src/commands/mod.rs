//! The subcommands.

pub(crate) mod bench_kv;
pub(crate) mod down;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod up;

use std::path::{Path, PathBuf};

/// What a command ends with when it could not do its work.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// Writes to standard output, and does not mind if nobody reads it.
pub(crate) fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Folder of what `up` started.
pub(crate) fn running_dir(root: &Path) -> PathBuf {
    root.join(".run")
}

/// Where `up` writes down what it started.
pub(crate) fn records_file(root: &Path) -> PathBuf {
    running_dir(root).join("processes.json")
}
