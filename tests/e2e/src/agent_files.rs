//! What the agent reads in the folder of a run: endpoints, documents, the model's tokenizer and template.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, bail};
use warmroute_demo::processes::{Programs, Simulator, precise_documents, workspace_root};

use crate::setup::{Endpoint, Labels, Setup};
use crate::stack::MODEL;

/// The model's tokenizer and template, in the folder of the run.
pub const MODEL_FOLDER: &str = "model";

/// Writes the agent's YAML in the run folder `dir`: `endpoints`, and the documents of `setup`.
pub(crate) fn write(dir: &Path, endpoints: &[Endpoint], setup: &Setup) -> Result<()> {
    let mut yaml = String::from("endpoints:");
    if endpoints.is_empty() {
        yaml.push_str(" []");
    }
    for Endpoint { name, address, labels } in endpoints {
        let (ip, port) = (address.ip(), address.port());
        write!(yaml, "\n- {{ name: {name}, address: \"{ip}\", port: {port}, labels: {{")?;
        for (key, value) in labels {
            write!(yaml, " {key:?}: {value:?},")?;
        }
        yaml.push_str(" } }");
    }
    yaml.push('\n');
    if setup.precise {
        yaml.push_str(&precise_documents(MODEL, Path::new(MODEL_FOLDER), &[]));
    }
    yaml.push_str(&setup.documents);
    // By a rename, so that the agent never reads half a file.
    let half = dir.join("endpoints.yaml.new");
    std::fs::write(&half, yaml)?;
    std::fs::rename(&half, dir.join("endpoints.yaml"))?;
    Ok(())
}

/// Writes the simulated model's tokenizer and template in the run folder `dir`.
///
/// # Errors
/// When the simulator cannot.
pub fn write_model(dir: &Path) -> Result<()> {
    let programs = Programs::find(&workspace_root()?)?;
    let mut command = std::process::Command::new(&programs.engine_sim);
    let output = command.arg("model-folder").arg(dir.join(MODEL_FOLDER)).output()?;
    if !output.status.success() {
        bail!("engine-sim model-folder: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// The simulated engines as endpoints: `engine-0` and so on.
pub(crate) fn simulated(simulator: &Simulator, labels: &[Labels]) -> Vec<Endpoint> {
    let named = |(index, &address)| {
        let labels: Labels = labels.get(index).cloned().unwrap_or_default();
        // A decode engine is reached through its sidecar; a prefill engine is bare.
        let decodes = labels.iter().any(|(key, value)| key == "llm-d.ai/role" && value == "decode");
        let sidecar = simulator.sidecars.get(index).copied().filter(|_| decodes);
        let address = sidecar.unwrap_or(address);
        Endpoint { name: format!("engine-{index}"), address, labels }
    };
    simulator.replicas.iter().enumerate().map(named).collect()
}
