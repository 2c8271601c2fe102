//! Tenants on a real Envoy: who they are, what they may use, how they wait, and what is written down of it.
#![cfg(feature = "e2e")]

mod access_log;
mod anonymous;
mod bed;
mod budget_traps;
mod budgets;
mod deadlines;
mod identity;
mod jwt;
mod queues;
mod seeing;
mod shares;
mod token;
mod traps;
mod two_envoys;
mod usage;
