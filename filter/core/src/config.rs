//! The plugin configuration: JSON inside Envoy's own configuration.

use crate::vm::Settings;
use core::fmt;
use serde::Deserialize;

/// What to do with requests before the agent was ever heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum FailureMode {
    /// 503.
    #[default]
    FailClose,
    /// Send them on without a pick: Envoy's fallback policy chooses.
    FailOpen,
}

/// The configuration, checked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginConfig {
    /// Name of the pool, which is also that of Envoy's cluster.
    pub pool: String,
    /// Envoy's cluster of the agent.
    #[serde(default = "default_agent_cluster")]
    pub agent_cluster: String,
    /// Before the agent was ever heard.
    #[serde(default)]
    pub failure_mode: FailureMode,
    /// Larger bodies are refused (413). Envoy's own limits must be above it.
    #[serde(default = "default_max_body_bytes")]
    pub max_body_bytes: usize,
    /// Bodies on their way may hold so much in each worker, all together; more get 503.
    #[serde(default = "default_max_unfinished_bytes")]
    pub max_unfinished_bytes: usize,
    /// Endpoints beyond this are refused, and counted.
    #[serde(default = "default_max_endpoints")]
    pub max_endpoints: usize,
    /// Control headers (objective, fairness ID, service levels, subset) of requests count: an outer gateway set
    /// them. Else they are dropped.
    #[serde(default, alias = "trustControlHeaders")]
    pub trust_control_headers: bool,
    /// Header into which `jwt_authn` forwards a token's claims. Only if it does: clients could send it, else. Without
    /// it the claims are looked for in that filter's metadata, under `jwt_payload`.
    #[serde(default)]
    pub jwt_payload_header: Option<String>,
    /// Each finished request is told to the agent, for its ledger and its metrics.
    #[serde(default = "default_true")]
    pub usage_records: bool,
    /// Path that answers with the filter's own state as JSON; none by default.
    #[serde(default)]
    pub debug_path: Option<String>,
    /// The prefix table.
    #[serde(default)]
    pub index: IndexConfig,
}

/// Bounds of the prefix table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexConfig {
    /// Blocks (of 128 bytes of prompt) held at most, over all endpoints. A million need about 40 MB a VM.
    #[serde(default = "default_max_blocks")]
    pub max_blocks: usize,
}

impl Default for IndexConfig {
    fn default() -> Self {
        Self { max_blocks: default_max_blocks() }
    }
}

fn default_true() -> bool {
    true
}

fn default_agent_cluster() -> String {
    "warmroute-agent".into()
}

fn default_max_body_bytes() -> usize {
    16 << 20
}

fn default_max_unfinished_bytes() -> usize {
    128 << 20
}

fn default_max_endpoints() -> usize {
    Settings::default().max_endpoints
}

fn default_max_blocks() -> usize {
    Settings::default().max_blocks
}

/// Why a configuration was refused. The last good one stays in force.
#[derive(Debug)]
pub enum ConfigError {
    /// Not the JSON that is expected; the message says where.
    Json(serde_json::Error),
    /// A value that cannot work.
    Value {
        /// Which field.
        field: &'static str,
        /// What is wrong and what would be right.
        what: &'static str,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "plugin configuration: {error}"),
            Self::Value { field, what } => write!(f, "plugin configuration: {field}: {what}"),
        }
    }
}

impl core::error::Error for ConfigError {}

impl PluginConfig {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// If it is no JSON, has an unknown or missing field, or a value that cannot work.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        let config: Self = serde_json::from_slice(bytes).map_err(ConfigError::Json)?;
        let wrong = |field, what| Err(ConfigError::Value { field, what });
        if config.pool.is_empty() {
            return wrong("pool", "must name the pool");
        }
        if config.agent_cluster.is_empty() {
            return wrong("agent_cluster", "must name Envoy's cluster of the agent");
        }
        if config.max_body_bytes < 1024 || config.max_body_bytes > 128 << 20 {
            return wrong("max_body_bytes", "must be from 1024 to 134217728");
        }
        // Decoded text may take four times as much while it grows, and V8 gives a VM 1 GiB.
        if config.max_unfinished_bytes > 128 << 20 {
            return wrong("max_unfinished_bytes", "must be at most 134217728");
        }
        if config.max_unfinished_bytes < config.max_body_bytes {
            return wrong("max_unfinished_bytes", "must be at least max_body_bytes");
        }
        if config.max_endpoints == 0 || config.max_endpoints > 256 {
            return wrong("max_endpoints", "must be from 1 to 256");
        }
        if config.index.max_blocks < 1000 || config.index.max_blocks > 8_000_000 {
            return wrong("index.max_blocks", "must be from 1000 to 8000000");
        }
        if config.debug_path.as_ref().is_some_and(|path| !path.starts_with('/')) {
            return wrong("debug_path", "must start with /");
        }
        Ok(config)
    }

    /// Sizes for the VM's state.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings { max_endpoints: self.max_endpoints, max_blocks: self.index.max_blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn only_the_pool_is_required() {
            let config = PluginConfig::parse(br#"{"pool":"p"}"#).unwrap();
            assert_eq!(config.agent_cluster, "warmroute-agent");
            assert_eq!(config.failure_mode, FailureMode::FailClose);
            assert_eq!(config.max_body_bytes, 16_777_216);
            assert_eq!((config.max_endpoints, config.index.max_blocks), (256, 1_500_000));
            assert_eq!(config.debug_path, None);
        }

        fn what_cannot_work_is_refused_and_named() {
            for (json, says) in [
                ("", "line 1"),
                ("{}", "pool"),
                (r#"{"pool":""}"#, "pool"),
                (r#"{"pool":"p","max_body":1}"#, "max_body"),
                ("{\"pool\":\"p\",\n\"failure_mode\":\"open\"}", "line 2"),
                (r#"{"pool":"p","max_body_bytes":-1}"#, "invalid value"),
                (r#"{"pool":"p","max_body_bytes":10}"#, "max_body_bytes"),
                (r#"{"pool":"p","max_unfinished_bytes":1000000}"#, "max_unfinished_bytes"),
                (r#"{"pool":"p","max_endpoints":257}"#, "max_endpoints"),
                (r#"{"pool":"p","index":{"max_blocks":1}}"#, "index.max_blocks"),
                (r#"{"pool":"p","debug_path":"x"}"#, "debug_path"),
            ] {
                let error = PluginConfig::parse(json.as_bytes()).unwrap_err().to_string();
                assert!(error.contains(says), "{json}: {error}");
            }
        }
    }
}
