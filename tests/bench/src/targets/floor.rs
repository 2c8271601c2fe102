//! Envoy with a filter that does the least that one for prompts must (`tests/bench/floor`).

use std::path::PathBuf;

use anyhow::{Result, ensure};
use warmroute_demo::processes::{Ports, Programs, workspace_root};

use super::{Bench, Running, StubEngines, Target, envoy};

/// Starts it in place of Warmroute's filter: nobody picks, so Envoy goes round robin.
///
/// # Errors
/// When the module was not built, or Envoy does not start.
pub async fn floor(bench: &Bench<'_>, engines: &StubEngines, target: Target) -> Result<Running> {
    let reads = target.name().trim_start_matches("floor-");
    let wasm = match std::env::var_os("BENCH_FLOOR_WASM") {
        Some(path) => PathBuf::from(path),
        None => workspace_root()?.join("target/wasm/bench_floor.wasm"),
    };
    ensure!(wasm.exists(), "no {}: tests/bench/floor/build.sh builds it", wasm.display());
    let programs = Programs { wasm, ..bench.programs.clone() };
    let bench = Bench { programs: &programs, ..*bench };
    let dir = bench.folder(target.name())?;
    envoy::write_endpoints(&dir, &engines.endpoints)?;
    let ports = Ports::free()?;
    let extra = format!(r#", "floor": "{reads}""#);
    let bootstrap = envoy::bootstrap(&bench, ports, &extra, &dir)?;
    let envoy = envoy::start(&bench, ports, &bootstrap, &dir).await?;
    Ok(Running::through(envoy, target, None))
}
