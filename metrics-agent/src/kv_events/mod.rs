//! Engines' KV cache events: from sockets to changes of the byte index.
//!
//! - [`event`]: what engines tell; [`decode`] (over [`msgpack`]) reads it from any encoding;
//! - [`sequence`] follows the numbers of batches: gaps, replays, restarts;
//! - [`source`] (over [`message`] and [`zmtp`]) is the task that follows one publisher;
//! - [`inbox`]: the queue to the one thread, [`worker`], that feeds the index and the stream;
//! - [`supervisor`] follows the fleet with an [`endpoint_task`] for each endpoint, which asks
//!   its engine where it publishes ([`discover`]);
//! - [`completeness`]: whether what events hang on is known;
//! - [`models`]: which model events are of; [`tally`]: what is counted.

pub mod completeness;
pub mod decode;
pub mod discover;
pub mod endpoint_task;
pub mod event;
pub mod inbox;
pub mod message;
pub mod models;
pub mod msgpack;
pub mod sequence;
pub mod source;
pub mod supervisor;
pub mod tally;
pub mod worker;
pub mod zmtp;
