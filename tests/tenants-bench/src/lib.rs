//! Measures on a real Envoy with four workers what tenants get.
//!
//! - [`bed`]: tenants, queues and prompts;
//! - [`shares`]: two tenants that both push as hard as they can;
//! - [`budget`]: many calls at once on a budget for few;
//! - [`ledger`]: mixed requests, and what the ledger has of them;
//! - [`interactive`]: an urgent tenant's requests behind thousands of another's;
//! - [`leaving`]: requests that wait until their clients leave;
//! - [`faults`]: traps and pushed listeners under saturation;
//! - [`report`]: the figures and what misses its bar; [`page`](mod@page) shows them.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod bed;
pub mod budget;
pub mod faults;
pub mod interactive;
pub mod leaving;
pub mod ledger;
pub mod page;
pub mod report;
pub mod shares;
