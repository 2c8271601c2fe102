//! Engines, agent and Envoy of one test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use warmroute_demo::processes::{
    Agent, Envoy, Ports, Programs, Session, Simulator, SimulatorOptions, workspace_root,
};

use crate::access_log::{self, Access};
use crate::client::{self, Request};
use crate::run_dir::RunDir;
use crate::setup::{AgentPresence, Endpoint, Setup};
use crate::state::{EngineState, FilterState};
use crate::{agent_files, bootstrap, listener_file};

/// How long anything may take that a test waits for, unless the test says otherwise: generous, since
/// the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The page on which the filter shows its state.
pub const DEBUG_PATH: &str = "/warmroute/debug";

/// Name of the pool, which is also that of its cluster.
pub const POOL: &str = "default";

/// The served model.
pub const MODEL: &str = "llama-70b";

/// Everything running. The fields are in the order in which they are to end: Envoy first.
pub struct Stack {
    /// Envoy.
    pub envoy: Envoy,
    /// The agent, if there is one.
    pub agent: Option<Agent>,
    /// The engines.
    pub simulator: Simulator,
    /// What the stack was started with.
    pub setup: Setup,
    programs: Programs,
    ports: Ports,
    dir: RunDir,
}

impl Stack {
    /// Starts everything, and waits until the filter has all endpoints in its table (unless there is
    /// no agent to tell it).
    ///
    /// # Errors
    /// When something does not start; what had started is ended again.
    pub async fn start(setup: Setup) -> Result<Self> {
        let dir = RunDir::new()?;
        let stack = Self::start_in(dir, setup).await?;
        stack.dir.keep(false);
        Ok(stack)
    }

    async fn start_in(dir: RunDir, setup: Setup) -> Result<Self> {
        let root = workspace_root()?;
        let mut programs = Programs::find(&root)?;
        if setup.fault_injection {
            programs.wasm = module_with_faults(&root)?;
        }
        let ports = Ports::free()?;
        let mut options = SimulatorOptions::new(setup.replicas);
        MODEL.clone_into(&mut options.model);
        options.arguments.clone_from(&setup.simulator_arguments);
        let simulator = Simulator::start(&programs, &options, dir.path(), Session::Shared).await?;
        let endpoints: Vec<Endpoint> = agent_files::simulated(&simulator, &setup.labels)
            .into_iter()
            .chain(setup.other_endpoints.clone())
            .collect();
        if setup.precise {
            agent_files::write_model(dir.path())?;
        }
        agent_files::write(dir.path(), &endpoints, &setup)?;
        let agent = start_agent(&programs, ports, dir.path(), &setup.agent_arguments).await?;
        let agent = (setup.agent == AgentPresence::Running).then_some(agent);
        let envoy = start_envoy(&programs, ports, &setup, dir.path(), dir.path()).await?;
        let stack = Self { envoy, agent, simulator, setup, programs, ports, dir };
        for cluster in [POOL.to_owned(), format!("{POOL}-round-robin")] {
            let envoy = &stack.envoy;
            let count = endpoints.len() as u64;
            let complete =
                async || envoy.hosts(&cluster).await.ok().filter(|hosts| *hosts == count);
            stack.until(&format!("{count} hosts in Envoy's cluster {cluster}"), complete).await?;
        }
        if stack.agent.is_some() {
            stack.wait_ready(endpoints.len()).await?;
        }
        if stack.setup.precise {
            stack.wait_precise(endpoints.len()).await?;
        }
        Ok(stack)
    }

