//! What becomes of requests, and of what is charged for them, when something ends before its time: the
//! request, the engine, the agent.
#![cfg(feature = "e2e")]

mod agent_away;
mod charged;
mod conversation;
mod endings;
mod engine_killed;
mod every_ending;
mod first_request;
mod settled;
