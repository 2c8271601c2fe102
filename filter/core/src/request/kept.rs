//! Values kept as the client wrote them: noted by offset while the scanner runs over them, copied slice by
//! slice, since the body itself is not held.

use super::facts::{ByteSpan, Captured, TextSpan, clamp, widen};
use super::scratch::Scratch;

/// Which values are being kept and copied.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Keeper {
    /// The last value noted is not complete.
    open: bool,
    /// Values copied in full so far.
    copied: usize,
}

impl Keeper {
    /// A value to keep begins at `at`. Gives its index among the captures.
    pub(super) fn begin(&mut self, at: usize, scratch: &mut Scratch) -> u32 {
        let index = scratch.captures.len();
        self.open = true;
        scratch.push_capture(Captured {
            body: ByteSpan::new(at, usize::MAX),
            copy: TextSpan::default(),
        });
        clamp(index)
    }

    /// A value that may be one to keep ends before `end`.
    pub(super) fn end(&mut self, end: usize, scratch: &mut Scratch) {
        if self.open {
            self.open = false;
            if let Some(captured) = scratch.captures.last_mut() {
                captured.body.end = clamp(end);
            }
        }
    }

    /// Copies what `slice` (whose first byte is byte `base` of the body) holds of the values to keep. They
    /// come in order and never overlap, so all that was copied of one is contiguous.
    pub(super) fn copy(&mut self, slice: &[u8], base: usize, scratch: &mut Scratch) {
        let Scratch { captures, raw, .. } = scratch;
        let slice_end = base.saturating_add(slice.len());
        for captured in captures.iter_mut().skip(self.copied) {
            let (start, end) = (widen(captured.body.start), widen(captured.body.end));
            let from = start.max(base).saturating_sub(base);
            let to = end.min(slice_end).saturating_sub(base);
            let before = raw.len();
            raw.extend_from_slice(slice.get(from..to).unwrap_or_default());
            captured.copy = if start >= base {
                TextSpan::new(before, raw.len())
            } else {
                captured.copy.extended_to(raw.len())
            };
            if end > slice_end {
                return;
            }
            self.copied = self.copied.saturating_add(1);
        }
    }
}
