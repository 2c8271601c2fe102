//! The bytes that stand for a prompt when nobody renders the engine's template.
//!
//! They follow what llm-d's estimating tokenizer packs into pseudo-tokens, so that both see the same
//! prefixes:
//! - completions: the text; or the token ids, four bytes little-endian each;
//! - chat: the tools as JSON (`tools`), then for each message its role and its content, with
//!   nothing between; names, tool calls and documents are left out. The messages are a segment of their own, which begins
//!   a block: most clients send the tools behind them, and they can be hashed before ([`digest_prompt`]);
//! - Anthropic's messages: the tools, as a segment too, the system prompt, then for each message its role and its blocks, of which
//!   thoughts, calls (id, name, input as written) and results of tools count;
//! - responses: the instructions, the tools, then the input: its text, or its items as they were written (llm-d
//!   marshals the three as one JSON text); conversations: the items as they were written;
//! - embeddings: as completions (llm-d hashes the JSON of Go's struct); generate: the token ids; images: nothing;
//! - an image, video or audio: zeros up to a multiple of four, then the low half of the XXH64 of its content,
//!   four bytes little-endian, as often as it is guessed to have tokens.

use super::anthropic::BILLING_HEADER;
use super::facts::{Content, MediaKind, Part, Prompt, RequestFacts};
use super::path::PathClass;
use super::tools;
use std::borrow::Cow;
use warmroute_shared_state::prefix::{BLOCK_BYTES, BlockDigester};
use xxhash_rust::xxh64::Xxh64;

/// Tokens guessed for an image: 640 × 360 pixels at 1024 a token.
const IMAGE_TOKENS: usize = 225;
/// Tokens guessed for a video: 20 frames (10 s at 2 a second) of [`IMAGE_TOKENS`].
const VIDEO_TOKENS: usize = 20 * IMAGE_TOKENS;
/// Bytes of a token id.
const TOKEN_ID_BYTES: u64 = 4;

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
    walk(facts, index, limit, tools::canonical, &mut |piece| match piece {
        Piece::Bytes(bytes) => visit(bytes),
        Piece::Media(media) => media.visit(visit),
        Piece::SegmentEnd => {}
    });
}

/// Appends the block digests of the first prompt, of `limit` bytes of it at most. Returns how many bytes it has, if not more
/// than that. Of facts that [were digested](RequestFacts::is_digested) it can be asked once.
pub fn digest_prompt(facts: &RequestFacts, limit: usize, digests: &mut Vec<u64>) -> u64 {
    let mut digester = BlockDigester::default();
    let mut bytes = 0;
    if let Some(digest) = &facts.digest {
        if let Some(captured) = facts.tools {
            let tools = tools::canonical(facts.raw(captured));
            digester.push(tools.get(..limit).unwrap_or(&tools), digests);
            digester.end_segment(digests);
        }
        let messages = digest.take_blocks();
        if digests.is_empty() {
            *digests = messages;
        } else {
            digests.extend(messages);
        }
        bytes = digest.bytes();
    } else {
        walk(facts, 0, limit, tools::canonical, &mut |piece| match piece {
            Piece::Bytes(bytes) => digester.push(bytes, digests),
            Piece::Media(media) => media.visit(&mut |piece| digester.push(piece, digests)),
            Piece::SegmentEnd => digester.end_segment(digests),
        });
    }
    digests.truncate(limit / BLOCK_BYTES);
    digester.bytes().saturating_add(bytes).min(limit as u64)
}

/// How long the prompts of a request are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InputLength {
    /// Bytes of what stands for text and media.
    pub bytes: u64,
    /// Token ids of prompts that are given as such: their number is exact.
    pub token_ids: u64,
}

