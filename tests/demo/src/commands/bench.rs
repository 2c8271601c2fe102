//! `bench`: what the filter costs.

use warmroute_demo::bench::bench as measure;
use warmroute_demo::processes::{Programs, workspace_root};

use super::{Failure, say};

pub(crate) async fn bench() -> Result<(), Failure> {
    let root = workspace_root()?;
    let bench = measure(&Programs::find(&root)?, &root.join("target/run/bench")).await?;
    let report = root.join("target/report");
    std::fs::create_dir_all(&report)?;
    let path = report.join("bench.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&bench)?)?;
    say(&format!("\n{}{}", bench.table(), path.display()));
    Ok(())
}
