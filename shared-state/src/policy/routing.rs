//! Pools, routes, model names and objectives: Gateway API's and llm-d's objects, resolved.

use serde::{Deserialize, Serialize};

/// An `InferencePool`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// `namespace/name`; an endpoint's record lists the pools it is in by this.
    pub name: String,
    /// Envoy's cluster of it.
    pub cluster: String,
    /// `failureMode: FailOpen`: without a table Envoy's own balancing takes over.
    pub fail_open: bool,
    /// Index of its scheduler.
    pub scheduler: usize,
}

/// All routes of all `HTTPRoute`s.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Routing {
    /// In the order of precedence (Gateway API): the first that matches counts.
    pub matches: Vec<RouteMatch>,
    /// What they lead to.
    pub rules: Vec<RouteRule>,
    /// Pool of a request if there are no routes at all: index.
    pub default_pool: Option<usize>,
}

/// One `matches` entry of a rule, with its route's host names.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RouteMatch {
    /// Host names, `*.` in front stands for one or more labels; empty: any.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Path.
    #[serde(default)]
    pub path: PathMatch,
    /// All of these headers; names in lower case.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// All of these query parameters.
    #[serde(default)]
    pub query: Vec<(String, String)>,
    /// Method.
    #[serde(default)]
    pub method: Option<String>,
    /// Index of the rule.
    pub rule: usize,
}

/// How a path is matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathMatch {
    /// The whole path.
    Exact(String),
    /// By whole segments; `/` matches everything.
    Prefix(String),
}

impl Default for PathMatch {
    fn default() -> Self {
        Self::Prefix("/".into())
    }
}

/// Where a rule sends its requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RouteRule {
    /// `namespace/name/index`; conversations are spread over its backends by this, too.
    pub name: String,
    /// Backends.
    pub backends: Vec<Backend>,
    /// How a request's backend is chosen.
    #[serde(default)]
    pub split: Split,
    /// `timeouts.request` in ms; 0 = none; `None` = not said.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Request headers to set, in order (`RequestHeaderModifier`); names in lower case.
    #[serde(default)]
    pub set_headers: Vec<(String, String)>,
    /// Request headers to add.
    #[serde(default)]
    pub add_headers: Vec<(String, String)>,
    /// Request headers to remove.
    #[serde(default)]
    pub remove_headers: Vec<String>,
}

/// One backend of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// Index of the pool; `None` = it does not exist, and its share of requests gets a 500 (Gateway API).
    pub pool: Option<usize>,
    /// Its name as written, for messages.
    pub name: String,
    /// Its weight.
    pub weight: u32,
}

/// How a weighted choice is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Split {
    /// By conversation: weighted rendezvous hashing, so that a conversation keeps its side.
    #[default]
    Conversation,
    /// By chance, each request anew.
    Random,
}

/// A model mapping ConfigMap: a base model and its adapters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelMapping {
    /// What becomes `X-Gateway-Base-Model-Name`.
    pub base_model: String,
    /// Names that stand for it besides its own.
    pub adapters: Vec<String>,
}

/// An `InferenceModelRewrite`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRewrite {
    /// Its name, `namespace/name`.
    pub name: String,
    /// Index of the pool that it is about; `None` = any (there is only one pool, or none).
    pub pool: Option<usize>,
    /// Its rules, in order.
    pub rules: Vec<RewriteRule>,
    /// How a target is chosen.
    #[serde(default)]
    pub split: Split,
}

/// One rule of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewriteRule {
    /// Model names that it matches exactly.
    pub models: Vec<String>,
    /// It has no `matches` at all: it matches any model that no other rule matches exactly.
    pub generic: bool,
    /// What the name becomes.
    pub targets: Vec<RewriteTarget>,
}

/// A model name with its share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewriteTarget {
    /// The name.
    pub model: String,
    /// Its weight. If some targets have one, those without are never chosen; if none has, all are equal.
    pub weight: Option<u32>,
}

/// An `InferenceObjective`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// Its object's name, which the objective header names.
    pub name: String,
    /// Index of the pool that it is about; `None` = any.
    pub pool: Option<usize>,
    /// `spec.priority`; 0 if not given.
    pub priority: i32,
}
