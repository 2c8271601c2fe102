//! A chat's messages, hashed as they come: what [`approximate`](super::approximate) makes of them, without keeping their
//! contents.
//!
//! Open only where nobody will ask for these again: the prompt is not to be rendered, and no share of a split depends on the
//! conversation. Then a content of megabytes takes a sixteenth of its size here.
//!
//! Two things differ from contents that are kept. A role that comes after its content stands after it. And of a key that an
//! object has twice every value counts, not the last alone: so nothing that the engine may compute is left out of the
//! length that is accounted.

use super::approximate::Media;
use super::facts::{MediaKind, Part, TextSpan};
use core::cell::Cell;
use core::fmt;
use warmroute_shared_state::prefix::{BLOCK_BYTES, BlockDigester};

/// The messages' segment of a prompt.
pub(super) struct PromptDigest {
    digester: BlockDigester,
    /// Taken once: they are as large as what is made of them.
    blocks: Cell<Vec<u64>>,
    /// Bytes that are hashed at most: a few bytes of body can stand for a video.
    limit: u64,
    /// Bytes in all, those beyond the limit included.
    bytes: u64,
    /// The role of the message at hand that is among them.
    role: Option<TextSpan>,
    /// The text of the part at hand was hashed as it came.
    text_is_hashed: bool,
}

impl PromptDigest {
    /// Of `limit` bytes at most.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            digester: BlockDigester::default(),
            blocks: Cell::default(),
            limit: limit as u64,
            bytes: 0,
            role: None,
            text_is_hashed: false,
        }
    }

    /// The messages begin, perhaps anew: of duplicate keys the last counts.
    pub(super) fn restart(&mut self) {
        self.digester = BlockDigester::default();
        self.blocks.get_mut().clear();
        self.bytes = 0;
    }

    /// A message begins.
    pub(super) fn begin_message(&mut self) {
        self.role = None;
    }

    /// Something of a message's content begins, or the message ends: its role stands before that, if it came before that.
    /// `text` has what the span means.
    pub(super) fn role(&mut self, role: Option<TextSpan>, text: &[u8]) {
        if let Some(span) = role.filter(|_| role != self.role) {
            self.role = role;
            self.push(span.of(text));
        }
    }

    /// A part begins.
    pub(super) fn begin_part(&mut self) {
        self.text_is_hashed = false;
    }

    /// A part's text begins; `hashed`: as it comes.
    pub(super) fn begin_part_text(&mut self, hashed: bool) {
        self.text_is_hashed = hashed;
    }

    /// The part at hand ends; `text` has what its spans mean.
    pub(super) fn part(&mut self, part: &Part, text: &[u8]) {
        match *part {
            Part::Text(span) if !self.text_is_hashed => self.push(span.of(text)),
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
        self.digester.push(bytes.get(..room).unwrap_or(bytes), self.blocks.get_mut());
    }

    /// So many bytes are to come in all, for certain: one reservation instead of doubling.
    pub(super) fn expect(&mut self, bytes: usize) {
        let hashed = bytes.min(usize::try_from(self.limit).unwrap_or(usize::MAX));
        let blocks = self.blocks.get_mut();
        let more = (hashed / BLOCK_BYTES).saturating_sub(blocks.len());
        let _ = blocks.try_reserve_exact(more);
    }

    /// Digests of the whole blocks; once.
    pub(super) fn take_blocks(&self) -> Vec<u64> {
        self.blocks.take()
    }

    /// Bytes in all.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory held.
    pub(super) fn held_bytes(&mut self) -> usize {
        self.blocks.get_mut().capacity().saturating_mul(size_of::<u64>())
    }
}

/// Sizes only: it holds some of a prompt.
impl fmt::Debug for PromptDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptDigest").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
