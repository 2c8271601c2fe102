//! Documents longer than a frame come in parts.

/// Bytes of one document at most.
const MAX_BYTES: usize = 1 << 20;

/// A document of which parts are still to come. They come in order; what does not fit is dropped.
#[derive(Debug, Default)]
pub(super) struct Parts {
    revision: u64,
    next: u16,
    bytes: Vec<u8>,
}

impl Parts {
    /// A part came. Returns the document if that was the last.
    pub(super) fn add(
        &mut self,
        revision: u64,
        part: u16,
        parts: u16,
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        if part == 0 {
            *self = Self { revision, ..Self::default() };
        }
        let fits = self.revision == revision
            && self.next == part
            && self.bytes.len().saturating_add(bytes.len()) <= MAX_BYTES;
        if !fits {
            *self = Self::default();
            return None;
        }
        self.bytes.extend_from_slice(bytes);
        self.next = part.saturating_add(1);
        (self.next == parts).then(|| core::mem::take(self).bytes)
    }
}
