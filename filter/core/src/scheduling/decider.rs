//! Deciders: whether a stage runs elsewhere.

use super::{Candidate, Request};
use warmroute_shared_state::policy::plugin::Decider;

/// Whether it does. `decode` is the endpoint that decodes, if it is picked already.
#[must_use]
pub fn runs_elsewhere(
    decider: Decider,
    request: &Request<'_>,
    decode: Option<&Candidate<'_>>,
) -> bool {
    match decider {
        Decider::Always => true,
        Decider::Multimodal => request.multimodal,
        Decider::PrefixBased { non_cached_tokens, prompt_tokens } => {
            let Some(decode) = decode else { return false };
            non_cached_tokens > 0
                && decode.prompt_tokens >= prompt_tokens
                && decode.request_tokens() >= non_cached_tokens
        }
    }
}