    /// Folder of configuration and logs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where clients go.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.envoy.listen
    }

    /// The simulated engines as endpoints: `engine-0` and so on.
    #[must_use]
    pub fn simulated(&self) -> Vec<Endpoint> {
        agent_files::simulated(&self.simulator, &self.setup.labels)
    }

    /// Gives the agent another list of endpoints; returns at once.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_endpoints(&self, endpoints: &[Endpoint]) -> Result<()> {
        agent_files::write(self.dir(), endpoints, &self.setup)
    }

    /// Gives the agent these documents in place of [`Setup::documents`]; returns at once. A fault in them is the
    /// agent's to find.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_documents(&mut self, documents: &str) -> Result<()> {
        documents.clone_into(&mut self.setup.documents);
        let mut endpoints = self.simulated();
        endpoints.extend(self.setup.other_endpoints.iter().cloned());
        self.write_endpoints(&endpoints)
    }

    /// Starts the agent (again), on the same address and with the same arguments.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_agent(&mut self) -> Result<()> {
        // The old one must be gone before the address is free.
        drop(self.agent.take());
        let arguments = &self.setup.agent_arguments;
        self.agent =
            Some(start_agent(&self.programs, self.ports, self.dir.path(), arguments).await?);
        Ok(())
    }

    /// One more Envoy like the first, on the same agent. Its logs are in a folder `another`.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn another_envoy(&self) -> Result<Envoy> {
        let logs = self.dir().join("another");
        std::fs::create_dir_all(&logs)?;
        let ports = Ports { agent: self.ports.agent, ..Ports::free()? };
        start_envoy(&self.programs, ports, &self.setup, self.dir(), &logs).await
    }

    /// Gives Envoy a changed listener, if the setup has [`Setup::listener_file`], and waits for its verdict: whether
    /// it took it. `edit` gets the listener's file as it now is.
    ///
    /// # Errors
    /// When `edit` changes nothing, the file cannot be written, or no verdict comes.
    pub async fn push_listener(&self, edit: impl FnOnce(&str) -> String) -> Result<bool> {
        let verdicts = async || -> Result<(u64, u64)> {
            let taken = self.stat("listener_manager.lds.update_success").await?;
            Ok((taken, self.stat("listener_manager.lds.update_rejected").await?))
        };
        let (taken, refused) = verdicts().await?;
        listener_file::push(self.dir(), edit)?;
        let verdict = async || match verdicts().await.ok()? {
            (_, now) if now > refused => Some(false),
            (now, _) if now > taken => Some(true),
            _ => None,
        };
        self.until("Envoy's verdict on a listener", verdict).await
    }

    /// The same for a listener that Envoy must take.
    ///
    /// # Errors
    /// When it does not.
    pub async fn push_listener_taken(&self, edit: impl FnOnce(&str) -> String) -> Result<()> {
        ensure!(self.push_listener(edit).await?, "Envoy refused the listener");
        Ok(())
    }

    /// Has a VM trap by the header `x-warmroute-fault` on `request`, and waits until it has. What becomes of the request is
    /// nobody's concern: it may end with the VM, or wait as others do.
    ///
    /// # Errors
    /// When none traps.
    pub async fn trap(&self, fault: &str, request: Request) -> Result<()> {
        let message = format!("fault injection: {fault}");
        let log = || std::fs::read_to_string(self.envoy.process.log()).unwrap_or_default();
        let before = log().matches(&message).count();
        let (listen, request) = (self.listen(), request.header("x-warmroute-fault", fault));
        let order = tokio::spawn(async move { client::send(listen, &request).await });
        let trapped = async || (log().matches(&message).count() > before).then_some(());
        let trapped = self.until(&format!("a trap by {fault}"), trapped).await;
        order.abort();
        trapped
    }

    /// The filter's state, as whichever worker answers has it.
    ///
    /// # Errors
    /// When no state comes.
    pub async fn filter_state(&self) -> Result<FilterState> {
        FilterState::ask(self.listen()).await
    }

    /// Waits until the filter's table has exactly `count` endpoints, all of them ready.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn wait_ready(&self, count: usize) -> Result<()> {
        let complete = async || {
            let state = self.filter_state().await.ok()?;
            let all = state.endpoints.len() == count && state.endpoints.iter().all(|e| e.ready);
            all.then_some(())
        };
        self.until(&format!("{count} ready endpoints in the filter"), complete).await
    }

    /// Waits until `count` endpoints are ready and their events followed, as whichever worker answers has it.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn wait_precise(&self, count: usize) -> Result<()> {
        let complete = async || {
            let state = self.filter_state().await.ok()?;
            let precise = state.endpoints.iter().filter(|e| e.ready && e.precise).count();
            (precise == count).then_some(())
        };
        self.until(&format!("{count} precise endpoints in the filter"), complete).await
    }

    /// What the engines hold and have served.
    ///
    /// # Errors
    /// When the simulator does not tell.
    pub async fn engines(&self) -> Result<Vec<EngineState>> {
        EngineState::ask(self.simulator.admin).await
    }

    /// Awaits the access log's record of the request with this `x-request-id`.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn access(&self, request_id: &str) -> Result<Access> {
        let path = self.dir().join(access_log::FILE);
        let found = async || access_log::find(&path, request_id);
        self.until(&format!("a record of request {request_id} in the access log"), found).await
    }

    /// A statistic of Envoy; 0 if there is none of that name.
    ///
    /// # Errors
    /// When Envoy's admin interface does not answer.
    pub async fn stat(&self, name: &str) -> Result<u64> {
        Ok(self.envoy.stat(name).await?)
    }

    /// Waits until `condition` gives a value, for [`PATIENCE`].
    ///
    /// # Errors
    /// When it does not: `what` did not happen.
    pub async fn until<T>(&self, what: &str, condition: impl AsyncFn() -> Option<T>) -> Result<T> {
        self.until_for(PATIENCE, what, condition).await
    }

    /// Waits until `condition` gives a value, for `limit`.
    ///
    /// # Errors
    /// When it does not: `what` did not happen.
    pub async fn until_for<T>(
        &self,
        limit: Duration,
        what: &str,
        condition: impl AsyncFn() -> Option<T>,
    ) -> Result<T> {
        let waited =
            warmroute_demo::processes::wait_until(what, limit, self.dir(), condition).await;
        if waited.is_err() {
            self.dir.keep(true);
        }
        Ok(waited?)
    }
}

fn module_with_faults(root: &Path) -> Result<PathBuf> {
    let path = std::env::var_os("WARMROUTE_WASM_FAULTS")
        .map_or_else(|| root.join("target/wasm/warmroute_filter_faults.wasm"), PathBuf::from);
    path.canonicalize().with_context(|| format!("{} is missing: run `make e2e`", path.display()))
}

async fn start_agent(
    programs: &Programs,
    ports: Ports,
    dir: &Path,
    arguments: &[String],
) -> Result<Agent> {
    let address = SocketAddr::from(([127, 0, 0, 1], ports.agent));
    Ok(Agent::start(programs, address, dir, POOL, arguments, Session::Shared).await?)
}

/// `shared` is the folder where the agent writes; configuration and logs of this Envoy go to `dir`.
async fn start_envoy(
    programs: &Programs,
    ports: Ports,
    setup: &Setup,
    shared: &Path,
    dir: &Path,
) -> Result<Envoy> {
    let path = bootstrap::write(programs, ports, setup, shared, dir)?;
    // Else a record reaches the access log's file only after ten seconds.
    let mut arguments = vec!["--file-flush-interval-msec".to_owned(), "20".to_owned()];
    arguments.extend(setup.envoy_arguments.iter().cloned());
    let workers = setup.workers;
    Ok(Envoy::run(programs, &path, ports, workers, &arguments, dir, Session::Shared).await?)
}
