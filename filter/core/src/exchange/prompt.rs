//! From the facts of a body to the prompt's chain.

use crate::replica::Models;
use crate::request::{RequestFacts, visit_prompt};
use crate::vm::Prompt;
use warmroute_shared_state::prefix::{BLOCK_BYTES, BlockDigester, ChainScope, chain_in_place};

/// The chain over the prompt's bytes, `limit` of them at most: what lies beyond is held by nobody. A
/// completions request with several prompts is routed by the first one; the others count as work to do.
pub(super) fn of(facts: &RequestFacts, _models: &Models, limit: usize) -> Prompt {
    approximate(facts, limit)
}

fn approximate(facts: &RequestFacts, limit: usize) -> Prompt {
    let mut digester = BlockDigester::default();
    let mut chain = Vec::with_capacity(facts.body_bytes / BLOCK_BYTES);
    visit_prompt(facts, 0, limit, &mut |piece: &[u8]| digester.push(piece, &mut chain));
    let mut bytes = digester.bytes();
    if bytes >= limit as u64 {
        // Cut short: its true length is not known, but about that of the body.
        bytes = bytes.max(facts.body_bytes as u64);
    }
    for index in 1..facts.prompt_count() {
        visit_prompt(facts, index, limit, &mut |piece: &[u8]| {
            bytes = bytes.saturating_add(piece.len() as u64);
        });
    }
    let scope = ChainScope {
        model: facts.model_name(),
        cache_salt: facts.cache_salt.map(|salt| facts.str(salt)),
        ..ChainScope::default()
    };
    chain_in_place(&scope, &mut chain);
    Prompt { stream: 0, chain, bytes }
}
