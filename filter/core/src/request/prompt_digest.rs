//! A chat's messages, hashed as they come: what [`approximate`](super::approximate) makes of them, without keeping a byte.
//!
//! Open only where nobody will ask for the texts again: the prompt is not to be rendered, and no share of a split depends
//! on the conversation. Then a prompt of megabytes takes a sixteenth of its size here.

use super::approximate::Media;
use super::facts::{MediaKind, Part};
use core::fmt;
use warmroute_shared_state::prefix::{BLOCK_BYTES, BlockDigester};

/// Blocks that are made room for on a client's word.
const EXPECTED_BLOCKS: usize = (1 << 20) / BLOCK_BYTES;

/// The messages' segment of a prompt.
pub(super) struct PromptDigest {
    digester: BlockDigester,
    blocks: Vec<u64>,
    /// Bytes that are hashed at most: a few bytes of body can stand for a video.
    limit: u64,
    /// Bytes in all, those beyond the limit included.
    bytes: u64,
    /// The role of the message at hand is among them.
    has_role: bool,
    /// The part at hand was hashed as it came.
    has_part: bool,
}

impl PromptDigest {
    /// Of a body of so many bytes, as the client says; `limit`: bytes to hash at most.
    pub(super) fn new(body_bytes: usize, limit: usize) -> Self {
        Self {
            digester: BlockDigester::default(),
            blocks: Vec::with_capacity((body_bytes / BLOCK_BYTES).min(EXPECTED_BLOCKS)),
            limit: limit as u64,
            bytes: 0,
            has_role: false,
            has_part: false,
        }
    }

    /// The messages begin, perhaps anew: of duplicate keys the last counts.
    pub(super) fn restart(&mut self) {
        self.digester = BlockDigester::default();
        self.blocks.clear();
        self.bytes = 0;
    }

    /// A message begins.
    pub(super) fn begin_message(&mut self) {
        self.has_role = false;
    }

    /// Something of a message's content begins, or the message ends: its role is before that, if it came before that.
    pub(super) fn role(&mut self, role: Option<&[u8]>) {
        if let Some(role) = role.filter(|_| !self.has_role) {
            self.has_role = true;
            self.push(role);
        }
    }

    /// A part begins.
    pub(super) fn begin_part(&mut self) {
        self.has_part = false;
    }

    /// A part's text begins that is hashed as it comes.
    pub(super) fn begin_part_text(&mut self) {
        self.has_part = true;
    }

    /// The part at hand ends; `text` has what its spans mean.
    pub(super) fn part(&mut self, part: &Part, text: &[u8]) {
        match *part {
            Part::Text(span) if !self.has_part => self.push(span.of(text)),
            Part::Media { kind, content, format } => {
                self.media(kind, content.of(text), format.of(text));
            }
            _ => {}
        }
    }

    fn media(&mut self, kind: MediaKind, content: &[u8], format: &[u8]) {
        let (padding, media) = Media::new(kind, content, format, self.bytes);
        self.push(padding);
        if self.bytes < self.limit {
            media.visit(&mut |piece| self.push(piece));
        } else {
            self.bytes = self.bytes.saturating_add(media.bytes as u64);
        }
    }

    /// The next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.limit.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        self.digester.push(bytes.get(..room).unwrap_or(bytes), &mut self.blocks);
    }

    /// Digests of the whole blocks, and bytes in all.
    pub(super) fn finished(&self) -> (&[u64], u64) {
        (&self.blocks, self.bytes)
    }

    /// Bytes of memory held.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.blocks.capacity().saturating_mul(size_of::<u64>())
    }
}

/// Sizes only: it holds some of a prompt.
impl fmt::Debug for PromptDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptDigest").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
