//! What one endpoint's engine holds, as blocks of bytes.
//!
//! An engine tells of blocks of token ids, named by hashes that are opaque to us, each hanging on
//! the one before it. A token id stands for fixed bytes, so a chain of blocks is a prefix of a
//! prompt in bytes; here it is cut into the byte blocks of
//! [`prefix`](warmroute_shared_state::prefix), and each that the held blocks cover whole is told
//! on, with the tokens before its end. Removals undo exactly that.
//!
//! - `tree`: engine blocks and how they hang together; `kept`: what is kept of their tokens; `slab`, `blobs`: their
//!   memory; `lost`: what stays of them when events are lost;
//! - `chain`: token ids to byte blocks; `coverage`: which byte blocks are covered;
//! - `byte_blocks`: counts per byte block, and what has to be told of it; `entries`: their memory;
//! - `decode_check`: whether an answer's ids are those that its text would get.
//!
//! Nothing here does I/O or reads a clock.

mod blobs;
mod byte_blocks;
mod chain;
mod changes;
mod counters;
mod coverage;
mod decode_check;
mod entries;
mod index;
mod kept;
mod lost;
mod scope;
mod slab;
#[cfg(test)]
mod tests;
mod tree;

pub use changes::{Changes, TierChanges};
pub use counters::Counters;
pub use index::{Index, Limits};

use crate::tokenizer::bytes::TokenBytes;

/// Encodes text as an engine would.
pub trait Encode {
    /// Appends the ids of `text`, special tokens read as such and none added. Returns false if it
    /// cannot.
    fn encode(&self, text: &str, ids: &mut Vec<u32>) -> bool;
}

/// The model whose blocks an event tells of.
#[derive(Clone, Copy)]
pub struct ModelContext<'a> {
    /// The name that its engines serve it by. An adapter's blocks go by the adapter's name instead.
    pub model: &'a str,
    /// Identity of its rendered byte stream.
    pub stream: u64,
    /// Bytes of each token id.
    pub tokens: &'a TokenBytes,
    /// Its tokenizer, for blocks that may come from decode.
    pub encoder: &'a dyn Encode,
}
