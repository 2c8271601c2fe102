//! The quick way for long texts: the template runs over short stand-ins, and the texts are put in afterwards.
//!
//! A long content is handed over as its first and last bytes with a mark between ([`mark`]). What a template does to contents is
//! mostly to put them between other strings, and that cannot tell the difference; what could tell it is kept apart:
//! - [`audit`](crate::audit) looks at the template once, and gives up on one that compares, slices or loops over what
//!   may be a content;
//! - texts in which a template would find something (`'</think>' in content`) are not shortened;
//! - stripping and looking at either end see the text's own first and last bytes, which are enough of them;
//! - all else that looks into a string (its length, its JSON) fails on a mark, and then the whole texts are rendered.

use crate::conversation::{Body, Turn};
use memchr::memmem;
use std::borrow::Cow;

/// Begins and ends a mark: a character that no text has, since Unicode says so (U+10FFFE).
pub(crate) const MARK: char = '\u{10fffe}';
/// Its bytes in UTF-8.
const MARK_TEXT: &str = "\u{10fffe}";

/// Stands in a mark behind its number. Whatever a template does to a text but put it somewhere (write it as Python or JSON
/// would, change its case, join its characters) changes this, too, and then the mark is none.
pub(crate) const FRAGILE: &str = "'\"\\qQ\u{e9}";

/// The mark of a text.
pub(crate) fn mark(number: usize) -> String {
    format!("{MARK}{number}{FRAGILE}{MARK}")
}

/// The least that is kept of a text at either end, in bytes; no template strips, compares or slices more.
pub(crate) const EDGE: usize = 64;
/// How far beyond that a place to cut is looked for.
const REACH: usize = 192;
/// Shorter texts stay whole.
const LONG: usize = 1024;

/// What a template looks for in texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needles {
    texts: Vec<Box<[u8]>>,
    /// First bytes of the texts and of a mark: one that occurs in a text is looked at.
    first: Vec<u8>,
}

impl Needles {
    /// `None` if there are too many to look for in one go, or if a mark has one.
    pub(crate) fn new(texts: Vec<String>) -> Option<Self> {
        if texts.iter().any(|text| FRAGILE.contains(text.as_str())) {
            return None;
        }
        let texts = texts.into_iter().chain([MARK_TEXT.to_owned()]);
        let mut texts: Vec<Box<[u8]>> = texts.map(|text| text.into_bytes().into()).collect();
        texts.sort_unstable();
        texts.dedup();
        let mut first: Vec<u8> = texts.iter().filter_map(|text| text.first().copied()).collect();
        first.sort_unstable();
        first.dedup();
        (first.len() <= 3).then_some(Self { texts, first })
    }

    pub(crate) fn occur_in(&self, text: &[u8]) -> bool {
        let mut from = 0usize;
        while let Some(at) = self.next_first(text.get(from..).unwrap_or_default()) {
            let rest = text.get(from.saturating_add(at)..).unwrap_or_default();
            // Nearly all are told apart by the byte that follows.
            let second = rest.get(1);
            let found = |needle: &[u8]| {
                let same = needle.get(1).is_none_or(|byte| Some(byte) == second);
                same && rest.starts_with(needle)
            };
            if self.texts.iter().any(|needle| found(needle)) {
                return true;
            }
            from = from.saturating_add(at).saturating_add(1);
        }
        false
    }

    /// Where the next byte stands that a needle may begin with.
    #[inline]
    fn next_first(&self, text: &[u8]) -> Option<usize> {
        match *self.first.as_slice() {
            [a] => memchr::memchr(a, text),
            [a, b] => memchr::memchr2(a, b, text),
            [a, b, c] => memchr::memchr3(a, b, c, text),
            _ => (!text.is_empty()).then_some(0),
        }
    }
}

/// What was taken out of a conversation.
pub(crate) struct Removed<'a> {
    texts: Vec<&'a [u8]>,
    /// Bytes in all.
    pub(crate) bytes: usize,
}

