//! `bench`: what it costs.

use serde::Serialize;
use warmroute_demo::bench::{Bench, KvRate, KvScale, bench as measure, kv_scale};
use warmroute_demo::processes::{Programs, kv_index_bench, workspace_root};

use super::{Failure, say};

/// `bench.json`.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    latency: Bench,
    kv_rate: KvRate,
    kv_scale: KvScale,
}

pub(crate) async fn bench() -> Result<(), Failure> {
    let root = workspace_root()?;
    let (programs, run) = (Programs::find(&root)?, root.join("target/run/bench"));
    let kv_rate = KvRate::measure(&kv_index_bench(&root)?)?;
    say(&format!("{}\n", kv_rate.table()));
    let kv_scale = kv_scale(&programs, &run.join("kv-scale")).await?;
    say(&format!("{}\n", kv_scale.table()));
    let latency = measure(&programs, &run).await?;
    let report = root.join("target/report");
    std::fs::create_dir_all(&report)?;
    let path = report.join("bench.json");
    let table = latency.table();
    std::fs::write(&path, serde_json::to_vec_pretty(&Report { latency, kv_rate, kv_scale })?)?;
    say(&format!("\n{table}{}", path.display()));
    Ok(())
}
