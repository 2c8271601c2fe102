//! llm-d's configuration, as YAML through the agent, decides where requests go on a real Envoy.
#![cfg(feature = "e2e")]

mod bed;
mod control;
mod documented;
mod engines;
mod filters;
mod former_names;
mod handlers;
mod layers;
mod metric_names;
mod names;
mod names_on_the_wire;
mod parsers;
mod producers;
mod reloads;
mod saturation;
mod scorers;
mod splits;
mod timeouts;
mod whole;
