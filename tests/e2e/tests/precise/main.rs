//! What engines tell of their caches is what requests are routed by: exactly, and never by what was true once.
#![cfg(feature = "e2e")]

mod apart;
mod bed;
mod captured;
mod captured_engine;
mod siblings;
mod stale;
mod turns;
