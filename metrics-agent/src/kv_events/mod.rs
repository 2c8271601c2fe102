//! Engines' KV cache events: from sockets to changes of the byte index.
//!
//! - [`event`]: what engines tell; [`decode`] (over [`msgpack`]) reads it from any encoding.

pub mod decode;
pub mod event;
pub mod msgpack;