impl InputLength {
    /// Of all its prompts, tools as they were written. Nothing is hashed, sorted or repeated for it, so the work is that of
    /// reading the body.
    #[must_use]
    pub fn of(facts: &RequestFacts) -> Self {
        let mut length = Self::default();
        if let Some(digest) = &facts.digest {
            let tools = facts.tools.map_or(0, |captured| facts.raw(captured).len() as u64);
            length.bytes = digest.bytes().saturating_add(tools);
            return length;
        }
        for index in 0..facts.prompt_count() {
            let mut bytes = 0u64;
            walk(facts, index, usize::MAX, |raw| Cow::Borrowed(raw), &mut |piece| {
                bytes = bytes.saturating_add(piece.len() as u64);
            });
            match facts.prompts().get(index) {
                Some(Prompt::Tokens(_)) => {
                    length.token_ids = length.token_ids.saturating_add(bytes / TOKEN_ID_BYTES);
                }
                _ => length.bytes = length.bytes.saturating_add(bytes),
            }
        }
        length
    }
}

/// What of a text stands for tools.
type Tools = fn(&[u8]) -> Cow<'_, [u8]>;

fn walk(
    facts: &RequestFacts,
    index: usize,
    limit: usize,
    tools: Tools,
    visit: &mut impl FnMut(Piece<'_>),
) {
    let mut stream = Stream { sent: 0, segment: 0, limit, tools, visit };
    match facts.path {
        PathClass::Chat | PathClass::Messages | PathClass::CountTokens => chat(facts, &mut stream),
        PathClass::Responses | PathClass::Conversations => items(facts, &mut stream),
        // Images are not made from a cache of prompts.
        PathClass::Images | PathClass::Other => {}
        PathClass::Completions
        | PathClass::Embeddings
        | PathClass::Generate
        | PathClass::SglangGenerate => match facts.prompts().get(index) {
            Some(Prompt::Text(span) | Prompt::Tokens(span)) => stream.send(facts.bytes(*span)),
            None => {}
        },
    }
}

/// A piece of a stream.
enum Piece<'a> {
    Bytes(&'a [u8]),
    Media(Media<'a>),
    /// What comes next begins a block of its own.
    SegmentEnd,
}

impl Piece<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Media(media) => media.bytes,
            Self::SegmentEnd => 0,
        }
    }
}

/// An image, video or audio, not yet hashed.
pub(super) struct Media<'a> {
    content: &'a [u8],
    format: &'a [u8],
    /// How many bytes stand for it.
    pub(super) bytes: usize,
}

impl<'a> Media<'a> {
    /// Zeros to stand before it, and what stands for it; `sent`: bytes of its segment so far.
    pub(super) fn new(
        kind: MediaKind,
        content: &'a [u8],
        format: &'a [u8],
        sent: u64,
    ) -> (&'static [u8], Self) {
        let tokens = match kind {
            MediaKind::Image => IMAGE_TOKENS,
            MediaKind::Video => VIDEO_TOKENS,
            MediaKind::Audio => content.len().saturating_add(format.len()).div_ceil(4).max(1),
        };
        let zeros: &[u8] = match sent % 4 {
            1 => &[0; 3],
            2 => &[0; 2],
            3 => &[0; 1],
            _ => &[],
        };
        (zeros, Self { content, format, bytes: tokens.saturating_mul(4) })
    }

    pub(super) fn visit(&self, visit: &mut impl FnMut(&[u8])) {
        let mut hash = Xxh64::new(0);
        hash.update(self.content);
        hash.update(self.format);
        // The low half is what is kept.
        let [a, b, c, d, ..] = hash.digest().to_le_bytes();
        let mut block = [0; 256];
        for slot in block.chunks_exact_mut(4) {
            slot.copy_from_slice(&[a, b, c, d]);
        }
        let mut bytes = self.bytes;
        while bytes > 0 {
            let piece = block.get(..bytes).unwrap_or(&block);
            visit(piece);
            bytes = bytes.saturating_sub(piece.len());
        }
    }
}

fn items<V: FnMut(Piece<'_>)>(facts: &RequestFacts, stream: &mut Stream<'_, V>) {
    stream.system(facts);
    if let Some(captured) = facts.tools {
        stream.tools(facts.raw(captured));
    }
    if let Content::Text(text) = facts.input {
        stream.send(facts.bytes(text));
    }
    if let Some(items) = facts.items {
        stream.send(facts.raw(items));
    }
}

