//! The listener in a file of its own, as a control plane would push it: Envoy follows every change.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

const LISTENERS: &str = "\n  listeners:\n";
const CLUSTERS: &str = "\n  clusters:\n";

fn folder(dir: &Path) -> PathBuf {
    dir.join("lds")
}

fn file(dir: &Path) -> PathBuf {
    folder(dir).join("listener.yaml")
}

/// Moves the listener of a filled-in bootstrap into a file below `dir`; returns what is left of the
/// bootstrap, which refers to that file.
///
/// # Errors
/// When the bootstrap is not laid out as expected, or the file cannot be written.
pub fn split_off(bootstrap: &str, dir: &Path) -> Result<String> {
    let (head, rest) = bootstrap.split_once(LISTENERS).context("the bootstrap has no listeners")?;
    let (listeners, clusters) =
        rest.split_once(CLUSTERS).context("the bootstrap has no clusters")?;
    let fields = listeners.strip_prefix("  - ").context("no list of listeners")?;
    ensure!(!fields.contains("\n  - "), "the bootstrap has more than one listener");
    std::fs::create_dir_all(folder(dir))?;
    let kind = "type.googleapis.com/envoy.config.listener.v3.Listener";
    std::fs::write(file(dir), format!("resources:\n  - \"@type\": {kind}\n    {fields}\n"))?;
    let (file, folder) = (file(dir), folder(dir));
    Ok(format!(
        "{head}{CLUSTERS}{clusters}
dynamic_resources:
  lds_config:
    resource_api_version: V3
    path_config_source:
      path: {}
      watched_directory: {{ path: \"{}\" }}
",
        file.display(),
        folder.display(),
    ))
}

pub(crate) fn push(dir: &Path, edit: impl FnOnce(&str) -> String) -> Result<()> {
    let file = file(dir);
    let text = std::fs::read_to_string(&file).context("the setup has no listener_file")?;
    let edited = edit(&text);
    ensure!(edited != text, "nothing to push");
    let half = dir.join("listener.yaml.new");
    std::fs::write(&half, edited)?;
    std::fs::rename(&half, &file)?;
    Ok(())
}