/// Shortens the long texts of a conversation; `in_parts` if the template takes contents as lists. `None` if a text
/// holds what could be taken for a mark (no JSON value does: reading it refuses that).
pub(crate) fn shorten<'a>(
    turns: &mut [Turn<'a>],
    needles: &Needles,
    in_parts: bool,
) -> Option<Removed<'a>> {
    let is_marked = |text: &[u8]| memmem::find(text, MARK_TEXT.as_bytes()).is_some();
    let mut removed = Removed { texts: Vec::new(), bytes: 0 };
    for turn in turns {
        if turn.labels().any(|label| is_marked(label.as_bytes())) {
            return None;
        }
        match &mut turn.content {
            // A template that loops over contents would loop over this one's characters.
            Body::Text(text) if in_parts && is_marked(text) => return None,
            Body::Text(_) if in_parts => {}
            Body::Text(text) => removed.take_from(text, needles)?,
            Body::Parts(texts) => {
                for text in texts {
                    removed.take_from(text, needles)?;
                }
            }
        }
    }
    Some(removed)
}

impl<'a> Removed<'a> {
    /// `None` if the text looks marked.
    fn take_from(&mut self, text: &mut Cow<'a, [u8]>, needles: &Needles) -> Option<()> {
        let parts = match *text {
            Cow::Borrowed(whole) if !needles.occur_in(whole) => cut(whole),
            _ if memmem::find(text, MARK_TEXT.as_bytes()).is_some() => return None,
            _ => None,
        };
        let Some((head, middle, tail)) = parts else { return Some(()) };
        *text = Cow::Owned([head, mark(self.texts.len()).as_bytes(), tail].concat());
        self.texts.push(middle);
        self.bytes = self.bytes.saturating_add(middle.len());
        Some(())
    }

    /// Gives out `prompt` with the texts put in, `limit` bytes of it at most. Nothing is given out if the marks are
    /// not as they were made.
    pub(crate) fn put_into(
        &self,
        prompt: &str,
        limit: usize,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), BrokenMark> {
        let mut resolved = Vec::new();
        for piece in pieces_of(prompt)? {
            resolved.push(match piece {
                Piece::Given(text) => text.as_bytes(),
                Piece::Removed(number) => self.texts.get(number).ok_or(BrokenMark)?,
            });
        }
        give_out(resolved.into_iter(), limit, out);
        Ok(())
    }
}

/// Gives out pieces in turn, `limit` bytes at most, and no part of a character.
pub(crate) fn give_out<'p>(
    pieces: impl Iterator<Item = &'p [u8]>,
    limit: usize,
    out: &mut dyn FnMut(&[u8]),
) {
    let mut left = limit;
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        if piece.len() > left {
            let begins = |at: &usize| piece.get(*at).is_some_and(|byte| byte & 0xC0 != 0x80);
            let cut = (0..=left).rev().find(begins).unwrap_or(0);
            if let Some(piece) = piece.get(..cut).filter(|piece| !piece.is_empty()) {
                out(piece);
            }
            return;
        }
        left = left.saturating_sub(piece.len());
        out(piece);
    }
}

/// A piece of a prompt that was made with marks.
pub(crate) enum Piece<'p> {
    /// What the template saw of it.
    Given(&'p str),
    /// The text with this number is missing here.
    Removed(usize),
}

/// The pieces of a prompt, in turn.
pub(crate) fn pieces_of(prompt: &str) -> Result<Vec<Piece<'_>>, BrokenMark> {
    let mut pieces = Vec::new();
    for (index, piece) in prompt.split(MARK).enumerate() {
        pieces.push(if index.is_multiple_of(2) {
            Piece::Given(piece)
        } else {
            let number = piece.strip_suffix(FRAGILE).ok_or(BrokenMark)?;
            let parsed: usize = number.parse().map_err(|_| BrokenMark)?;
            if parsed.to_string() != number {
                return Err(BrokenMark);
            }
            Piece::Removed(parsed)
        });
    }
    if pieces.len().is_multiple_of(2) { Err(BrokenMark) } else { Ok(pieces) }
}

/// A mark that the template took apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrokenMark;

/// Head, middle and tail of a long text. The cuts are before ASCII characters, so that each piece can be normalised by
/// itself; both ends hold a letter or digit, so that stripping stops inside them.
fn cut(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    if text.len() < LONG {
        return None;
    }
    let is_ascii = |at: &usize| text.get(*at).is_some_and(u8::is_ascii);
    let front = (EDGE..EDGE.saturating_add(REACH)).find(is_ascii)?;
    let last = text.len().checked_sub(EDGE)?;
    let back = (last.checked_sub(REACH)?..=last).rev().find(is_ascii)?;
    let (head, rest) = text.split_at_checked(front)?;
    let (middle, tail) = rest.split_at_checked(back.checked_sub(front)?)?;
    let stops = |edge: &[u8]| edge.iter().any(u8::is_ascii_alphanumeric);
    (stops(head) && stops(tail)).then_some((head, middle, tail))
}
