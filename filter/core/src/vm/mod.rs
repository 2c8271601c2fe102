//! One VM among several that share an Envoy: how its replica is kept current and what it tells the
//! others. All of it runs on the [`SharedStore`] that is passed in; no host, no clock.

mod applier;
mod ask;
mod belief;
mod choose;
mod expectations;
mod flow;
mod follower;
mod intent;
mod lease;
mod message;
mod parcel;
mod prompt;
mod publisher;
mod request;
mod room;
mod row_slot;
mod shares;
mod state;
mod store;
mod tenant_status;
mod told;

#[cfg(test)]
mod tests;

pub use applier::{ExpectationCounts, PageOutcome};
pub use ask::{Ask, Choice};
pub use belief::{Belief, BeliefKind};
pub use flow::{OrderTo, pool_key};
pub use follower::Follower;
pub use message::Message;
pub use parcel::{Parcel, messages};
pub use prompt::{Prompt, PromptSource};
pub use request::Routed;
pub use state::{Settings, VmState};
pub use store::{Cas, CasMismatch, MemoryStore, SharedStore};

use applier::Applier;
use flow::Flow;
#[cfg(test)]
use follower::SyncOutcome;
use intent::{Intent, IntentRing};
use lease::Lease;
use row_slot::RowSlot;
use store::{Keys, ROW_SLOTS, create_keys};
use told::Told;
