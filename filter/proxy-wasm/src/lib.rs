//! The module that Envoy loads. It only translates: callbacks to events of the core, the core's steps to
//! host calls. [`host`] is the only place that knows the SDK's host calls.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(not(feature = "fault-injection"), deny(clippy::panic))]

mod counts;
mod edits;
mod faults;
mod host;
mod last_words;
mod metrics;
mod request_stats;
mod root;
mod runtime;
mod stream;
mod turns;
mod warm_up;
mod watchdog;

use proxy_wasm::types::LogLevel;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    last_words::install();
    proxy_wasm::set_root_context(|id| Box::new(root::Root::new(id)));
}}
