//! Flow control: who may go to a pool's endpoints, and when, over all workers of an Envoy.
//!
//! ```text
//!  Worker (each VM)                                   Dispatcher (the applier's VM)
//!    acquire ── Report::Acquire ────────────────────▶   budgets: all at once, or Refuse
//!    parked: TTLs are watched here                      Gate of the pool: bands ▸ flows ▸ requests
//!    Event::Granted ◀──────────────── Order::Grant ──   saturation < ceiling: next by fairness and ordering
//!    release ─── Report::Release ───────────────────▶   shares and budgets corrected, the next one goes
//! ```
//! - [`protocol`]: what they say to each other;
//! - [`policy`]: when a pool is full, who goes next;
//! - [`dispatcher`]: bands, what is in flight, budgets, leases; its memory is lost with its VM;
//! - [`worker`]: what waits and what is held in one VM. Workers own the truth: a new dispatcher learns all from them.
//!
//! A grant goes out the moment that something frees capacity: a release, a cancel, new metrics, new endpoints. Ticks only
//! serve what time does: heartbeats that stay away, metrics that become stale, TTLs, pauses of eviction.

pub mod dispatcher;
pub mod policy;
pub mod protocol;
pub mod worker;

#[cfg(test)]
pub(crate) mod tests;
