//! Where a request goes and under what name, before any endpoint is picked: pool, model name, priority.
//!
//! Pure functions over the compiled configuration ([`Policy`](warmroute_shared_state::policy::Policy)). A weighted
//! choice is made by conversation ([`Chooser`]), so that a chat never changes sides.

mod control;
mod conversation;
mod model_names;
mod route;
mod split;

pub use control::{Control, DEFAULT_FAIRNESS_ID, whole_ms};
pub use conversation::conversation_of;
pub use model_names::{Rewritten, base_model, rewrite};
pub use route::{Destination, RouteRequest, Routed, route};
pub use split::Chooser;
