//! Which endpoint gets a request: filter, score, pick.
//!
//! This is llm-d's default profile (prefix-cache 3, queue 2, KV utilization 2, max-score picker), formula by
//! formula, on fresher inputs: the queue counts what was picked since the last scrape, over all
//! workers, and equal scores go to the endpoint with the least uncached work in flight.

mod candidate;
mod pick;
mod scorer;

pub use candidate::Candidate;
pub use pick::{MAX_DESTINATIONS, Pick, PickReason, pick};
pub use scorer::{Profile, ScorerKind};
