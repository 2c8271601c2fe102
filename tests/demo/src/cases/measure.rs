//! Measures one case: a fresh stack, then round robin, then Warmroute.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Case;
use crate::load::{self, Target};
use crate::processes::{
    Known, ProcessError, Programs, ROUND_ROBIN, Stack, StackOptions, WARMROUTE, first_answer,
    wait_until,
};
use crate::progress::Progress;
use crate::report::{CaseReport, Side};
use crate::workload::{Tokens, Workload, WorkloadError, build};

/// Why a case could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// A program did not do its part.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The prompts could not be built.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

/// Measures both sides of `case`, with all programs started in the folder `dir`.
///
/// # Errors
/// When it could not be measured. Failed requests are figures, not errors.
pub async fn measure(
    case: &Case,
    programs: &Programs,
    workers: usize,
    tokens: &dyn Tokens,
    dir: &Path,
) -> Result<CaseReport, CaseError> {
    let mut options = StackOptions::new(case.replicas, workers);
    options.simulator.arguments = vec![
        "--num-blocks".to_owned(),
        case.blocks().to_string(),
        "--max-model-len".to_owned(),
        "16384".to_owned(),
        "--time-scale".to_owned(),
        case.time_scale.to_string(),
    ];
    let workload = build(tokens, &options.simulator.model, &case.shape)?;
    let stack = Stack::start(programs, options, dir).await?;
    for path in [ROUND_ROBIN, WARMROUTE] {
        first_answer(stack.listen(), path, &stack.options.simulator.model, &stack.dir).await?;
    }

    // Round robin first: it leaves nothing behind in the filter, which its route does not have.
    let round_robin = side(case, &stack, &workload, "round robin", ROUND_ROBIN).await?;
    let warmroute = side(case, &stack, &workload, "warmroute", WARMROUTE).await?;
    Ok(CaseReport {
        name: case.name.to_owned(),
        what: case.sentence(),
        round_robin,
        warmroute,
        ideal_cached_tokens: workload.ideal_cached_tokens,
        time_scale: case.time_scale,
        in_flight: case.in_flight,
        working_set_over_kv: (case.pressure() * 100.0).round() / 100.0,
    })
}

async fn side(
    case: &Case,
    stack: &Stack,
    workload: &Workload,
    name: &str,
    path: &str,
) -> Result<Side, ProcessError> {
    cold_start(case, stack).await?;
    let target = Target::new(stack.listen(), path, case.timeout);
    let progress = Arc::new(Progress::new(&format!("{}: {name}", case.name), workload.requests()));
    let start = Instant::now();
    let samples = load::run(workload, &target, case.in_flight, move |outcome| {
        progress.step(outcome.failure.is_some());
    })
    .await;
    Ok(Side::of(&samples, &stack.simulator.replicas, start.elapsed()))
}

/// Makes every engine start anew with empty caches, and waits until the agent has seen it.
async fn cold_start(case: &Case, stack: &Stack) -> Result<(), ProcessError> {
    let before = stack.agent.endpoints().await?;
    stack.simulator.reset().await?;
    let mut occupied_address = None;
    if let Some(occupied) = case.occupied {
        stack.simulator.occupy(occupied.replica, occupied.fraction).await?;
        occupied_address = stack.simulator.replicas.get(occupied.replica);
    }
    let full = |known: &Known| known.kv_usage.is_some_and(|usage| usage > 0.9);
    let seen = async || {
        let now = stack.agent.endpoints().await.ok()?;
        let anew = now.iter().all(|known| {
            let old = before.iter().find(|old| old.address == known.address);
            known.state == "ready" && old.is_some_and(|old| old.generation != known.generation)
        });
        let held = occupied_address
            .is_none_or(|address| now.iter().any(|known| known.address == *address && full(known)));
        (anew && held).then_some(())
    };
    let what = "the agent's view of engines that start anew";
    wait_until(what, Duration::from_secs(10), &stack.dir, seen).await
}
