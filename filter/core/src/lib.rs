//! Every decision of the filter, free of any host: bytes, clock and randomness come in, effects go out.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
// What clients and engines send must never trap the VM.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::string_slice
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::string_slice))]

mod base64;
pub mod config;
mod content_encoding;
pub mod debug;
pub mod exchange;
pub mod flow_control;
pub mod identity;
pub mod inflight;
pub mod json;
pub mod ledger;
pub mod prefix_table;
pub mod quota;
pub mod replica;
pub mod request;
pub mod response;
pub mod routing;
pub mod scheduling;
pub mod telemetry;
pub mod vm;

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
