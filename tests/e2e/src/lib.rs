//! What the end-to-end tests on a real Envoy share.
//!
//! A test starts a [`Stack`] from a [`Setup`]: simulated engines, the agent, Envoy with the wasm
//! filter. It sends requests with [`client`], and awaits what it expects in the filter's own state, the
//! engines' records and Envoy's access log. Everything ends with the `Stack`; its logs stay where
//! a failing test says.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod access_log;
pub mod agent_files;
pub mod background_load;
mod bootstrap;
pub mod client;
pub mod counting_engine;
pub mod echo_engine;
pub mod h2_client;
pub mod listener_file;
pub mod prompts;
pub mod raw_client;
mod run_dir;
pub mod scripted_engine;
pub mod setup;
pub mod stack;
pub mod state;
pub mod workers;

pub use setup::{AgentPresence, Endpoint, Setup};
pub use stack::{MODEL, Stack};
