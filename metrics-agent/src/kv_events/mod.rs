//! Engines' KV cache events: from sockets to changes of the byte index.
//!
//! - [`event`]: what engines tell; [`decode`] (over [`msgpack`]) reads it from any encoding.
//! - [`sequence`] follows the numbers of batches: gaps, replays, restarts.
//! - [`source`] (over [`zmtp`]) is the task that follows one publisher.

pub mod decode;
pub mod event;
pub mod msgpack;
pub mod sequence;
pub mod source;
pub mod zmtp;
