//! What breaks on purpose: VMs that trap, configurations that change, requests meant to upset the filter.
#![cfg(feature = "e2e")]

mod applier;
mod held_streams;
mod hostile_answers;
mod hostile_requests;
mod poison;
mod pushes;
mod traps;
