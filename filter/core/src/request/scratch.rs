//! Buffers that outlive a request.

use super::facts::{ByteSpan, Captured, Message, Part, Prompt};
use core::fmt;

/// A buffer that holds more than this is large: few of them are kept.
pub const KEEP_BYTES: usize = 1 << 20;

/// Bodies of which less came grow as they come.
const EXPECT_FROM: usize = 256 << 10;

/// Whether so much came of a body that its length, which the client says, can be believed.
pub(super) fn is_sure(length: usize, taken: usize) -> bool {
    taken >= EXPECT_FROM && taken >= length / 4
}

/// The most messages, parts, prompts or kept values held: far beyond any real request, and it bounds memory.
pub(super) const MAX_ITEMS: usize = 1 << 16;

/// The most occurrences of `model`: each may have to be replaced.
const MAX_MODELS: usize = 16;

/// The buffers of one body scan, reusable by the next.
#[derive(Default)]
pub struct Scratch {
    /// Decoded strings, back to back.
    pub(super) text: Vec<u8>,
    /// Copies of values kept as they were written.
    pub(super) raw: Vec<u8>,
    pub(super) captures: Vec<Captured>,
    pub(super) messages: Vec<Message>,
    pub(super) parts: Vec<Part>,
    /// Blocks inside tool results.
    pub(super) result_parts: Vec<Part>,
    pub(super) prompts: Vec<Prompt>,
    /// Where the values of `model` stand.
    pub(super) models: Vec<ByteSpan>,
    /// The field whose list grew beyond its limit, if one did.
    pub(super) overflow: Option<(&'static str, usize)>,
}

impl Scratch {
    /// Empties the buffers for the next body.
    pub fn clear(&mut self) {
        self.text.clear();
        self.raw.clear();
        self.captures.clear();
        self.messages.clear();
        self.parts.clear();
        self.result_parts.clear();
        self.prompts.clear();
        self.models.clear();
        self.overflow = None;
    }

    /// Gives up what holds more than [`KEEP_BYTES`]: all of it, and no part, so that whoever needs as much next finds it in
    /// one piece.
    pub fn drop_large(&mut self) {
        fn shrink<T>(buffer: &mut Vec<T>) {
            if held(buffer) > KEEP_BYTES {
                *buffer = Vec::new();
            }
        }
        shrink(&mut self.text);
        shrink(&mut self.raw);
        shrink(&mut self.captures);
        shrink(&mut self.messages);
        shrink(&mut self.parts);
        shrink(&mut self.result_parts);
        shrink(&mut self.prompts);
        shrink(&mut self.models);
    }

    /// Whether the text holds more than [`KEEP_BYTES`].
    pub(super) fn is_large(&self) -> bool {
        held(&self.text) > KEEP_BYTES
    }

    /// The body has `length` bytes, as the client says, and `taken` of them came. Once that is a good part of it there is
    /// room for the whole at once: growing by doubles would take three times as much. A client that lies makes no more room
    /// than four times what it sent. `digests`: most of it will not be kept, unless much of it was.
    pub(super) fn expect(&mut self, length: usize, taken: usize, digests: bool) {
        if digests && self.text.len() < EXPECT_FROM {
            return;
        }
        if is_sure(length, taken) && length > self.text.capacity() {
            let _ = self.text.try_reserve_exact(length.saturating_sub(self.text.len()));
        }
    }

    pub(super) fn push_message(&mut self, message: Message) {
        push(&mut self.messages, message, "messages", &mut self.overflow);
    }

    pub(super) fn push_part(&mut self, part: Part) {
        push(&mut self.parts, part, "messages", &mut self.overflow);
    }

    pub(super) fn push_result_part(&mut self, part: Part) {
        push(&mut self.result_parts, part, "messages", &mut self.overflow);
    }

    pub(super) fn push_prompt(&mut self, prompt: Prompt) {
        push(&mut self.prompts, prompt, "prompt", &mut self.overflow);
    }

    pub(super) fn push_capture(&mut self, captured: Captured) {
        push(&mut self.captures, captured, "messages", &mut self.overflow);
    }

    pub(super) fn push_model(&mut self, span: ByteSpan) {
        if self.models.len() < MAX_MODELS {
            self.models.push(span);
        } else {
            self.overflow = Some(("model", MAX_MODELS));
        }
    }

    /// Bytes of memory held.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        [
            held(&self.text),
            held(&self.raw),
            held(&self.captures),
            held(&self.messages),
            held(&self.parts),
            held(&self.result_parts),
            held(&self.prompts),
            held(&self.models),
        ]
        .iter()
        .fold(0, |sum, n| sum.saturating_add(*n))
    }
}

fn held<T>(buffer: &Vec<T>) -> usize {
    buffer.capacity().saturating_mul(size_of::<T>())
}

fn push<T>(
    list: &mut Vec<T>,
    item: T,
    field: &'static str,
    overflow: &mut Option<(&'static str, usize)>,
) {
    if list.len() < MAX_ITEMS {
        list.push(item);
    } else {
        *overflow = Some((field, MAX_ITEMS));
    }
}

/// Sizes only: the buffers hold prompts.
impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch")
            .field("text_bytes", &self.text.len())
            .field("raw_bytes", &self.raw.len())
            .field("messages", &self.messages.len())
            .field("parts", &self.parts.len())
            .field("prompts", &self.prompts.len())
            .finish_non_exhaustive()
    }
}
