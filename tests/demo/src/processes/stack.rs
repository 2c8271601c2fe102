//! Engines, agent and Envoy, started in the order in which each needs the other.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::envoy::local;
use super::{
    Agent, Envoy, Ports, Process, ProcessError, Programs, Record, Session, Simulator,
    SimulatorOptions, wait_until, write_endpoints,
};

/// How a stack is started.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// The engines.
    pub simulator: SimulatorOptions,
    /// Envoy's worker threads.
    pub workers: usize,
    /// Name of the pool.
    pub pool: String,
    /// More arguments for the agent.
    pub agent_arguments: Vec<String>,
    /// More fields of the plugin configuration, each with a comma before it; or nothing.
    pub plugin_config_extra: String,
    /// Ports; free ones if none are given.
    pub ports: Option<Ports>,
    /// The session of the processes.
    pub session: Session,
}

impl StackOptions {
    /// A pool of `replicas` engines behind `workers` Envoy workers.
    #[must_use]
    pub fn new(replicas: usize, workers: usize) -> Self {
        Self {
            simulator: SimulatorOptions::new(replicas),
            workers,
            pool: "default".to_owned(),
            agent_arguments: Vec::new(),
            plugin_config_extra: String::new(),
            ports: None,
            session: Session::Shared,
        }
    }
}

/// Everything running, with its configuration and logs in one folder.
///
/// The fields are in the order in which they are to end: Envoy first.
#[derive(Debug)]
pub struct Stack {
    /// Envoy.
    pub envoy: Envoy,
    /// The agent.
    pub agent: Agent,
    /// The engines.
    pub simulator: Simulator,
    /// Folder of configuration and logs.
    pub dir: PathBuf,
    /// What it was started with.
    pub options: StackOptions,
}

impl Stack {
    /// Starts all of it in the folder `dir`, and waits until Envoy knows every engine.
    ///
    /// # Errors
    /// When something does not start; what had started is ended again.
    pub async fn start(
        programs: &Programs,
        options: StackOptions,
        dir: &Path,
    ) -> Result<Self, ProcessError> {
        std::fs::create_dir_all(dir).map_err(ProcessError::io("create", dir))?;
        let dir = dir.canonicalize().map_err(ProcessError::io("find", dir))?;
        let session = options.session;
        let ports = match options.ports {
            Some(ports) => ports,
            None => Ports::free()?,
        };

        let simulator = Simulator::start(programs, &options.simulator, &dir, session).await?;
        write_endpoints(&dir, &simulator.replicas)?;
        let (pool, address) = (&options.pool, local(ports.agent));
        let agent =
            Agent::start(programs, address, &dir, pool, &options.agent_arguments, session).await?;
        let extra = &options.plugin_config_extra;
        let envoy =
            Envoy::start(programs, ports, options.workers, pool, extra, &dir, session).await?;

        let replicas = simulator.replicas.len() as u64;
        let clusters = [options.pool.clone(), format!("{}-round-robin", options.pool)];
        for cluster in &clusters {
            let complete =
                async || envoy.hosts(cluster).await.ok().filter(|hosts| *hosts == replicas);
            let what = format!("{replicas} endpoints in Envoy's cluster {cluster}");
            wait_until(&what, Duration::from_secs(30), &dir, complete).await?;
        }
        Ok(Self { envoy, agent, simulator, dir, options })
    }

    /// Where clients go.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.envoy.listen
    }

    /// Lets everything run on; returns what to write down to be able to end it.
    #[must_use]
    pub fn leave_running(self) -> Vec<Record> {
        [self.envoy.process, self.agent.process, self.simulator.process]
            .map(Process::leave_running)
            .into()
    }
}
