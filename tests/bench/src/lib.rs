//! What the filter costs, beside plain Envoy and other routers.
//!
//! - [`workload`]: the cases, and the prompts that they send;
//! - [`stub`]: engines that answer at once, in a process of their own;
//! - [`targets`]: the ways to them, each started on ports of its own;
//! - [`load`]: closed and open loops over raw sockets;
//! - [`rounds`]: all ways in turn, round after round;
//! - [`figures`], [`bars`], [`report`]: medians and ratios, what was to be reached, JSON and page;
//! - [`extras`]: what is no request's latency: decisions, the agent, memory.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod bars;
pub mod cpu;
pub mod extras;
pub mod figures;
pub mod http;
pub mod load;
pub mod plan;
pub mod report;
pub mod rounds;
pub mod stub;
pub mod targets;
pub mod workload;
