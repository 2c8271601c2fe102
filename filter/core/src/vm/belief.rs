//! What endpoints are believed to hold of a prompt: in blocks for the scorers, in tokens for accounts.

use super::Prompt;
use crate::prefix_table::{MAX_COLUMNS, PrefixMatch};
use crate::replica::{EndpointState, Replica};
use warmroute_shared_state::prefix::BLOCK_BYTES;
use warmroute_shared_state::table_op::Column;

/// What a belief rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BeliefKind {
    /// Nothing is held.
    #[default]
    Nothing,
    /// Our own picks, in place of events.
    Approximate,
    /// What the engine told.
    Events,
    /// Our last picks, of which events have not come yet.
    Expected,
}

impl BeliefKind {
    /// One word, for logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Approximate => "approximate",
            Self::Events => "events",
            Self::Expected => "expected",
        }
    }
}

/// What one endpoint is believed to hold of one prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Belief {
    /// Leading blocks, those of a slower tier by their worth.
    pub blocks: usize,
    /// The same in tokens, as the engine will count them: whole blocks of its own, at most the prompt - 1.
    pub tokens: u64,
    /// Tokens of the whole prompt; as far as no event told, by the endpoint's own bytes per token.
    pub prompt_tokens: u64,
    /// What it rests on.
    pub kind: BeliefKind,
    /// Leading blocks that the engine told, or our picks stand for.
    pub(super) held: usize,
}

impl Belief {
    /// Tokens that the endpoint still has to compute.
    #[must_use]
    pub fn uncached_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_sub(self.tokens)
    }

    /// The same if, as another worker's pick says, it will hold so many blocks.
    pub(super) fn at_least(self, endpoint: &EndpointState, prompt: &Prompt, blocks: usize) -> Self {
        if blocks <= self.blocks {
            return self;
        }
        let kind = kind(endpoint, prompt, BeliefKind::Expected);
        Self { kind, ..Reach { blocks, told: (0, 0) }.belief(endpoint, prompt, self.held) }
    }
}

/// How far a column goes.
#[derive(Debug, Clone, Copy, Default)]
struct Reach {
    blocks: usize,
    told: (usize, u32),
}

impl Reach {
    fn belief(self, endpoint: &EndpointState, prompt: &Prompt, held: usize) -> Belief {
        let (told_blocks, told_tokens) = self.told;
        let bytes = block_bytes(self.blocks);
        let guessed = tokens(endpoint, bytes.saturating_sub(block_bytes(told_blocks)));
        let matched = u64::from(told_tokens).saturating_add(guessed);
        // Bytes beyond the match are a token at least.
        let beyond = prompt.bytes.saturating_sub(bytes);
        let beyond = tokens(endpoint, beyond).max(u64::from(beyond > 0));
        let prompt_tokens = matched.saturating_add(beyond);
        let block_tokens = u64::from(endpoint.record.block_tokens.max(1));
        let cached = matched.min(prompt_tokens.saturating_sub(1));
        let tokens = cached.saturating_sub(cached.checked_rem(block_tokens).unwrap_or(0));
        Belief { blocks: self.blocks, tokens, prompt_tokens, kind: BeliefKind::Nothing, held }
    }
}

/// How far each of an endpoint's columns goes.
#[derive(Debug, Clone, Copy, Default)]
struct Reaches {
    held: Reach,
    expected: Reach,
    any_tier: Reach,
}

impl Reaches {
    fn note(&mut self, endpoint: &EndpointState, matched: &PrefixMatch) {
        let reach = Reach { blocks: matched.blocks, told: matched.told };
        let columns = endpoint.columns;
        let place = match matched.column {
            column if column == columns.held => &mut self.held,
            column if column == columns.expected => &mut self.expected,
            _ => &mut self.any_tier,
        };
        if reach.blocks > place.blocks {
            *place = reach;
        }
    }

    fn belief(&self, endpoint: &EndpointState, prompt: &Prompt) -> Belief {
        let Self { held, expected, any_tier } = *self;
        let (device, told) = if expected.blocks > held.blocks {
            (expected, BeliefKind::Expected)
        } else {
            (held, BeliefKind::Events)
        };
        let farthest = if any_tier.blocks > device.blocks { any_tier } else { device };
        let mut belief = farthest.belief(endpoint, prompt, held.blocks);
        let slower = farthest.blocks.saturating_sub(device.blocks);
        let worth = usize::from(endpoint.record.lower_tier_percent);
        belief.blocks = device.blocks.saturating_add(slower.saturating_mul(worth) / 100);
        if farthest.blocks > 0 {
            belief.kind = kind(endpoint, prompt, told);
        }
        belief
    }
}

fn kind(endpoint: &EndpointState, prompt: &Prompt, precise: BeliefKind) -> BeliefKind {
    if endpoint.tells(prompt.stream) { precise } else { BeliefKind::Approximate }
}

/// What each endpoint that may be picked, and is `asked` for, is believed to hold of the prompt, in the roster's order.
pub(super) fn beliefs<'a>(
    replica: &'a Replica,
    prompt: &Prompt,
    asked: impl Fn(&EndpointState) -> bool,
) -> Vec<(&'a EndpointState, Belief)> {
    let mut place_of_column = [u16::MAX; MAX_COLUMNS as usize];
    let ready: Vec<&EndpointState> =
        replica.roster.iter().filter(|e| e.is_ready() && asked(e)).collect();
    let mut reaches = vec![Reaches::default(); ready.len()];
    for (place, endpoint) in (0u16..).zip(&ready) {
        for column in endpoint.columns.iter() {
            if let Some(owner) = place_of_column.get_mut(usize::from(column.0)) {
                *owner = place;
            }
        }
    }
    for matched in replica.walk(&prompt.chain) {
        let Column(column) = matched.column;
        let place =
            place_of_column.get(usize::from(column)).map_or(usize::MAX, |p| usize::from(*p));
        if let (Some(reaches), Some(endpoint)) = (reaches.get_mut(place), ready.get(place)) {
            reaches.note(endpoint, &matched);
        }
    }
    let of = |(endpoint, reaches): (&'a EndpointState, Reaches)| {
        (endpoint, reaches.belief(endpoint, prompt))
    };
    ready.into_iter().zip(reaches).map(of).collect()
}

