//! What is measured, and for how long.

use std::time::Duration;

use crate::workload::Case;

/// Endpoints of base rows.
pub const ENDPOINTS: usize = 10;
/// Blocks in the index of base rows: the prompts themselves.
pub const ENTRIES: usize = 10_000;
/// Endpoints of the larger rows.
pub const MANY_ENDPOINTS: usize = 256;
/// Blocks in the index of the larger rows.
pub const MANY_ENTRIES: usize = 1_000_000;
/// Connections of all rows.
pub const CONNECTIONS: [usize; 3] = [1, 64, 200];

/// How long everything takes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds of chats and streams.
    pub rounds: usize,
    /// Time of one way's turn in a round.
    pub slice: Duration,
    /// Rounds of the 4 MB prompts.
    pub million_rounds: usize,
    /// Rounds of the larger pools and indices.
    pub larger_rounds: usize,
    /// Time of each of what is measured once: decisions, the agent.
    pub once: Duration,
}

impl Plan {
    /// What `make bench` runs.
    #[must_use]
    pub fn whole() -> Self {
        Self {
            rounds: 5,
            slice: Duration::from_millis(700),
            million_rounds: 2,
            larger_rounds: 5,
            once: Duration::from_secs(8),
        }
    }

    /// To see whether it works; its figures say little.
    #[must_use]
    pub fn short() -> Self {
        Self {
            rounds: 1,
            slice: Duration::from_millis(200),
            million_rounds: 1,
            larger_rounds: 1,
            once: Duration::from_secs(2),
        }
    }

    /// Cases and connections of a round of chats and streams.
    #[must_use]
    pub fn chats() -> Vec<(Case, usize)> {
        let cases = [Case::Small, Case::Large, Case::Stream];
        let base = cases.into_iter().flat_map(|case| CONNECTIONS.map(|count| (case, count)));
        base.chain([(Case::LargeStream, 200)]).collect()
    }
}