fn chat<V: FnMut(Piece<'_>)>(facts: &RequestFacts, stream: &mut Stream<'_, V>) {
    if let Some(captured) = facts.tools {
        stream.tools(facts.raw(captured));
        (stream.visit)(Piece::SegmentEnd);
        stream.segment = stream.sent;
    }
    stream.system(facts);
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
            stream.part(facts, part);
        }
    }
}

/// The stream being made.
struct Stream<'a, V> {
    sent: usize,
    /// Bytes before the segment at hand.
    segment: usize,
    limit: usize,
    tools: Tools,
    visit: &'a mut V,
}

impl<V: FnMut(Piece<'_>)> Stream<'_, V> {
    fn is_full(&self) -> bool {
        self.sent >= self.limit
    }

    fn room(&self) -> usize {
        self.limit.saturating_sub(self.sent)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.give(Piece::Bytes(bytes.get(..self.room()).unwrap_or(bytes)));
    }

    fn tools(&mut self, raw: &[u8]) {
        self.send(&(self.tools)(raw));
    }

    fn give(&mut self, piece: Piece<'_>) {
        let bytes = piece.len();
        if bytes > 0 {
            (self.visit)(piece);
            self.sent = self.sent.saturating_add(bytes);
        }
    }

    /// Anthropic's system prompt, or instructions, without the line that Claude Code makes anew for every request.
    fn system(&mut self, facts: &RequestFacts) {
        if let Content::Text(text) = facts.system {
            self.send(facts.bytes(text));
        }
        for part in facts.parts(facts.system) {
            if let Part::Text(text) = *part
                && !facts.bytes(text).starts_with(BILLING_HEADER.as_bytes())
            {
                self.send(facts.bytes(text));
            }
        }
    }

    fn part(&mut self, facts: &RequestFacts, part: &Part) {
        let anthropic = facts.path == PathClass::Messages;
        match *part {
            Part::Text(text) => self.send(facts.bytes(text)),
            Part::Media { kind, content, format } => {
                self.media(kind, facts.bytes(content), facts.bytes(format));
            }
            Part::Thinking(text) if anthropic => self.send(facts.bytes(text)),
            Part::ToolUse { id, name, .. } if anthropic => {
                for text in [id, name].into_iter().flatten() {
                    self.send(facts.bytes(text));
                }
                if let Some(input) = facts.tool_input(part) {
                    self.send(facts.raw(input));
                }
            }
            Part::ToolResult { content, .. } if anthropic => self.result(facts, content),
            _ => {}
        }
    }

    /// A tool's result: its texts, a line each, then its images.
    fn result(&mut self, facts: &RequestFacts, content: Content) {
        if let Content::Text(text) = content {
            self.send(facts.bytes(text));
        }
        let mut is_first = true;
        for part in facts.result_parts(content) {
            if let Part::Text(text) = *part {
                if !core::mem::take(&mut is_first) {
                    self.send(b"\n");
                }
                self.send(facts.bytes(text));
            }
        }
        for part in facts.result_parts(content) {
            if let Part::Media { .. } = part {
                self.part(facts, part);
            }
        }
    }

    fn media(&mut self, kind: MediaKind, content: &[u8], format: &[u8]) {
        let sent = self.sent.saturating_sub(self.segment) as u64;
        let (padding, mut media) = Media::new(kind, content, format, sent);
        self.send(padding);
        media.bytes = media.bytes.min(self.room());
        self.give(Piece::Media(media));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::scan_slices;
    use super::*;

    crate::tests! {
        fn media_are_one_piece_each_until_they_are_visited() {
            let video = r#"{"type":"video_url","video_url":{"url":"v"}}"#;
            let parts = vec![video; 1000].join(",");
            let body = format!(r#"{{"model":"m","messages":[{{"content":["odd",{parts}]}}]}}"#);
            let facts = scan_slices(PathClass::Chat, [body.as_bytes()]).unwrap();
            let mut pieces = 0;
            walk(&facts, 0, usize::MAX, tools::canonical, &mut |_| pieces += 1);
            assert_eq!(pieces, 1002, "the text, the bytes up to a multiple of four, the videos");
            let bytes = 4 + 1000 * 4 * VIDEO_TOKENS as u64;
            assert_eq!(InputLength::of(&facts), InputLength { bytes, token_ids: 0 });
        }
    }
}
