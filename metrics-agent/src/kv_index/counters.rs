//! What an index counts.

/// What was seen and what was passed over, since the index was made. All count blocks, if not said
/// otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Stored, in events that could be used.
    pub stored: u64,
    /// Removed, of those that were known.
    pub removed: u64,
    /// Stored under a parent that is not known.
    pub orphans: u64,
    /// Copied to a slower tier, without their tokens, and not known.
    pub unknown_copies: u64,
    /// Not known to be held until something was stored that hangs on them: see [`Index::lose`](super::Index::lose).
    pub revived: u64,
    /// Removed, but not known.
    pub unknown_removals: u64,
    /// Stored in KV cache groups that say nothing of whole prefixes, or beside the one followed.
    pub other_groups: u64,
    /// Events whose numbers of tokens and blocks don't fit together.
    pub malformed: u64,
    /// Chains that ended at an id without bytes.
    pub unknown_ids: u64,
    /// Chains that ended at a block with something over it that is no text.
    pub opaque_keys: u64,
    /// Blocks that may come from decode: encoded again, and the same.
    pub checked: u64,
    /// The same, and not the same: the chain ends there.
    pub differing: u64,
    /// Not taken in because of a limit, or given up.
    pub over_limit: u64,
}

/// So many more.
pub(super) fn bump(counter: &mut u64, by: usize) {
    *counter = counter.saturating_add(by as u64);
}
