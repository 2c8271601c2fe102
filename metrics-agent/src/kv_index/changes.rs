//! What an endpoint's index has to tell on.

use warmroute_shared_state::block::Block;

/// What changed since the last look. If `cleared`, all that was told before is void first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Everything that was told before is void, in both tiers.
    pub cleared: bool,
    /// Blocks in the device's memory.
    pub device: TierChanges,
    /// Blocks in any tier, the device's included. Stays empty until the endpoint has told of a block in a slower
    /// tier ([`Index::has_lower_tier`](super::Index::has_lower_tier)); with the first such block all is told.
    pub any: TierChanges,
}

/// Changes of one tier: no hash is in both lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TierChanges {
    /// Covered now, and not before.
    pub stored: Vec<Block>,
    /// Covered before, and no more.
    pub removed: Vec<u64>,
}

impl Changes {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.cleared && self.device.is_empty() && self.any.is_empty()
    }

    /// Empties it, for the next look.
    pub fn reset(&mut self) {
        self.cleared = false;
        for tier in [&mut self.device, &mut self.any] {
            tier.stored.clear();
            tier.removed.clear();
        }
    }
}

impl TierChanges {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.removed.is_empty()
    }
}
