//! Compares, request by request, what the filter believes that the picked engine holds with what the
//! engine holds.
//!
//! - [`workload`]: the conversations; [`replay`] sends them over [`client`] and notes the answers;
//! - [`bed`]: engines, agent and Envoy;
//! - [`records`]: the filter's side from Envoy's access log, the engines' from the simulator;
//! - [`visibility`]: how soon workers see events, found by [`probes`];
//! - [`verdict`]: the figures and their bars; [`report`] writes them.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod bed;
pub mod client;
pub mod probes;
pub mod records;
pub mod replay;
pub mod report;
pub mod verdict;
pub mod visibility;
pub mod workload;
