//! What a request counts as load while it is in flight (`inflight-load-producer`).

use warmroute_shared_state::policy::scheduler::InflightLoad;

/// Tokens that a prompt of so many is expected to be answered with: in proportion, at most what the client asked for
/// and what the configuration caps. A request without a prompt counts nothing.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn output_tokens(load: &InflightLoad, input_tokens: u64, client_max: Option<u64>) -> u64 {
    let estimate = (input_tokens as f64 * load.output_ratio).round() as u64;
    let cap = load.max_estimated_output_tokens.unwrap_or(u64::MAX);
    estimate.min(client_max.unwrap_or(u64::MAX)).min(cap)
}

/// Tokens that a request counts: the uncached ones of its prompt, and, if the configuration says so, those of its
/// answer.
#[must_use]
pub fn tokens_in_flight(
    load: &InflightLoad,
    input_tokens: u64,
    uncached_tokens: u64,
    client_max: Option<u64>,
) -> u64 {
    if !load.add_estimated_output_tokens {
        return uncached_tokens;
    }
    uncached_tokens.saturating_add(output_tokens(load, input_tokens, client_max))
}
