//! What the filter and the agent must agree on, byte for byte.
//!
//! - [`prefix`]: how a prompt becomes a chain of block hashes;
//! - [`endpoint`]: what both sides know of an endpoint and its load;
//! - [`signals`]: what an engine says of adapters and of metrics that the configuration names;
//! - [`stream`]: pages that the agent sends to Envoy (snapshot, then deltas);
//! - [`policy`]: the compiled configuration, for the filter to decide by;
//! - [`usage_record`]: one finished request, for the ledger;
//! - [`tenant_status`]: how an Envoy's budgets and queues stand, for the agent's page and metrics;
//! - [`frame`]: delta frames in Envoy's shared data, read by every VM;
//! - [`checkpoint`]: what a VM that fell behind rebuilds its table from;
//! - [`wire`]: bounds-checked little-endian reading and writing.
//!
//! Nothing here does I/O, reads a clock or knows a host.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
// Both ends read bytes that come from outside.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub mod block;
pub mod checkpoint;
pub mod endpoint;
pub mod frame;
pub mod model;
pub mod policy;
pub mod prefix;
pub mod signals;
pub mod stream;
pub mod table_op;
pub mod tenant_status;
pub mod usage_record;
pub mod wire;

/// Marks a unit test that runs natively and, compiled to wasm32, under Node.
#[cfg(test)]
macro_rules! tests {
    ($($(#[$meta:meta])* fn $name:ident() $body:block)+) => {
        $(
            $(#[$meta])*
            #[cfg_attr(target_arch = "wasm32", wasm_bindgen_test::wasm_bindgen_test)]
            #[cfg_attr(not(target_arch = "wasm32"), test)]
            fn $name() $body
        )+
    };
}
#[cfg(test)]
pub(crate) use tests;
