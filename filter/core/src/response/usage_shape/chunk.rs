//! Where the usage stands in a chunk, and whether the chunk is there for nothing else.

use crate::json::{Container, Handler, Scalar};
use core::ops::Range;

/// What a chunk's `choices` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Choices {
    /// Not there, so far.
    #[default]
    Unseen,
    /// Empty, or null.
    None,
    /// There is one, or something else that is not nothing.
    Some,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Field {
    Usage,
    Choices,
    #[default]
    Other,
}

/// Reads one chunk. Offsets are those of the stream, which may wrap.
#[derive(Debug, Clone, Default)]
pub(super) struct ChunkShape {
    /// The offset in the stream of the chunk's byte 0, if it were in one piece with the byte being read.
    pub(super) origin: usize,
    pub(super) choices: Choices,
    /// There is a `usage` that says something.
    pub(super) has_usage: bool,
    /// Where each `usage` stands, with the comma that goes with it.
    pub(super) cuts: Vec<Range<usize>>,
    /// From here on it may be one.
    pub(super) hold: Option<usize>,
    depth: usize,
    field: Field,
    /// The value being read is a list of choices.
    in_choices: bool,
    /// Where the last thing that stays ends: a field, or the opening bracket.
    kept_end: usize,
    /// Some field stays: the comma before a `usage` goes, else that after it.
    keeps_field: bool,
    /// Where a `usage` begins whose comma comes after it.
    open_cut: Option<usize>,
}

impl ChunkShape {
    fn place(&self, at: usize) -> usize {
        self.origin.wrapping_add(at)
    }

    /// A value begins.
    fn begin(&mut self, is_nothing: bool) {
        if self.depth == 2 && self.in_choices {
            self.choices = Choices::Some;
        }
        if self.depth == 1 && self.field == Field::Choices {
            self.choices = match self.choices {
                Choices::Unseen | Choices::None if is_nothing => Choices::None,
                _ => Choices::Some,
            };
        }
    }

    /// A value ends before `end`.
    fn end(&mut self, end: usize) {
        if self.depth != 1 {
            return;
        }
        let end = self.place(end);
        self.hold = Some(end);
        if self.field != Field::Usage {
            self.keeps_field = true;
        } else if self.keeps_field {
            self.cuts.push(self.kept_end..end);
        } else {
            self.open_cut = Some(self.kept_end);
            self.hold = self.open_cut;
        }
        self.kept_end = end;
        self.in_choices = false;
    }
}

impl Handler for ChunkShape {
    fn key_start(&mut self, at: usize) {
        if self.depth == 1
            && let Some(from) = self.open_cut.take()
        {
            self.kept_end = self.place(at);
            self.cuts.push(from..self.kept_end);
            self.hold = Some(self.kept_end);
        }
    }

    fn key(&mut self, name: &[u8]) {
        if self.depth != 1 {
            return;
        }
        self.field = match name {
            b"usage" => Field::Usage,
            b"choices" => Field::Choices,
            _ => Field::Other,
        };
        if self.field != Field::Usage {
            self.hold = None;
        }
    }

    fn string_start(&mut self, _at: usize) {
        self.begin(false);
    }

    fn string_end(&mut self, end: usize) {
        self.end(end);
    }

    fn scalar(&mut self, value: Scalar, _at: usize, end: usize) {
        self.begin(value == Scalar::Null);
        self.end(end);
    }

    fn open(&mut self, container: Container, at: usize) {
        let is_list = container == Container::Array;
        self.begin(is_list);
        if self.depth == 0 {
            self.kept_end = self.place(at).wrapping_add(1);
            self.hold = Some(self.kept_end);
        }
        if self.depth == 1 {
            self.has_usage |= self.field == Field::Usage && !is_list;
            self.in_choices = self.field == Field::Choices && is_list;
        }
        self.depth = self.depth.saturating_add(1);
    }

    fn close(&mut self, _container: Container, end: usize) {
        self.depth = self.depth.saturating_sub(1);
        self.end(end);
        if self.depth == 0 {
            self.hold = None;
            if let Some(from) = self.open_cut.take() {
                self.cuts.push(from..self.place(end).wrapping_sub(1));
            }
        }
    }
}
