//! The folder of one run.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

/// The folder of a run: gone afterwards, unless something went wrong.
pub(crate) struct RunDir {
    dir: Option<tempfile::TempDir>,
    path: PathBuf,
    keep: AtomicBool,
}

impl RunDir {
    /// A new folder, to be kept until it is known that all goes well.
    pub(crate) fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("warmroute-e2e-").tempdir()?;
        let path = dir.path().canonicalize()?;
        Ok(Self { dir: Some(dir), path, keep: AtomicBool::new(true) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it stays.
    pub(crate) fn keep(&self, keep: bool) {
        self.keep.store(keep, Ordering::Relaxed);
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let keep = std::thread::panicking() || self.keep.load(Ordering::Relaxed);
        if let Some(dir) = self.dir.take().filter(|_| keep) {
            eprintln!("configuration and logs of the failed test: {}", dir.keep().display());
        }
    }
}
