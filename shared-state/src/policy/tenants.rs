//! A `TenantQuota`, compiled: who a tenant is, what it may use, and how it is billed.

use serde::{Deserialize, Serialize};

/// A tenant. What is not given is left out: it is there a thousand times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// The object's name; `anonymous` is whoever shows no key.
    pub name: String,
    /// SHA-256 of its API keys.
    pub key_hashes: Vec<[u8; 32]>,
    /// The JWT claim that names it, as Envoy's `jwt_authn` left it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt: Option<JwtClaim>,
    /// The engine does not get its credential.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub strip_key: bool,
    /// Its fairness ID; its name if none is given.
    pub fairness_id: String,
    /// Name of its objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    /// `x-tenant-tier`, for routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// By model, the most specific first; at most one is `*`.
    pub limits: Vec<Limit>,
    /// How requests that are cut off are billed.
    pub accounting: Accounting,
}

/// Who a JWT says it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JwtClaim {
    /// `iss`.
    pub issuer: String,
    /// Name of the claim.
    pub claim: String,
    /// Its value for this tenant.
    pub value: String,
}

/// What a tenant may use of a model. `None`: without limit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Limit {
    /// The client's model name (before any rewrite); `*`: any other.
    pub model: String,
    /// Requests a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpm: Option<u64>,
    /// Input and output tokens a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<u64>,
    /// Requests at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
    /// Reserved tokens at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inflight_tokens: Option<u64>,
    /// Output tokens reserved for a request that names no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens_default: Option<u64>,
    /// Output tokens reserved at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens_cap: Option<u64>,
}

/// `accounting.streamDisconnect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Accounting {
    /// `bill_generated`: of a stream that is cut off, the prompt and the chunks that were seen.
    #[default]
    Generated,
    /// `bill_exact`: the engine is asked to tell usage with each chunk.
    Exact,
}
