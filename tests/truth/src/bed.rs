//! Engines, agent and Envoy, with the agent following the engines' events.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;
use warmroute_demo::processes::{
    Agent, Bootstrap, DEBUG_PATH, Envoy, Ports, Programs, Session, Simulator, SimulatorOptions,
    agreed, get, precise, precise_documents, render, write_configuration,
};

/// Name of the pool.
const POOL: &str = "default";

/// Model and engines as the agent is told of them.
#[derive(Clone, Debug)]
pub struct Served {
    /// Served name.
    pub model: String,
    /// Adapters.
    pub adapters: Vec<String>,
    /// Folder with tokenizer and template.
    pub folder: PathBuf,
}

/// The engines.
pub enum Engines {
    /// Simulated, started here.
    Simulated(Simulator),
    /// Started by somebody else.
    Real(SocketAddr),
}

impl Engines {
    fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Simulated(simulator) => simulator.replicas.clone(),
            Self::Real(address) => vec![*address],
        }
    }
}

/// Everything running; the fields are in the order in which they are to end.
pub struct Bed {
    /// Envoy.
    pub envoy: Envoy,
    _agent: Agent,
    /// The engines.
    pub engines: Engines,
    dir: PathBuf,
}

impl Bed {
    /// Starts simulated replicas with these further arguments.
    ///
    /// # Errors
    /// When they do not start.
    pub async fn simulate(
        programs: &Programs,
        dir: &Path,
        replicas: usize,
        served: &Served,
        arguments: &[&str],
    ) -> Result<Simulator> {
        let mut options = SimulatorOptions::new(replicas);
        options.model.clone_from(&served.model);
        options.arguments = vec!["--kv-events".to_owned()];
        options.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        for adapter in &served.adapters {
            options.arguments.extend(["--lora".to_owned(), adapter.clone()]);
        }
        Ok(Simulator::start(programs, &options, dir, Session::Shared).await?)
    }

    /// Starts agent and Envoy before `engines`, and waits until every worker follows the events of
    /// all of them.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start(
        programs: &Programs,
        dir: &Path,
        engines: Engines,
        served: &Served,
        workers: usize,
    ) -> Result<Self> {
        let ports = Ports::free()?;
        let eds = dir.join("eds");
        let documents = precise_documents(&served.model, &served.folder, &served.adapters);
        write_configuration(dir, &engines.addresses(), &documents)?;
        let address = SocketAddr::from(([127, 0, 0, 1], ports.agent));
        let agent = Agent::start(programs, address, dir, POOL, &[], Session::Shared).await?;

        let template = std::fs::read_to_string(&programs.template)?;
        let bootstrap = render(
            &template,
            &Bootstrap {
                wasm: &programs.wasm,
                listen_port: ports.listen,
                admin_port: ports.admin,
                agent: address,
                eds_dir: &eds,
                pool: POOL,
                access_log: &dir.join("access.log"),
                plugin_config_extra: &format!(r#", "debug_path": "{DEBUG_PATH}""#),
            },
        )?;
        let path = dir.join("envoy.yaml");
        std::fs::write(&path, bootstrap)?;
        // Else a record reaches the access log's file only after ten seconds.
        let flush = ["--file-flush-interval-msec".to_owned(), "100".to_owned()];
        let envoy =
            Envoy::run(programs, &path, ports, workers, &flush, dir, Session::Shared).await?;
        let bed = Self { envoy, _agent: agent, engines, dir: dir.to_owned() };
        let count = bed.engines.addresses().len();
        let what = "all endpoints precise in every worker";
        agreed(bed.listen(), what, &bed.dir, |state| precise(state) == count).await?;
        Ok(bed)
    }

    /// Where clients go.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.envoy.listen
    }

    /// Envoy's access log.
    #[must_use]
    pub fn access_log(&self) -> PathBuf {
        self.dir.join("access.log")
    }

    /// The filter's state, as whichever worker answers has it.
    ///
    /// # Errors
    /// When no state comes.
    pub async fn state(&self) -> Result<Value> {
        Ok(get(self.listen(), DEBUG_PATH).await?.json())
    }

    /// Endpoints whose events are followed.
    ///
    /// # Errors
    /// When no state comes.
    pub async fn endpoints_precise(&self) -> Result<usize> {
        Ok(precise(&self.state().await?))
    }

    /// Restarts a simulated engine, and waits until every worker knows: what the old one held is
    /// void, and the new one's events are followed.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn restart(&self, index: usize) -> Result<()> {
        let Engines::Simulated(simulator) = &self.engines else { return Ok(()) };
        let address = simulator.replicas.get(index).context("no such replica")?.to_string();
        let of = |state: &Value| {
            let all = state["endpoints"].as_array()?;
            let endpoint = all.iter().find(|endpoint| endpoint["address"] == address)?;
            Some((endpoint["generation"].clone(), endpoint["precise"] == true))
        };
        let (before, _) = of(&self.state().await?).context("the endpoint is not in the table")?;
        simulator.fault(&serde_json::json!({ "replica": index, "fault": "restart" })).await?;
        let what = format!("a fresh start of {address} in every worker");
        let fresh =
            |state: &Value| of(state).is_some_and(|(now, precise)| precise && now != before);
        Ok(agreed(self.listen(), &what, &self.dir, fresh).await?)
    }
}
