//! What an engine's answer says, read as it passes by: first token, usage, and whether it really succeeded.
//!
//! ```text
//! headers ── ResponseReader::for_headers ── feed(slice)… ── finish(End) ──▶ ResponseReport
//!              ├─ event stream: sse (lines) ─▶ events (payloads) ─▶ chunk (fields)
//!              └─ JSON:                                            chunk
//! ```
//! Nothing is buffered, however long an event is: a payload goes straight into the push scanner, which keeps
//! a few hundred bytes. So the reader never delays or cuts a stream.
//!
//! Two change bytes: [`model_name`] gives the client's model name back, [`usage_shape`] takes out the usage that we
//! asked for and the client did not.
//!
//! [`sse`] knows no API; `fields` says which fields of which API `chunk` reads.

mod chunk;
mod events;
pub mod facts;
mod fields;
pub mod model_name;
mod opening;
pub mod outcome;
pub mod reader;
pub mod sse;
pub mod usage_shape;

#[cfg(test)]
mod any_split;
#[cfg(test)]
mod tests;

pub use facts::{EngineError, FinishReason, ResponseFacts, Usage};
pub use outcome::{End, Outcome, Truncation};
pub use reader::{ResponseReader, ResponseReport};
