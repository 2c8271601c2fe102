//! How a VM's memory follows the size of bodies.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::load::{Load, Pace};
use crate::targets::Running;
use crate::workload::Case;

/// What a prompt brings about in a VM is over by then: the applier's frames with its blocks come with the next ticks.
const SETTLED: Duration = Duration::from_millis(500);

/// Prompts behind the first one.
const MORE: usize = 5;

/// Memory of a worker's VM.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// The way.
    pub target: &'static str,
    /// Whether the filter changes the body.
    pub spliced: bool,
    /// Size of a body.
    pub body_mb: f64,
    /// Before the first one.
    pub before_mb: f64,
    /// After it.
    pub after_first_mb: f64,
    /// After all.
    pub after_all_mb: f64,
    /// How many there were.
    pub requests: usize,
}

impl Memory {
    /// What the first body added, over its size.
    #[must_use]
    pub fn first_over_body(&self) -> f64 {
        (self.after_first_mb - self.before_mb) / self.body_mb
    }

    /// What the others added.
    #[must_use]
    pub fn later_mb(&self) -> f64 {
        self.after_all_mb - self.after_first_mb
    }
}

/// Sends the first large prompts that `running` ever sees.
///
/// # Errors
/// When its filter's state cannot be had, or a request fails.
pub async fn memory(running: &Running, case: Case, spliced: bool) -> Result<Memory> {
    let bodies = case.bodies();
    let size = async || {
        tokio::time::sleep(SETTLED).await;
        let state = running.state().await.context("no state of the filter")?;
        let bytes = state["memory_bytes"].as_f64().context("no memory in the filter's state")?;
        anyhow::Ok(bytes / f64::from(1 << 20))
    };
    let before_mb = size().await?;
    send(running, case, &bodies, 1).await?;
    let after_first_mb = size().await?;
    send(running, case, &bodies, MORE).await?;
    Ok(Memory {
        target: running.target.name(),
        spliced,
        body_mb: bodies.first().map_or(0, bytes::Bytes::len) as f64 / f64::from(1 << 20),
        before_mb,
        after_first_mb,
        after_all_mb: size().await?,
        requests: 1 + MORE,
    })
}

async fn send(running: &Running, case: Case, bodies: &[bytes::Bytes], count: usize) -> Result<()> {
    for _ in 0..count {
        let load = Rc::new(Load::new(case, running.address, bodies));
        let one = Pace::Open { rate: 1e6, time: Duration::from_nanos(1) };
        let measured = load.run(1, one, true, || ()).await;
        anyhow::ensure!(measured.failures == 0, "{}: a 4 MB prompt failed", running.target.name());
    }
    Ok(())
}
