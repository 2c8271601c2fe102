//! Tenants' budgets: what a request reserves before it is sent on, and what it is charged when it has ended.
//!
//! ```text
//! Budget::of(tenant, model, demand) ─ asks ─▶ Buckets::take_all ─▶ Ok(levels)    ─ headers of the answer
//!                                                              └─▶ Err(Refusal) ─ 429, or 400 if it never fits
//! its end ─ settlement ─ charged tokens ──▶ Buckets::settle      never sent on ─▶ Buckets::release
//! ```
//! One [`Buckets`] holds the buckets of all tenants: whoever owns it is the only one who lets requests in, so that no
//! limit is exceeded by concurrency. It knows no tenants and no configuration: an [`Ask`] says its bucket's limit, so a
//! new configuration needs no step of its own.

mod bucket;
mod bucket_id;
mod buckets;
mod budget;
mod reply;
mod settlement;
mod wire;

#[cfg(test)]
mod tests;

pub use bucket::{Bucket, Why};
pub use bucket_id::{BucketId, Kind};
pub use buckets::{Ask, Buckets, Level, MAX_BUCKETS, Refusal};
pub use budget::{Budget, DEFAULT_OUTPUT_TOKENS, Demand, bucket};
pub use reply::{rate_limit_headers, refusal_reply};
pub use settlement::{Charged, Estimate, settlement};
