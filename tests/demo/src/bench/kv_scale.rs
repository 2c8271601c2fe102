//! What it takes to know what many engines hold: memory of the agent and of each VM.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::BenchError;
use crate::processes::{
    Agent, DEBUG_PATH, Envoy, Ports, Programs, Session, Simulator, SimulatorOptions, get, precise,
    precise_documents, resident_mb, wait_until, write_configuration,
};

const ENDPOINTS: usize = 256;
/// Blocks of 16 tokens that each engine holds.
const BLOCKS: usize = 10_000;
/// Blocks that each engine stores in a second, from first to last.
const RATE: u64 = 600;
/// Blocks of one prompt.
const PROMPT_BLOCKS: usize = 250;
/// Long enough to fill all engines, and to look at them full.
const SECONDS: f64 = 150.0;
const PATIENCE: Duration = Duration::from_secs(140);
const MODEL: &str = "llama-70b";

/// Memory at full size.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KvScale {
    /// Engines whose events are followed.
    pub endpoints: usize,
    /// Engine blocks that they hold together.
    pub engine_blocks: u64,
    /// Prefix blocks in each VM's table.
    pub prefix_blocks: u64,
    /// The agent's resident memory.
    pub agent_mb: u64,
    /// Memory of the VM that answered, whole.
    pub vm_mb: u64,
}

impl KvScale {
    /// The figures for people.
    #[must_use]
    pub fn table(&self) -> String {
        let Self { endpoints, engine_blocks, prefix_blocks, agent_mb, vm_mb } = self;
        // As the filter has no more than whole byte blocks: a little less than the text has.
        let bytes = *prefix_blocks as f64 * 128.0 / (*engine_blocks as f64 * 16.0).max(1.0);
        format!(
            "{endpoints} engines, {engine_blocks} blocks of 16 tokens of {bytes:.1} bytes, as {prefix_blocks} \
             prefix blocks of 128\n\
             \x20 agent {agent_mb:>6} MB resident\n\x20 VM    {vm_mb:>6} MB\n"
        )
    }
}

/// Lets all engines publish until each holds its full cache, and looks at who knows of it.
///
/// # Errors
/// When a program does not start, or the filter's table is not full in time.
pub async fn kv_scale(programs: &Programs, dir: &Path) -> Result<KvScale, BenchError> {
    std::fs::create_dir_all(dir)?;
    let dir = dir.canonicalize()?;
    let mut options = SimulatorOptions::new(ENDPOINTS);
    options.arguments.push("--kv-events".to_owned());
    let simulator = Simulator::start(programs, &options, &dir, Session::Shared).await?;
    let folder = dir.join("model");
    engine_sim::model_folder::write(&folder)?;
    let documents = precise_documents(MODEL, &folder, &[]);
    write_configuration(&dir, &simulator.replicas, &documents)?;
    let ports = Ports::free()?;
    let address = SocketAddr::from(([127, 0, 0, 1], ports.agent));
    let agent = Agent::start(programs, address, &dir, "default", &[], Session::Shared).await?;
    let extra = format!(r#", "debug_path": "{DEBUG_PATH}""#);
    let envoy = Envoy::start(programs, ports, 1, "default", &extra, &dir, Session::Shared).await?;
    let state = async || Some(get(envoy.listen, DEBUG_PATH).await.ok()?.json());
    let followed = async || (precise(&state().await?) == ENDPOINTS).then_some(());
    wait_until("events of all engines followed", PATIENCE, &dir, followed).await?;
    let floods = (0..ENDPOINTS).map(|replica| {
        let order = json!({
            "replica": replica, "blocks_per_s": RATE, "seconds": SECONDS, "held_blocks": BLOCKS,
            "prompt_blocks": PROMPT_BLOCKS,
        });
        let admin = simulator.admin;
        tokio::spawn(async move {
            let limit = Duration::from_secs_f64(SECONDS * 2.0);
            crate::processes::post_for(limit, admin, "/flood", &order).await
        })
    });
    let floods: Vec<_> = floods.collect();
    let full = async || {
        let metrics = get(agent.address, "/metrics").await.ok()?;
        let held = held_blocks(&String::from_utf8_lossy(&metrics.body));
        (held >= (ENDPOINTS * BLOCKS) as u64 * 99 / 100).then_some(held)
    };
    let engine_blocks = wait_until("full engines", PATIENCE, &dir, full).await?;
    let state = wait_until("a state of the filter", PATIENCE, &dir, state).await?;
    let scale = KvScale {
        endpoints: ENDPOINTS,
        engine_blocks,
        prefix_blocks: state["prefix_blocks"].as_u64().unwrap_or_default(),
        agent_mb: resident_mb(agent.process.pid()).unwrap_or_default() as u64,
        vm_mb: state["memory_bytes"].as_u64().unwrap_or_default() >> 20,
    };
    floods.iter().for_each(tokio::task::JoinHandle::abort);
    drop((envoy, agent, simulator));
    Ok(scale)
}

/// Engine blocks that the agent knows to be held, over all endpoints.
fn held_blocks(metrics: &str) -> u64 {
    let of = |line: &str| {
        let rest = line.strip_prefix("warmroute_agent_kv_blocks_held{")?;
        rest.rsplit_once(' ')?.1.parse::<f64>().ok()
    };
    metrics.lines().filter_map(of).sum::<f64>() as u64
}
