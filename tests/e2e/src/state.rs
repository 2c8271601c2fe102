//! What the filter and the engines say of themselves.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use warmroute_demo::processes;

use crate::stack::DEBUG_PATH;

/// The filter's state in one worker; the fields of its debug page.
#[derive(Clone, Debug, Deserialize)]
pub struct FilterState {
    /// Which VM answered.
    pub incarnation: String,
    /// Its row.
    pub slot: Option<usize>,
    /// Whether it has the applier's role.
    pub applier: bool,
    /// Frames it has applied.
    pub applied: u64,
    /// VMs whose rows are added up.
    pub vms: usize,
    /// The compiled configuration that it decides by.
    pub policy: FilterPolicy,
    /// Blocks in its prefix table.
    pub prefix_blocks: u64,
    /// What its VM takes.
    pub memory_bytes: u64,
    /// Requests that are charged, over all VMs and endpoints, those that are gone included.
    pub in_flight: u64,
    /// Requests of this VM.
    pub in_flight_here: u64,
    /// Requests of this VM that wait for their turn.
    pub parked_here: u64,
    /// Requests of this VM that had their turn and are not over.
    pub turns_here: u64,
    /// The endpoints in its table.
    pub endpoints: Vec<FilterEndpoint>,
}

/// The compiled configuration as the filter has it.
#[derive(Clone, Debug, Deserialize)]
pub struct FilterPolicy {
    /// Changes with its contents; zeros if there is none.
    pub revision: String,
    /// `namespace/name` of each pool.
    pub pools: Vec<String>,
    /// Names of the schedulers.
    pub schedulers: Vec<String>,
}

/// An endpoint as the filter has it.
#[derive(Clone, Debug, Deserialize)]
pub struct FilterEndpoint {
    /// Its name, after that of its pool: `default/engine-0`.
    pub name: String,
    /// `ip:port`.
    pub address: String,
    /// Whether it can be picked.
    pub ready: bool,
    /// Its column in the prefix table: a fresh one holds nothing.
    pub column: u32,
    /// Its generation: another one voids what it held.
    pub generation: u64,
    /// Whether its KV events are followed without a gap.
    pub precise: bool,
    /// Its KV blocks, as the engine says.
    pub kv_blocks: Option<u64>,
    /// Scraped.
    pub waiting: Option<f64>,
    /// Scraped.
    pub kv_usage: Option<f64>,
    /// Scraped.
    pub running: Option<f64>,
    /// Since that scrape.
    pub load_age_ms: u64,
    /// Charged to it, over all VMs.
    pub in_flight: Charged,
}

/// Requests charged to an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Charged {
    /// Requests.
    pub requests: u64,
    /// Of these, picked since the last scrape.
    pub waiting: u64,
    /// Prompt tokens that are to be computed for them.
    pub uncached_tokens: u64,
}

impl FilterState {
    /// Asks the Envoy at `listen`; whichever worker takes the connection answers.
    ///
    /// # Errors
    /// When no state comes.
    pub async fn ask(listen: SocketAddr) -> Result<Self> {
        let answer = processes::get(listen, DEBUG_PATH).await?;
        let text = String::from_utf8_lossy(&answer.body);
        ensure!(answer.status == 200, "{DEBUG_PATH}: status {}: {text}", answer.status);
        serde_json::from_str(&text).with_context(|| format!("{DEBUG_PATH}: {text}"))
    }

    /// An endpoint by its name in the agent's YAML.
    #[must_use]
    pub fn endpoint(&self, name: &str) -> Option<&FilterEndpoint> {
        let of_pool = format!("{}/{name}", crate::stack::POOL);
        self.endpoints.iter().find(|endpoint| endpoint.name == of_pool)
    }
}

/// A simulated engine.
#[derive(Clone, Debug, Deserialize)]
pub struct EngineState {
    /// Its number.
    pub index: usize,
    /// `ip:port`.
    pub endpoint: String,
    /// Whether its port is open.
    pub accepts: bool,
    /// Requests that run.
    pub running: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Generation requests that ever arrived, since the last reset.
    pub arrived: u64,
    /// The latest of them.
    pub requests: Vec<EngineRequest>,
}

/// A generation request as the engine got it.
#[derive(Clone, Debug, Deserialize)]
pub struct EngineRequest {
    /// Path with query.
    pub path: String,
    /// `x-request-id`.
    pub request_id: Option<String>,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// XXH3-64 of the body, 16 hex digits.
    pub body_xxh3: String,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Of these, cached on arrival.
    pub cached_on_arrival: u64,
    /// Of these, cached when it was admitted, as usage tells.
    pub cached_tokens: u64,
    /// Tokens of the answer, as far as it was given out; 0 until the request is over.
    pub completion_tokens: u64,
    /// Status of the answer; 0 while there is none.
    pub status: u16,
    /// `in_flight`, `finished`, `rejected` or `aborted`.
    pub outcome: String,
    /// Names and values in order.
    pub headers: Vec<(String, String)>,
}

impl EngineRequest {
    /// All values of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Vec<&str> {
        let same = self.headers.iter().filter(|(found, _)| found == name);
        same.map(|(_, value)| value.as_str()).collect()
    }
}

#[derive(Deserialize)]
struct Engines {
    replicas: Vec<EngineState>,
}

impl EngineState {
    /// Asks the simulator for all its engines, with all requests that they remember.
    ///
    /// # Errors
    /// When it does not tell.
    pub async fn ask(admin: SocketAddr) -> Result<Vec<Self>> {
        let answer = processes::get(admin, "/state?requests=1000000").await?;
        let engines: Engines =
            serde_json::from_slice(&answer.body).context("state of the engine simulator")?;
        Ok(engines.replicas)
    }
}

/// The engine that got the request with this `x-request-id`, and what it got.
#[must_use]
pub fn arrival<'a>(
    engines: &'a [EngineState],
    request_id: &str,
) -> Option<(&'a EngineState, &'a EngineRequest)> {
    engines.iter().find_map(|engine| {
        let same = |request: &&EngineRequest| request.request_id.as_deref() == Some(request_id);
        Some((engine, engine.requests.iter().rev().find(same)?))
    })
}
