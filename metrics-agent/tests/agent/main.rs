//! The agent as a whole: real sockets, real files, engines that misbehave on command.
//!
//! Nothing here sleeps to wait for something: readers poll until a condition holds, under one
//! generous time limit.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at a surprise"
)]

mod engine;
mod engines;
mod faults;
mod hosts;
mod http;
mod kv_events;
mod kv_publisher;
mod ledger;
mod policy;
mod program;
mod reader;
mod reload;
mod run;
mod server;
mod stream;
mod tenants;
