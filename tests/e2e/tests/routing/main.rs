//! Who serves a request, why, and what reaches the engine.
#![cfg(feature = "e2e")]

mod bursts;
mod conversations;
mod cut_bodies;
mod internal_headers;
mod membership;
mod other_paths;
mod ties;
