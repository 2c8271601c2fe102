//! How a stack is started: what a test asks for.

use std::net::SocketAddr;

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
    /// The listener is in a file of its own, so that [`push_listener`](crate::Stack::push_listener) can change it.
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
