//! What an engine tells of its KV cache, whatever encoding it used.

/// An engine's name for a block: opaque to us, the low 64 bits of whatever it sent.
pub type BlockHash = u64;

/// One message: what happened in one step of one engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// When it was made, by the engine's clock, in seconds since 1970.
    pub at: f64,
    /// In the order in which they happened.
    pub events: Vec<Event>,
    /// Data-parallel rank, if said.
    pub rank: Option<u32>,
    /// Events that could not be read.
    pub undecodable: u32,
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Blocks were filled and can be hit.
    Stored(Stored),
    /// Blocks were evicted.
    Removed(Removed),
    /// The whole cache was dropped.
    Cleared,
}

/// Blocks of one prompt, one after the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stored {
    /// Their names, in prompt order.
    pub hashes: Vec<BlockHash>,
    /// Name of the block before the first; `None` at the start of a prompt.
    pub parent: Option<BlockHash>,
    /// Their token ids, `hashes.len() * block_size` of them (of a group that keeps only some blocks: more).
    pub tokens: Vec<u32>,
    /// Tokens per block.
    pub block_size: u32,
    /// Where they are.
    pub medium: Medium,
    /// LoRA adapter.
    pub adapter: Option<String>,
    /// What else enters the names, per block; empty if nothing does.
    pub extra_keys: Vec<Vec<ExtraKey>>,
    /// KV cache group, 0 if not said.
    pub group: u32,
    /// Kind of that group.
    pub kind: GroupKind,
}

/// Blocks that are gone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Removed {
    /// Their names.
    pub hashes: Vec<BlockHash>,
    /// Where they were.
    pub medium: Medium,
    /// KV cache group, 0 if not said.
    pub group: u32,
}

/// Where blocks are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Medium {
    /// The device's own memory (`GPU`, or not said).
    #[default]
    Device,
    /// Anything slower: `CPU`, `STORAGE`, …
    Lower,
}

/// One part of what distinguishes blocks of equal tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtraKey {
    /// A plain string: the cache salt, or the adapter's name again.
    Text(String),
    /// An image, audio or video that lies over the block, or anything else that we can't tell.
    Opaque,
}

/// Kinds of KV cache groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GroupKind {
    /// Not said: an engine with one group.
    #[default]
    Unsaid,
    /// Every token attends to all before it: `full_attention`, `mla_attention`, `sink_full_attention`.
    Full,
    /// Anything else: says nothing of whole prefixes.
    Other,
}
