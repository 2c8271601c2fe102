//! `run`: the demo.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use warmroute_demo::cases::{all, measure};
use warmroute_demo::processes::{Programs, workspace_root};
use warmroute_demo::report::{Report, table};
use warmroute_demo::workload::SimulatedTokens;

use super::{Failure, say};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only this case (article, oversubscribed or full_replica); may be given more than once.
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Small variants of the cases: they show the same in seconds, less exactly.
    #[arg(long)]
    quick: bool,
    /// Worker threads of Envoy.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    concurrency_workers: u16,
    /// Folder for demo.json and demo.html [default: target/report].
    #[arg(long, value_name = "DIR")]
    report_dir: Option<PathBuf>,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let root = workspace_root()?;
    let known = all(arguments.quick);
    for name in &arguments.cases {
        if !known.iter().any(|case| case.name == name) {
            let names: Vec<&str> = known.iter().map(|case| case.name).collect();
            return Err(format!("no case {name:?}; there are {}", names.join(", ")).into());
        }
    }
    let wanted =
        |name: &str| arguments.cases.is_empty() || arguments.cases.iter().any(|one| one == name);
    let programs = Programs::find(&root)?;
    let tokens = SimulatedTokens::new()?;
    let start = Instant::now();

    let mut cases = Vec::new();
    for case in known.iter().filter(|case| wanted(case.name)) {
        let dir = root.join("target/run").join(format!("demo-{}", case.name));
        let report =
            measure(case, &programs, arguments.concurrency_workers.into(), &tokens, &dir).await?;
        say(&format!("\n{}", table(&report)));
        cases.push(report);
    }

    let report_dir = arguments.report_dir.unwrap_or_else(|| root.join("target/report"));
    let report = Report { cases };
    report.write(&report_dir)?;
    let (json, html) = (report_dir.join("demo.json"), report_dir.join("demo.html"));
    say(&format!(
        "{}\n{}\n{:.0} s in all",
        json.display(),
        html.display(),
        start.elapsed().as_secs_f64()
    ));
    Ok(())
}
