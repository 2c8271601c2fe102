//! The Warmroute agent: discovery, EDS, scrapes, and the stream that Envoy's filter follows.
//!
//! - [`config`]: YAML files into checked configuration, watched while running;
//! - [`scrape`]: engines' `/metrics` into availability, generation and load of each endpoint;
//! - [`publish`]: the stream's table and log, snapshots, order of coming and going, EDS;
//! - [`kv_events`]: what engines tell of their KV caches, followed without a gap;
//! - [`ledger`]: usage records, stored once and added up;
//! - [`serve`]: HTTP over that;
//! - [`fleet`]: the task that ties them; [`board`] and [`metrics`]: what is shown of it;
//! - [`app`], [`cli`], [`check`]: the program.
//!
//! What decides takes data and time as arguments ([`scrape::health`], [`scrape::pace`],
//! [`publish::membership`], [`publish::table`]); sockets, files and clocks are at the edges.

pub mod app;
pub mod board;
pub mod check;
pub mod cli;
pub mod config;
pub mod fleet;
pub mod kv_events;
pub mod kv_index;
pub mod ledger;
pub mod metrics;
pub mod publish;
pub mod scrape;
pub mod serve;
pub mod tenant_status;
pub mod timestamp;
pub mod tokenizer;
