//! The policies of a pool's queue as functions and small states: when the pool is full, up to where each priority is
//! let through, which flow goes next and which of its requests.

pub mod ceiling;
pub mod fairness;
pub mod ordering;
pub mod saturation;
mod service;
pub mod shedding;
mod weighted;
