//! The bytes that stand for a prompt when nobody renders the engine's template.
//!
//! They follow what llm-d's estimating tokenizer packs into pseudo-tokens, so that both see the same
//! prefixes:
//! - completions: the text; or the token ids, four bytes little-endian each;
//! - chat: the tools as JSON (`tools`), then for each message its role and its content, with
//!   nothing between; names, tool calls and documents are left out;
//! - an image, video or audio: zeros up to a multiple of four, then the low half of the XXH64 of its content,
//!   four bytes little-endian, as often as it is guessed to have tokens.

use super::facts::{Content, MediaKind, Part, Prompt, RequestFacts};
use super::path::PathClass;
use super::tools;
use xxhash_rust::xxh64::Xxh64;

/// Tokens guessed for an image: 640 × 360 pixels at 1024 a token.
const IMAGE_TOKENS: usize = 225;
/// Tokens guessed for a video: 20 frames (10 s at 2 a second) of [`IMAGE_TOKENS`].
const VIDEO_TOKENS: usize = 20 * IMAGE_TOKENS;

/// Appends at most `limit` bytes of the stream of prompt `index` (0 for a chat) to `out`.
pub fn approximate_prompt(facts: &RequestFacts, index: usize, limit: usize, out: &mut Vec<u8>) {
    visit_prompt(facts, index, limit, &mut |piece| out.extend_from_slice(piece));
}

/// Calls `visit` with the pieces of the stream of prompt `index` (0 for a chat; see
/// [`RequestFacts::prompt_count`]), `limit` bytes in all at most.
///
/// The limit bounds the work: a few hundred bytes of body can name a video that stands for 18 KB here. A
/// stream cut short only means that its far end is matched by nobody.
pub fn visit_prompt(
    facts: &RequestFacts,
    index: usize,
    limit: usize,
    visit: &mut impl FnMut(&[u8]),
) {
    let mut stream = Stream { sent: 0, limit, visit };
    match facts.path {
        PathClass::Chat => chat(facts, &mut stream),
        PathClass::Completions | PathClass::Other => match facts.prompts().get(index) {
            Some(Prompt::Text(span) | Prompt::Tokens(span)) => stream.send(facts.bytes(*span)),
            None => {}
        },
    }
}

fn chat<V: FnMut(&[u8])>(facts: &RequestFacts, stream: &mut Stream<'_, V>) {
    if let Some(captured) = facts.tools {
        stream.send(&tools::canonical(facts.raw(captured)));
    }
    for message in facts.messages() {
        if stream.is_full() {
            return;
        }
        if let Some(role) = message.role {
            stream.send(facts.bytes(role));
        }
        if let Content::Text(text) = message.content {
            stream.send(facts.bytes(text));
        }
        for part in facts.parts(message.content) {
            match *part {
                Part::Text(text) => stream.send(facts.bytes(text)),
                Part::Media { kind, content, format } => {
                    stream.media(kind, facts.bytes(content), facts.bytes(format));
                }
                Part::Other => {}
            }
        }
    }
}

/// The stream being made.
struct Stream<'a, V> {
    sent: usize,
    limit: usize,
    visit: &'a mut V,
}

impl<V: FnMut(&[u8])> Stream<'_, V> {
    fn is_full(&self) -> bool {
        self.sent >= self.limit
    }

    fn send(&mut self, piece: &[u8]) {
        let room = self.limit.saturating_sub(self.sent);
        let piece = piece.get(..room).unwrap_or(piece);
        if !piece.is_empty() {
            (self.visit)(piece);
            self.sent = self.sent.saturating_add(piece.len());
        }
    }

    fn media(&mut self, kind: MediaKind, content: &[u8], format: &[u8]) {
        if self.is_full() {
            return;
        }
        let mut hash = Xxh64::new(0);
        hash.update(content);
        hash.update(format);
        // The low half is what is kept.
        let [a, b, c, d, ..] = hash.digest().to_le_bytes();
        let tokens = match kind {
            MediaKind::Image => IMAGE_TOKENS,
            MediaKind::Video => VIDEO_TOKENS,
            MediaKind::Audio => content.len().saturating_add(format.len()).div_ceil(4).max(1),
        };
        let padding = self.sent.wrapping_neg() % 4;
        self.send([0; 3].get(..padding).unwrap_or_default());
        let mut block = [0; 256];
        for slot in block.chunks_exact_mut(4) {
            slot.copy_from_slice(&[a, b, c, d]);
        }
        let mut bytes = tokens.saturating_mul(4);
        while bytes > 0 && !self.is_full() {
            let piece = block.get(..bytes).unwrap_or(&block);
            self.send(piece);
            bytes = bytes.saturating_sub(piece.len());
        }
    }
}
