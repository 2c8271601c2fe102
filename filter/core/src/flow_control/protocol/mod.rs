//! What workers and dispatcher say to each other, over Envoy's shared queues.
//!
//! Every message names the dispatcher's epoch and the worker's incarnation and has a number, one more than the one
//! before it on its way: a gap is answered by a new announcement.

mod codec;
mod drop_reason;
mod message;
mod request;

#[cfg(test)]
mod tests;

pub use drop_reason::DropReason;
pub use message::{
    FromWorker, HeldTicket, MAX_ANNOUNCED, Order, ParkedTicket, Refused, Report, ToWorker,
};
pub use request::{MAX_FLOW_BYTES, PoolKey, Request, TicketId, Usage};
