//! Envoy with the filter, and the agent beside it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use warmroute_demo::processes::{
    Agent, DEBUG_PATH, Envoy, Ports, Session, get, precise, precise_documents, wait_until,
    write_configuration,
};

use super::{Bench, Running, StubEngines, Target, envoy, local};
use crate::workload::{KEY, MODEL};

const PATIENCE: Duration = Duration::from_secs(60);
/// SHA-256 of the tenant's key.
const KEY_HASH: &str = "657252dab654bd72908095b87a1daffea36a26d4bc0091119ad82bdc6433fa38";

/// How much of Warmroute is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is configured but the engines.
    Approximate,
    /// KV events and the model's template.
    Precise,
    /// The same, a tenant with budgets, and flow control; nothing is ever refused or waits.
    Full,
}

/// The engines' number and the agent's pace.
#[derive(Clone, Copy, Debug)]
pub struct Pool<'a> {
    /// Name of its folder.
    pub name: &'a str,
    /// The engines.
    pub engines: &'a StubEngines,
    /// Time between two scrapes of an engine; the agent's default if `None`.
    pub scrape_interval: Option<&'a str>,
}

/// Agent and Envoy.
pub struct Warmroute {
    /// Envoy.
    pub envoy: Envoy,
    /// The agent.
    pub agent: Agent,
    mode: Mode,
    dir: PathBuf,
}

impl Warmroute {
    /// Starts both and waits until requests are served, in precise mode also until all engines' events are followed.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start(
        bench: &Bench<'_>,
        mode: Mode,
        pool: Pool<'_>,
        model: &Path,
    ) -> Result<Self> {
        let dir = bench.folder(pool.name)?;
        write_configuration(&dir, &pool.engines.endpoints, &mode.documents(model))?;
        let ports = Ports::free()?;
        let interval =
            pool.scrape_interval.map(|value| ["--scrape-interval".to_owned(), value.to_owned()]);
        let arguments: Vec<String> = interval.into_iter().flatten().collect();
        bench.cores.start_others();
        let agent = Agent::start(
            bench.programs,
            local(ports.agent),
            &dir,
            envoy::POOL,
            &arguments,
            Session::Shared,
        )
        .await?;
        let extra = format!(r#", "debug_path": "{DEBUG_PATH}""#);
        let bootstrap = envoy::bootstrap(bench, ports, &extra, &dir)?;
        let envoy = envoy::start(bench, ports, &bootstrap, &dir).await?;
        envoy::served(envoy.listen, &dir, &[("authorization", format!("Bearer {KEY}"))]).await?;
        let warmroute = Self { envoy, agent, mode, dir };
        if mode != Mode::Approximate {
            let all = pool.engines.endpoints.len();
            warmroute.wait("events of all engines", |state| precise(state) == all).await?;
        }
        Ok(warmroute)
    }

    /// Waits until the worker's index has so many blocks.
    ///
    /// # Errors
    /// When it has not in time.
    pub async fn wait_for_blocks(&self, blocks: u64) -> Result<()> {
        let what = format!("{blocks} blocks in the index");
        self.wait(&what, |state| state["prefix_blocks"].as_u64() >= Some(blocks)).await
    }

    async fn wait(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Result<()> {
        let holds = async || {
            let answer = get(self.envoy.listen, DEBUG_PATH).await.ok()?;
            condition(&answer.json()).then_some(())
        };
        Ok(wait_until(what, PATIENCE, &self.dir, holds).await?)
    }

    /// As one of the ways.
    #[must_use]
    pub fn running(self) -> Running {
        let target = match self.mode {
            Mode::Approximate => Target::Warmroute,
            Mode::Precise => Target::Precise,
            Mode::Full => Target::Full,
        };
        Running::through(self.envoy, target, Some(self.agent.process.into()))
    }
}

impl Mode {
    /// What stands behind the endpoints in the agent's file.
    fn documents(self, model: &Path) -> String {
        let precise = || precise_documents(MODEL, model, &[]);
        match self {
            Self::Approximate => String::new(),
            Self::Precise => precise(),
            Self::Full => precise() + TENANTS.replace("KEYHASH", KEY_HASH).as_str(),
        }
    }
}

const TENANTS: &str = r#"---
apiVersion: warmroute/v1alpha1
kind: TenantQuota
metadata: { name: bench }
spec:
  identity: { apiKeyHashes: [KEYHASH], stripKey: true }
  inject: { fairnessId: bench }
  limits:
  - { model: llama-70b, rpm: 1000000000, tpm: 1000000000000, concurrency: 100000, inflightTokens: 1000000000 }
---
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- { type: weighted-token-fairness-policy, parameters: { weights: { bench: 3 }, defaultWeight: 1 } }
- { type: concurrency-detector, parameters: { maxConcurrency: 256 } }
- { type: queue-scorer }
- { type: kv-cache-utilization-scorer }
- { type: prefix-cache-scorer }
schedulingProfiles:
- name: default
  plugins:
  - { pluginRef: queue-scorer, weight: 2 }
  - { pluginRef: kv-cache-utilization-scorer, weight: 2 }
  - { pluginRef: prefix-cache-scorer, weight: 3 }
flowControl:
  maxRequests: 10k
  defaultRequestTTL: 60s
  saturationDetector: { pluginRef: concurrency-detector }
  defaultPriorityBand: { fairnessPolicyRef: weighted-token-fairness-policy }
"#;
