//! Where the programs are.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::ProcessError;

/// Paths of everything that is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `$ENGINE_SIM`, else `target/native/engine-sim`.
    pub engine_sim: PathBuf,
    /// `$WARMROUTE_AGENT`, else `target/native/warmroute-agent`.
    pub agent: PathBuf,
    /// What `envoy/find.sh` finds; it honours `$ENVOY`.
    pub envoy: PathBuf,
    /// `$WARMROUTE_WASM`, else `target/wasm/warmroute_filter.wasm`.
    pub wasm: PathBuf,
    /// The bootstrap template, `envoy/standalone/envoy.yaml`.
    pub template: PathBuf,
}

impl Programs {
    /// Looks for everything below the workspace `root`.
    ///
    /// # Errors
    /// When something has not been built or set up yet.
    pub fn find(root: &Path) -> Result<Self, ProcessError> {
        let at = |variable: &str, default: &str| {
            std::env::var_os(variable).map_or_else(|| root.join(default), PathBuf::from)
        };
        Ok(Self {
            engine_sim: built("engine-sim", at("ENGINE_SIM", "target/native/engine-sim"))?,
            agent: built(
                "warmroute-agent",
                at("WARMROUTE_AGENT", "target/native/warmroute-agent"),
            )?,
            wasm: built(
                "the wasm module",
                at("WARMROUTE_WASM", "target/wasm/warmroute_filter.wasm"),
            )?,
            template: built("the bootstrap template", root.join("envoy/standalone/envoy.yaml"))?,
            envoy: find_envoy(root)?,
        })
    }
}

/// The agent's measurement of its KV events: `$KV_INDEX_BENCH`, else below the workspace `root`
/// `target/native/examples/kv_index_bench`.
///
/// # Errors
/// When it has not been built yet.
pub fn kv_index_bench(root: &Path) -> Result<PathBuf, ProcessError> {
    let default = || root.join("target/native/examples/kv_index_bench");
    let path = std::env::var_os("KV_INDEX_BENCH").map_or_else(default, PathBuf::from);
    found("the measurement of KV events", path, "run `make bench-kv`")
}

fn built(what: &'static str, path: PathBuf) -> Result<PathBuf, ProcessError> {
    found(what, path, "run `make build`")
}

fn found(what: &'static str, path: PathBuf, advice: &'static str) -> Result<PathBuf, ProcessError> {
    // Envoy resolves relative paths against its own working directory.
    path.canonicalize().map_err(|_| ProcessError::Missing { what, path, advice })
}

fn find_envoy(root: &Path) -> Result<PathBuf, ProcessError> {
    let script = root.join("envoy/find.sh");
    let output =
        Command::new("sh").arg(&script).output().map_err(ProcessError::io("run", &script))?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !found.is_empty() {
        Ok(PathBuf::from(found))
    } else {
        Err(ProcessError::Missing {
            what: "Envoy",
            path: script,
            advice: "run `make setup`, or set ENVOY",
        })
    }
}

/// The folder of the workspace: the nearest one above the working folder, or above this program,
/// that holds the bootstrap template.
///
/// # Errors
/// When there is none.
pub fn workspace_root() -> Result<PathBuf, ProcessError> {
    let here = std::env::current_dir().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_default();
    here.ancestors()
        .chain(program.ancestors())
        .find(|folder| folder.join("envoy/standalone/envoy.yaml").is_file())
        .map(Path::to_path_buf)
        .ok_or(ProcessError::Missing {
            what: "envoy/standalone/envoy.yaml",
            path: here.clone(),
            advice: "run this from inside the checkout",
        })
}
