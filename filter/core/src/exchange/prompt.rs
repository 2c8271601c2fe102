//! From the facts of a body to the prompt's chain.

use crate::replica::{Model, Models, Rendering};
use crate::request::{self, PathClass, RequestFacts, digest_prompt, render_prompt, visit_prompt};
use crate::vm::{Prompt, PromptSource};
use warmroute_chat_template::normalize_nfc;
use warmroute_shared_state::prefix::{BLOCK_BYTES, BlockDigester, ChainScope, chain_in_place};

/// The chain over the prompt's bytes, `limit` of them at most: what lies beyond is held by nobody. As the engine
/// renders them where the model is known, else over the approximate stream. A completions request with several
/// prompts is routed by the first one; the others count as work to do. `model` is the name that the engine is asked for.
pub(super) fn of(
    facts: &RequestFacts,
    model: &str,
    models: &Models,
    clock_unix_s: u64,
    limit: usize,
) -> Prompt {
    let asked = model;
    // A digest was begun when no model was known.
    let known = models.find(asked).filter(|(model, _)| !model.distrusted && !facts.is_digested());
    let Some((model, name)) = known else {
        return approximate(facts, asked, limit, PromptSource::Approximate);
    };
    let mut stream = Stream::new(facts, limit);
    if !render(facts, model, clock_unix_s, limit, &mut |piece| stream.push(piece, model)) {
        return approximate(facts, asked, limit, PromptSource::Unrendered);
    }
    let scope = ChainScope { stream: model.record.stream, model: name, ..ChainScope::default() };
    let bytes = stream.digester.bytes();
    finish(facts, scope, stream.chain, bytes, limit, PromptSource::Rendered)
}

/// Whether the prompt's bytes could be told.
fn render(
    facts: &RequestFacts,
    model: &Model,
    clock_unix_s: u64,
    limit: usize,
    out: &mut dyn FnMut(&[u8]),
) -> bool {
    if facts.path == PathClass::Completions {
        let Some(request::Prompt::Text(text)) = facts.prompts().first() else { return false };
        if facts.alters_tokens {
            return false;
        }
        let text = facts.bytes(*text);
        out(model.record.completion_prefix.as_bytes());
        out(text.get(..limit).unwrap_or(text));
        return true;
    }
    match model.rendering(facts.tools.is_some()) {
        Rendering::Template(template) => {
            render_prompt(facts, template, clock_unix_s, limit, out).is_ok()
        }
        Rendering::None | Rendering::Unusable(_) => false,
    }
}

fn approximate(facts: &RequestFacts, model: &str, limit: usize, source: PromptSource) -> Prompt {
    let blocks = if facts.is_digested() { 0 } else { facts.body_bytes.min(limit) / BLOCK_BYTES };
    let mut chain = Vec::with_capacity(blocks);
    let bytes = digest_prompt(facts, limit, &mut chain);
    let scope = ChainScope { model, ..ChainScope::default() };
    finish(facts, scope, chain, bytes, limit, source)
}

/// A prompt's bytes on their way into blocks.
struct Stream {
    digester: BlockDigester,
    chain: Vec<u64>,
}

impl Stream {
    /// For a prompt of which `limit` bytes are hashed at most.
    fn new(facts: &RequestFacts, limit: usize) -> Self {
        let chain = Vec::with_capacity(facts.body_bytes.min(limit) / BLOCK_BYTES);
        Self { digester: BlockDigester::default(), chain }
    }

    fn push(&mut self, piece: &[u8], model: &Model) {
        // One fold without a branch: the compiler makes vectors of it. `is_ascii` has none for WebAssembly.
        let is_ascii = || piece.iter().fold(0, |bits, byte| bits | byte).is_ascii();
        if model.record.nfc && !is_ascii() {
            self.digester.push(&normalize_nfc(piece), &mut self.chain);
        } else {
            self.digester.push(piece, &mut self.chain);
        }
    }
}

/// `bytes` are those of its first prompt, `limit` at most.
fn finish(
    facts: &RequestFacts,
    scope: ChainScope<'_>,
    mut chain: Vec<u64>,
    bytes: u64,
    limit: usize,
    source: PromptSource,
) -> Prompt {
    let mut bytes = bytes;
    if bytes >= limit as u64 {
        // Cut short: its true length is not known, but about that of the body.
        bytes = bytes.max(facts.body_bytes as u64);
    }
    for index in 1..facts.prompt_count() {
        visit_prompt(facts, index, limit, &mut |piece: &[u8]| {
            bytes = bytes.saturating_add(piece.len() as u64);
        });
    }
    let cache_salt = facts.cache_salt.map(|salt| facts.str(salt));
    chain_in_place(&ChainScope { cache_salt, ..scope }, &mut chain);
    Prompt { stream: scope.stream, source, chain, bytes }
}
