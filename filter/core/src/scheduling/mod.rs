//! Which endpoint gets a request: filter, score, pick.
//!
//! llm-d's scheduling by the compiled configuration, formula by formula, on fresher inputs: the queue counts what
//! was picked since the last scrape, over all workers, and equal scores go to the endpoint with the least
//! uncached work in flight.
//!
//! - [`schedule()`]: the profile handler: one profile, one by header, or decode, prefill and encode;
//! - `filter`, `score`: the plugins, over [`Candidate`]s in a `Situation`;
//! - [`PoolStates`]: what picks leave behind in each pool, for plugins that remember.

mod candidate;
mod decider;
mod decision;
mod filter;
mod picker;
mod prefix_affinity;
mod profile;
mod saturation;
mod schedule;
mod score;
mod session;
mod state;
mod subset;
#[cfg(test)]
mod tests;
mod tokens_in_flight;

use candidate::Situation;
pub(crate) use candidate::chance;
pub use candidate::{Candidate, Headers, Request};
pub use decider::runs_elsewhere;
pub use decision::{
    DATA_PARALLEL_HEADER, Decision, Disaggregation, ENCODE_HEADER, MAX_DESTINATIONS,
    PREFILL_HEADER, PickReason, ProfilePick, SchedulingError, SessionHeader,
};
pub use schedule::{schedule, scores};
pub use session::{SessionIds, SessionTable, agent_of, session_of, session_token};
pub use state::{PoolStates, SchedulerState};
pub use subset::Subset;
pub use tokens_in_flight::{output_tokens, tokens_in_flight};
