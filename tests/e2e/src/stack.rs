//! Engines, agent and Envoy of one test.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use warmroute_demo::processes::{
    Agent, Bootstrap, Envoy, Ports, Programs, Session, Simulator, SimulatorOptions,
    precise_documents, render, workspace_root,
};

use crate::access_log::{self, Access};
use crate::listener_file;
use crate::run_dir::RunDir;
use crate::state::{EngineState, FilterState};

/// How long anything may take that a test waits for, unless the test says otherwise: generous, since
/// the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The page on which the filter shows its state.
pub const DEBUG_PATH: &str = "/warmroute/debug";

/// Name of the pool, which is also that of its cluster.
pub const POOL: &str = "default";

/// The served model.
pub const MODEL: &str = "llama-70b";

/// The model's tokenizer and template, in the folder of the run.
const MODEL_FOLDER: &str = "model";

/// A change of the bootstrap's text.
pub type Edit = Box<dyn Fn(String) -> String + Send + Sync>;

/// Whether there is an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentPresence {
    /// It runs.
    #[default]
    Running,
    /// It wrote the endpoints for Envoy and ended before Envoy started: the filter never hears of it.
    Gone,
}

/// How a stack is started.
pub struct Setup {
    /// Simulated engines.
    pub replicas: usize,
    /// Envoy's worker threads.
    pub workers: usize,
    /// The module that traps on demand.
    pub fault_injection: bool,
    /// More fields of the plugin configuration, each with a comma before it; or nothing.
    pub plugin_config_extra: String,
    /// More arguments for the engine simulator.
    pub simulator_arguments: Vec<String>,
    /// More arguments for the agent.
    pub agent_arguments: Vec<String>,
    /// More arguments for Envoy.
    pub envoy_arguments: Vec<String>,
    /// Changes the bootstrap template before it is filled in.
    pub edit_template: Option<Edit>,
    /// The listener is in a file of its own, so that [`Stack::push_listener`] can change it.
    pub listener_file: bool,
    /// Endpoints beside the simulated ones.
    pub other_endpoints: Vec<Endpoint>,
    /// Whether there is an agent.
    pub agent: AgentPresence,
    /// The agent follows the engines' KV events and knows their model's tokenizer and template.
    pub precise: bool,
    /// Labels of the simulated engines, in their order; engines beyond have none.
    pub labels: Vec<Labels>,
    /// More documents for the agent, each after a line `---`; or nothing.
    pub documents: String,
}

impl Setup {
    /// `replicas` engines behind `workers` Envoy workers.
    #[must_use]
    pub fn new(replicas: usize, workers: usize) -> Self {
        Self {
            replicas,
            workers,
            fault_injection: false,
            plugin_config_extra: String::new(),
            simulator_arguments: Vec::new(),
            agent_arguments: Vec::new(),
            envoy_arguments: Vec::new(),
            edit_template: None,
            listener_file: false,
            other_endpoints: Vec::new(),
            agent: AgentPresence::Running,
            precise: false,
            labels: Vec::new(),
            documents: String::new(),
        }
    }

    /// The same with engines that publish KV events, and an agent that follows them.
    #[must_use]
    pub fn precise(mut self) -> Self {
        self.precise = true;
        self.simulator(&["--kv-events"])
    }

    /// The same with these labels for the next simulated engine.
    #[must_use]
    pub fn label(mut self, labels: &[(&str, &str)]) -> Self {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        self.labels.push(labels.iter().map(owned).collect());
        self
    }

    /// The same with this YAML (one or more documents) for the agent.
    #[must_use]
    pub fn document(mut self, yaml: &str) -> Self {
        self.documents.push_str("---\n");
        self.documents.push_str(yaml.trim_start_matches('\n'));
        self.documents.push('\n');
        self
    }

    /// The agent's documents beside the endpoints.
    fn all_documents(&self) -> String {
        let precise = if self.precise {
            precise_documents(MODEL, Path::new(MODEL_FOLDER), &[])
        } else {
            String::new()
        };
        precise + &self.documents
    }

