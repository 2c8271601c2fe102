//! What the filter does for each request, part by part: timed natively and in V8, and counted in an interpreter's fuel.
//!
//! The same [`Case`]s run in three places. `src/main.rs` times them natively; `v8.mjs` times the wasm build under
//! Node with the flags of Envoy's V8; `tests/budgets.rs` runs it in an interpreter that counts instructions and
//! holds each case to a budget, so that `make test` notices what has become slower on any machine, under any load.
#![deny(missing_docs)]

mod bodies;
mod cases;
#[cfg(target_arch = "wasm32")]
mod wasm;

pub use cases::{Case, NAMES};
