//! Many workers, many Envoys, many endpoints, many prompts.
#![cfg(feature = "e2e")]

mod endpoints;
mod envoys;
mod memory;
mod worker_count;
