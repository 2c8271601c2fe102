//! What can be wrong with events, on command.

use serde::Serialize;

/// Faults of one replica's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct EventFaults {
    /// So many of the next batches are not sent, as where a subscriber's queue is full. They can be
    /// replayed.
    pub drop: u64,
    /// So many of the next batches are neither sent nor kept: a replay has a hole there.
    pub lose: u64,
    /// Requests for a replay are read and never answered.
    pub replay_silent: bool,
}

/// What becomes of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Sent and kept for replay.
    Sent,
    /// Kept for replay only.
    Dropped,
    /// Nobody ever sees it.
    Lost,
}

impl EventFaults {
    /// The fate of the next batch, counted down.
    pub fn take(&mut self) -> Fate {
        for (left, fate) in [(&mut self.drop, Fate::Dropped), (&mut self.lose, Fate::Lost)] {
            if let Some(fewer) = left.checked_sub(1) {
                *left = fewer;
                return fate;
            }
        }
        Fate::Sent
    }
}
