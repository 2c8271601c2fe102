//! Records of finished requests, on their way from a VM to the agent.
//!
//! [`Outbox`] holds them until the agent says that they are stored: each arrives at least once, and the
//! agent stores it once. What a crash can lose stands in `docs/decisions/ledger.md`.

mod backoff;
mod outbox;

#[cfg(test)]
mod tests;

pub use outbox::{Outbox, OutboxCounts, Token};
