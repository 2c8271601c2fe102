//! `bench-kv`: what it takes to know what engines hold.

use serde::Serialize;
use warmroute_demo::bench::{KvRate, KvScale, kv_scale};
use warmroute_demo::processes::{Programs, kv_index_bench, workspace_root};

use super::{Failure, say};

/// `bench-kv.json`.
#[derive(Serialize)]
struct Report {
    kv_rate: KvRate,
    kv_scale: KvScale,
}

pub(crate) async fn bench_kv() -> Result<(), Failure> {
    let root = workspace_root()?;
    let (programs, run) = (Programs::find(&root)?, root.join("target/run/bench-kv"));
    let kv_rate = KvRate::measure(&kv_index_bench(&root)?)?;
    say(&format!("{}\n", kv_rate.table()));
    let kv_scale = kv_scale(&programs, &run).await?;
    say(&kv_scale.table());
    let report = root.join("target/report");
    std::fs::create_dir_all(&report)?;
    let path = report.join("bench-kv.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&Report { kv_rate, kv_scale })?)?;
    say(&path.display().to_string());
    Ok(())
}
