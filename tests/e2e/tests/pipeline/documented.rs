//! What users copy out of the docs, the agent takes.

use crate::former_names::check_config;
use anyhow::{Context as _, Result, ensure};
use e2e::agent_files::{MODEL_FOLDER, write_model};

const ENDPOINTS: &str = "endpoints:\n- {name: engine-0, address: 127.0.0.1, port: 8000}\n";

/// A model of the name that the docs have.
const MODEL: &str = "---\nkind: Model\nname: Qwen/Qwen3-8B\nfolder: models/qwen3\n";

/// The YAML blocks of a page from this heading on.
fn blocks<'a>(page: &'a str, from: &str) -> Result<Vec<&'a str>> {
    let (_, section) = page.split_once(from).with_context(|| format!("no {from}"))?;
    let begun = section.split("```yaml\n").skip(1);
    let whole: Option<Vec<_>> = begun.map(|block| Some(block.split_once("\n```")?.0)).collect();
    whole.context("a block has no end")
}

#[test]
fn every_yaml_of_the_docs_is_understood() -> Result<()> {
    let folder = tempfile::tempdir()?;
    write_model(folder.path())?;
    std::fs::create_dir(folder.path().join("models"))?;
    std::fs::rename(folder.path().join(MODEL_FOLDER), folder.path().join("models/qwen3"))?;
    std::fs::write(folder.path().join("endpoints.yaml"), ENDPOINTS)?;
    for (name, page, from, more) in [
        ("README.md", include_str!("../../../../README.md"), "## Exact prefixes", ""),
        ("tenants.md", include_str!("../../../../docs/tenants.md"), "", ""),
        ("kv-events.md", include_str!("../../../../docs/kv-events.md"), "", MODEL),
    ] {
        let blocks = blocks(page, from)?;
        ensure!(!blocks.is_empty(), "{name} has no YAML");
        for block in blocks {
            std::fs::write(folder.path().join("documented.yaml"), format!("{block}\n{more}"))?;
            let (code, printed, errors) = check_config(folder.path())?;
            ensure!(code == Some(0), "{name}: {block}\n{printed}{errors}");
        }
    }
    Ok(())
}
