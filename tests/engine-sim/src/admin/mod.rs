//! The operator's port: faults, state, more and fewer replicas.

pub mod fleet;
mod routes;

pub use routes::serve;