    /// The same with these arguments for the simulator, such as `["--time-scale", "100"]`.
    #[must_use]
    pub fn simulator(mut self, arguments: &[&str]) -> Self {
        self.simulator_arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// The same with these arguments for the agent.
    #[must_use]
    pub fn agent(mut self, arguments: &[&str]) -> Self {
        self.agent_arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// The same with the bootstrap template changed by `edit`.
    #[must_use]
    pub fn template(mut self, edit: impl Fn(String) -> String + Send + Sync + 'static) -> Self {
        self.edit_template = Some(Box::new(edit));
        self
    }
}

/// Labels of an endpoint.
pub type Labels = Vec<(String, String)>;

/// An endpoint, as the agent's YAML has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its name, which stays the same when it moves to another address.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its labels.
    pub labels: Labels,
}

impl Endpoint {
    /// An endpoint without labels.
    #[must_use]
    pub fn new(name: impl Into<String>, address: SocketAddr) -> Self {
        Self { name: name.into(), address, labels: Labels::new() }
    }
}

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
        let endpoints: Vec<Endpoint> = simulated(&simulator, &setup.labels)
            .into_iter()
            .chain(setup.other_endpoints.clone())
            .collect();
        if setup.precise {
            write_model(&programs, &dir.path().join(MODEL_FOLDER))?;
        }
        write_endpoints(dir.path(), &endpoints, &setup.all_documents())?;
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
        simulated(&self.simulator, &self.setup.labels)
    }

    /// Gives the agent another list of endpoints; returns at once.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_endpoints(&self, endpoints: &[Endpoint]) -> Result<()> {
        write_endpoints(self.dir(), endpoints, &self.setup.all_documents())
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

    /// Gives Envoy a changed listener, if the setup has [`Setup::listener_file`]; returns at once. `edit` gets
    /// the listener's file as it now is.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn push_listener(&self, edit: impl FnOnce(String) -> String) -> Result<()> {
        listener_file::push(self.dir(), edit)
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

fn write_model(programs: &Programs, folder: &Path) -> Result<()> {
    let mut command = std::process::Command::new(&programs.engine_sim);
    let output = command.arg("model-folder").arg(folder).output()?;
    if !output.status.success() {
        bail!("engine-sim model-folder: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn simulated(simulator: &Simulator, labels: &[Labels]) -> Vec<Endpoint> {
    let named = |(index, &address)| {
        let labels: Labels = labels.get(index).cloned().unwrap_or_default();
        // A decode engine is reached through its sidecar; a prefill engine is bare.
        let decodes = labels.iter().any(|(key, value)| key == "llm-d.ai/role" && value == "decode");
        let sidecar = simulator.sidecars.get(index).copied().filter(|_| decodes);
        let address = sidecar.unwrap_or(address);
        Endpoint { name: format!("engine-{index}"), address, labels }
    };
    simulator.replicas.iter().enumerate().map(named).collect()
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
    let mut template = std::fs::read_to_string(&programs.template)?;
    if let Some(edit) = &setup.edit_template {
        let edited = edit(template.clone());
        if edited == template {
            bail!("the edit of the bootstrap template changed nothing");
        }
        template = edited;
    }
    let extra = format!(r#", "debug_path": "{DEBUG_PATH}"{}"#, setup.plugin_config_extra);
    let values = Bootstrap {
        wasm: &programs.wasm,
        listen_port: ports.listen,
        admin_port: ports.admin,
        agent: SocketAddr::from(([127, 0, 0, 1], ports.agent)),
        // Where `Agent::start` has the endpoints written.
        eds_dir: &shared.join("eds"),
        pool: POOL,
        access_log: &dir.join(access_log::FILE),
        plugin_config_extra: &extra,
    };
    let mut bootstrap = render(&template, &values)?;
    if setup.listener_file {
        bootstrap = listener_file::split_off(&bootstrap, dir)?;
    }
    let path = dir.join("envoy.yaml");
    std::fs::write(&path, bootstrap)?;
    // Else a record reaches the access log's file only after ten seconds.
    let mut arguments = vec!["--file-flush-interval-msec".to_owned(), "20".to_owned()];
    arguments.extend(setup.envoy_arguments.iter().cloned());
    let workers = setup.workers;
    Ok(Envoy::run(programs, &path, ports, workers, &arguments, dir, Session::Shared).await?)
}

/// Writes the agent's YAML in the run folder `dir`.
fn write_endpoints(dir: &Path, endpoints: &[Endpoint], documents: &str) -> Result<()> {
    let mut yaml = String::from("endpoints:");
    if endpoints.is_empty() {
        yaml.push_str(" []");
    }
    for Endpoint { name, address, labels } in endpoints {
        let (ip, port) = (address.ip(), address.port());
        write!(yaml, "\n- {{ name: {name}, address: \"{ip}\", port: {port}, labels: {{")?;
        for (key, value) in labels {
            write!(yaml, " {key:?}: {value:?},")?;
        }
        yaml.push_str(" } }");
    }
    yaml.push('\n');
    yaml.push_str(documents);
    // By a rename, so that the agent never reads half a file.
    let half = dir.join("endpoints.yaml.new");
    std::fs::write(&half, yaml)?;
    std::fs::rename(&half, dir.join("endpoints.yaml"))?;
    Ok(())
}