/// What one endpoint is believed to hold of the prompt.
pub(super) fn belief_of(replica: &Replica, endpoint: &EndpointState, prompt: &Prompt) -> Belief {
    let mut reaches = Reaches::default();
    let matches = replica.walk(&prompt.chain);
    for matched in matches.iter().filter(|m| endpoint.columns.iter().any(|c| c == m.column)) {
        reaches.note(endpoint, matched);
    }
    reaches.belief(endpoint, prompt)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn tokens(endpoint: &EndpointState, bytes: u64) -> u64 {
    (bytes as f64 / f64::from(endpoint.bytes_per_token)).round() as u64
}

fn block_bytes(blocks: usize) -> u64 {
    (blocks as u64).saturating_mul(BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::tests::record;
    use warmroute_shared_state::block::{Block, BlockList};
    use warmroute_shared_state::endpoint::EndpointRecord;
    use warmroute_shared_state::table_op::{Columns, HashList, TableOp};

    const COLUMNS: Columns = Columns { held: Column(0), expected: Column(1), any_tier: Column(2) };
    const CHAIN: [u64; 4] = [11, 22, 33, 44];

    fn replica(precise: bool, lower_tier_percent: u8) -> Replica {
        let mut replica = Replica::default();
        let record = EndpointRecord { precise, lower_tier_percent, ..record(0) };
        let columns = if precise { COLUMNS } else { Columns::only(COLUMNS.held) };
        replica.apply(1, &TableOp::Endpoint { columns, since: 1, record });
        replica
    }

    fn told(replica: &mut Replica, column: u16, blocks: &[(u64, u32)]) {
        let blocks: Vec<_> =
            blocks.iter().map(|(hash, tokens)| Block { hash: *hash, tokens: *tokens }).collect();
        let blocks = BlockList::Slice(&blocks);
        replica.apply(2, &TableOp::Store { column: Column(column), blocks });
    }

    fn guessed(replica: &mut Replica, column: u16, hashes: &[u64]) {
        let hashes = HashList::Slice(hashes);
        replica.apply(2, &TableOp::Insert { column: Column(column), stamp: 0, hashes });
    }

    fn belief(replica: &Replica, stream: u64, bytes: u64) -> Belief {
        let prompt = Prompt { stream, chain: CHAIN.to_vec(), bytes, ..Prompt::default() };
        let all = beliefs(replica, &prompt, |_| true);
        assert_eq!(all[0].1, belief_of(replica, all[0].0, &prompt));
        all[0].1
    }

    crate::tests! {
        fn what_events_told_counts_in_their_tokens_and_whole_engine_blocks() {
            let mut replica = replica(true, 0);
            told(&mut replica, 0, &[(11, 40), (22, 85)]);
            let belief = belief(&replica, 5, 4 * 128 + 10);
            assert_eq!((belief.blocks, belief.tokens, belief.kind), (2, 80, BeliefKind::Events));
            // 266 more bytes at 4 bytes a token.
            assert_eq!(belief.prompt_tokens, 85 + 67);
            assert_eq!(belief.uncached_tokens(), 85 + 67 - 80);
        }

        fn a_prompt_that_is_held_whole_is_not_believed_cached_whole() {
            let mut replica = replica(true, 0);
            told(&mut replica, 0, &[(11, 40), (22, 85), (33, 120), (44, 160)]);
            assert_eq!(belief(&replica, 5, 4 * 128).tokens, 144);
            assert_eq!(belief(&replica, 5, 4 * 128 + 1).tokens, 160);
        }

        fn what_is_expected_is_told_apart() {
            let mut replica = replica(true, 0);
            told(&mut replica, 0, &[(11, 40)]);
            guessed(&mut replica, 1, &[22, 33]);
            let belief = belief(&replica, 5, 600);
            assert_eq!((belief.blocks, belief.held, belief.kind), (3, 1, BeliefKind::Expected));
            // 40 told, and 256 bytes at 4 bytes a token.
            assert_eq!(belief.tokens, 96);
        }

        fn a_slower_tier_is_worth_less_but_its_tokens_are_cached() {
            let mut replica = replica(true, 50);
            told(&mut replica, 0, &[(11, 40), (22, 85)]);
            told(&mut replica, 2, &[(11, 40), (22, 85), (33, 120), (44, 160)]);
            let belief = belief(&replica, 5, 600);
            assert_eq!((belief.blocks, belief.tokens, belief.kind), (3, 160, BeliefKind::Events));
        }

        fn approximate_streams_and_endpoints_are_called_so() {
            for (precise, stream) in [(true, 0), (false, 0), (false, 5)] {
                let mut replica = replica(precise, 0);
                guessed(&mut replica, 0, &[11, 22]);
                let belief = belief(&replica, stream, 600);
                assert_eq!((belief.tokens, belief.kind), (64, BeliefKind::Approximate), "{precise} {stream}");
            }
        }

        fn nothing_is_nothing() {
            let belief = belief(&replica(true, 0), 5, 600);
            assert_eq!((belief.blocks, belief.tokens, belief.prompt_tokens), (0, 0, 150));
            assert_eq!(belief.kind, BeliefKind::Nothing);
        }
    }
}
