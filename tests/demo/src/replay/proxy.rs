//! Envoy before running engines, with or without Warmroute, started anew for each target.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::{ReplayError, Target};
use crate::processes::{
    Agent, DEBUG_PATH, Envoy, Ports, Programs, Session, Simulator, agreed, first_answer, precise,
    precise_documents, write_configuration,
};

/// Path of chats.
pub(super) const CHATS: &str = "/v1/chat/completions";

const POOL: &str = "default";

/// Envoy, and the agent if there is one; ended in this order.
pub(super) struct Proxy {
    envoy: Envoy,
    _agent: Option<Agent>,
}

impl Proxy {
    /// Starts it in the folder `dir` before the engines, and waits until it serves and, with the
    /// filter, every worker knows all engines. `model` and `folder`: what they serve, and where its
    /// tokenizer is.
    pub(super) async fn start(
        programs: &Programs,
        target: Target,
        engines: &Simulator,
        (model, folder): (&str, &Path),
        workers: usize,
        dir: &Path,
    ) -> Result<Self, ReplayError> {
        // What an earlier run left there may be gone or not.
        let _ = std::fs::remove_dir_all(dir);
        std::fs::create_dir_all(dir)?;
        let ports = Ports::free()?;
        let proxy = if let Some(policy) = target.policy() {
            let path = dir.join("envoy.yaml");
            std::fs::write(&path, plain(ports, &policy, &engines.replicas))?;
            let session = Session::Shared;
            let envoy = Envoy::run(programs, &path, ports, workers, &[], dir, session).await?;
            Self { envoy, _agent: None }
        } else {
            let follows = target == Target::WarmroutePrecise;
            let documents =
                if follows { precise_documents(model, folder, &[]) } else { String::new() };
            write_configuration(dir, &engines.replicas, &documents)?;
            let address = SocketAddr::from(([127, 0, 0, 1], ports.agent));
            let session = Session::Shared;
            let agent = Agent::start(programs, address, dir, POOL, &[], session).await?;
            let extra = format!(r#", "debug_path": "{DEBUG_PATH}""#);
            let envoy = Envoy::start(programs, ports, workers, POOL, &extra, dir, session).await?;
            let all = engines.replicas.len();
            let known = |state: &Value| {
                if follows {
                    precise(state)
                } else {
                    state["endpoints"].as_array().map_or(0, Vec::len)
                }
            };
            let what = "all engines known to every worker";
            agreed(envoy.listen, what, dir, |state| known(state) == all).await?;
            Self { envoy, _agent: Some(agent) }
        };
        first_answer(proxy.listen(), CHATS, model, dir).await?;
        Ok(proxy)
    }

    /// Where clients go.
    pub(super) fn listen(&self) -> SocketAddr {
        self.envoy.listen
    }
}

/// The bootstrap of an Envoy without the filter.
fn plain(ports: Ports, policy: &Value, engines: &[SocketAddr]) -> String {
    let endpoint = |engine: &SocketAddr| {
        let address = json!({"address": engine.ip().to_string(), "port_value": engine.port()});
        json!({"endpoint": {"address": {"socket_address": address}}})
    };
    let endpoints = Value::from_iter(engines.iter().map(endpoint));
    // JSON is YAML.
    include_str!("plain.yaml")
        .replace("${LISTEN_PORT}", &ports.listen.to_string())
        .replace("${ADMIN_PORT}", &ports.admin.to_string())
        .replace("${POLICY}", &policy.to_string())
        .replace("${ENDPOINTS}", &endpoints.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bootstrap_is_filled_in() {
        let ports = Ports { listen: 8_080, admin: 9_901, agent: 7_080 };
        let engines = [SocketAddr::from(([127, 0, 0, 1], 9_101))];
        for policy in Target::ALL.into_iter().filter_map(Target::policy) {
            let text = plain(ports, &policy, &engines);
            assert!(!text.contains("${"), "{text}");
            assert!(text.contains(r#""port_value":9101"#), "{text}");
            assert!(text.contains(&format!("typed_extension_config: {policy}")), "{text}");
        }
    }
}
