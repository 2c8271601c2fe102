//! Simulated vLLM replicas for tests and the demo.
#![forbid(unsafe_code)]
pub mod engine;
