//! The plugin types, by llm-d's names: parameters, defaults and limits.
//!
//! [`read`] is the only way in: it refuses an unknown type or parameter and names the nearest one.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A plugin instance as its type reads its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Plugin {
    /// Takes candidates away.
    Filter(Filter),
    /// Scores candidates.
    Scorer(Scorer),
    /// Takes the best.
    Picker(Picker),
}

/// Why a plugin was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginError {
    /// No such type; the nearest known one, if one is near.
    UnknownType {
        /// As written.
        given: String,
        /// The nearest.
        nearest: Option<&'static str>,
    },
    /// A type that Warmroute does not have; what to use instead.
    Unsupported {
        /// The type.
        given: String,
        /// Advice.
        instead: &'static str,
    },
    /// No such parameter; the nearest, if one is near. `at` is its path, like `conditions[0].metric`.
    UnknownParameter {
        /// Path of it.
        at: String,
        /// The nearest.
        nearest: Option<&'static str>,
    },
    /// A value that cannot be.
    Value {
        /// Path of it.
        at: String,
        /// What would be right.
        what: String,
    },
}

/// Reads an instance of `plugin_type` with its `parameters` (`Null` if there are none).
///
/// # Errors
/// If the type or a parameter is unknown, or a value cannot be.
pub fn read(plugin_type: &str, parameters: &Value) -> Result<Plugin, PluginError> {
    let _ = parameters;
    Err(PluginError::UnknownType { given: plugin_type.to_owned(), nearest: None })
}

/// Filters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Filter {
    /// `decode-filter`.
    DecodeRole,
}

/// Scorers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Scorer {
    /// `queue-scorer`.
    Queue,
}

/// Pickers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Picker {
    /// `max-score-picker`.
    MaxScore,
}

/// Deciders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Decider {
    /// `always-disagg-pd-decider`.
    Always,
}

/// Parsers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parser {
    /// `openai-parser`.
    OpenAi,
    /// `anthropic-parser`.
    Anthropic,
    /// `vllmhttp-parser`.
    VllmHttp,
    /// `sglanghttp-parser`.
    SglangHttp,
    /// `passthrough-parser`.
    Passthrough,
}

/// `approx-prefix-cache-producer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PrefixProducer {
    /// Tokens of a prompt that are matched at most; 0 = all.
    pub max_prefix_tokens: u64,
}
