//! Tenants on a real Envoy: who they are, what they may use, how they wait, and what is written down of it.
#![cfg(feature = "e2e")]

mod bed;
mod budgets;
mod identity;
mod queues;
mod seeing;
mod shares;
mod traps;
mod usage;
