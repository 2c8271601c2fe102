//! Starts simulated engines, the agent and a real Envoy, and measures what the routing is worth.
//!
//! - [`processes`]: start and stop the programs (also used by the end-to-end tests);
//! - [`workload`]: conversations whose prompts have an exact number of tokens;
//! - [`load`]: the closed-loop load generator;
//! - [`cases`]: what is compared, and how;
//! - [`report`]: table, JSON and page;
//! - [`replay`]: a recorded trace, with Envoy's own policies and with Warmroute;
//! - [`mod@bench`]: what it takes to know what engines hold.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod bench;
pub mod cases;
pub mod load;
pub mod processes;
pub mod progress;
pub mod replay;
pub mod report;
pub mod workload;
