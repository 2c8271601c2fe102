//! What the agent takes for many endpoints that it looks at often.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use warmroute_demo::processes::{Agent, Session, free_ports, get, write_endpoints};

use crate::cpu;
use crate::stub::Options;
use crate::targets::{Bench, StubEngines};

const ENDPOINTS: usize = 100;
const METRICS_BYTES: usize = 70_000;

/// The agent's cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AgentCost {
    /// Engines that it looks at.
    pub endpoints: usize,
    /// Bytes of each one's metrics.
    pub metrics_bytes: usize,
    /// Cores that it keeps busy.
    pub cores: f64,
    /// Its resident memory.
    pub rss_mb: f64,
    /// Scrapes that it really did, a second.
    pub scrapes_per_s: f64,
}

/// Has an agent look at 100 engines every 50 ms for a while.
///
/// # Errors
/// When it does not start.
pub async fn agent_cost(bench: &Bench<'_>, time: Duration) -> Result<AgentCost> {
    let options = Options { endpoints: ENDPOINTS, metrics_bytes: METRICS_BYTES, events: false };
    let engines = StubEngines::start(bench, "agent-engines", options).await?;
    let dir = bench.dir.join("agent-engines");
    write_endpoints(&dir, &engines.endpoints)?;
    let [port] = free_ports()?;
    let address = ([127, 0, 0, 1], port).into();
    bench.cores.start_proxies();
    let agent = Agent::start(bench.programs, address, &dir, "default", &[], Session::Shared).await;
    bench.cores.start_others();
    let agent = agent?;
    let pids = [agent.process.pid()];
    // The first scrapes learn more than later ones.
    tokio::time::sleep(time / 4).await;
    let (before, scraped) = (cpu::used_us(&pids), scrapes(&agent).await?);
    tokio::time::sleep(time).await;
    let seconds = time.as_secs_f64();
    Ok(AgentCost {
        endpoints: ENDPOINTS,
        metrics_bytes: METRICS_BYTES,
        cores: (cpu::used_us(&pids) - before) / 1e6 / seconds,
        rss_mb: cpu::resident_mb(&pids),
        scrapes_per_s: (scrapes(&agent).await? - scraped) / seconds,
    })
}

async fn scrapes(agent: &Agent) -> Result<f64> {
    let page = get(agent.address, "/metrics").await?;
    let text = String::from_utf8_lossy(&page.body);
    let of = |line: &str| {
        let rest = line.strip_prefix("warmroute_agent_scrapes_total")?;
        rest.rsplit_once(' ')?.1.parse::<f64>().ok()
    };
    Ok(text.lines().filter_map(of).sum())
}
