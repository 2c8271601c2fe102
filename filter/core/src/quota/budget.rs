//! What a request takes of which buckets, by its tenant's limits.

use super::bucket::Why;
use super::bucket_id::{BucketId, Kind};
use super::buckets::{Ask, Refusal};
use warmroute_shared_state::policy::tenants::{Limit, Tenant};

/// Output tokens reserved for a request that names no limit, if its tenant's limit does not say.
pub const DEFAULT_OUTPUT_TOKENS: u64 = 1024;

/// The model of a limit for all that have none of their own.
const ANY_MODEL: &str = "*";

/// How much a request may use at most, as far as can be known before it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Tokens of its prompts, estimated.
    pub input_tokens: u64,
    /// Tokens of an answer at most, if it says.
    pub max_output: Option<u64>,
    /// Answers that it wants: choices times prompts; 0 if nothing is generated.
    pub answers: u64,
}

/// What a request reserves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budget {
    /// Tokens.
    pub reserved: u64,
    /// What is asked of which bucket; none for a tenant without limits for the model.
    pub asks: Vec<Ask>,
}

impl Budget {
    /// Reserves the input and the longest output that the tenant's limits allow for. `model` is the name that the
    /// client gave.
    #[must_use]
    pub fn of(tenant: &Tenant, model: &str, demand: &Demand) -> Self {
        let Some(limit) = limit(tenant, model) else {
            return Self { reserved: reservation(&Limit::default(), demand), asks: Vec::new() };
        };
        let reserved = reservation(limit, demand);
        let ask = |kind: Kind| {
            let amount = match kind {
                Kind::Requests | Kind::Concurrency => 1,
                Kind::Tokens | Kind::InflightTokens => reserved,
            };
            Some(Ask { amount, ..bucket(tenant, limit, kind)? })
        };
        Self { reserved, asks: Kind::ALL.into_iter().filter_map(ask).collect() }
    }

    /// The refusal of a request that can never fit: the owner of the buckets need not be asked.
    #[must_use]
    pub fn too_large(&self) -> Option<Refusal> {
        let ask = *self.asks.iter().find(|ask| ask.amount > ask.limit)?;
        Some(Refusal { ask, why: Why::TooLarge, levels: Vec::new() })
    }
}

/// The bucket of one of a tenant's limits, with an amount of 0; `None`: it does not limit that.
#[must_use]
pub fn bucket(tenant: &Tenant, limit: &Limit, kind: Kind) -> Option<Ask> {
    let most = match kind {
        Kind::Requests => limit.rpm,
        Kind::Tokens => limit.tpm,
        Kind::Concurrency => limit.concurrency,
        Kind::InflightTokens => limit.inflight_tokens,
    };
    let bucket = BucketId::new(&tenant.name, &limit.model, kind);
    most.map(|limit| Ask { bucket, limit, amount: 0 })
}

/// The limit of a model: its own, or else that of all others.
fn limit<'a>(tenant: &'a Tenant, model: &str) -> Option<&'a Limit> {
    let of = |name: &str| tenant.limits.iter().find(|limit| limit.model == name);
    of(model).or_else(|| of(ANY_MODEL))
}

/// `input + min(max output or default, cap)`; the output of all answers counts.
fn reservation(limit: &Limit, demand: &Demand) -> u64 {
    let default = limit.max_completion_tokens_default.unwrap_or(DEFAULT_OUTPUT_TOKENS);
    let cap = limit.max_completion_tokens_cap.unwrap_or(u64::MAX);
    let output = demand.max_output.unwrap_or(default).min(cap).saturating_mul(demand.answers);
    demand.input_tokens.saturating_add(output)
}
