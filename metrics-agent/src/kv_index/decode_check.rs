//! Whether ids that an engine may have sampled are those that their text would be encoded to.
//!
//! The next turn's prompt holds an answer as text. Where encoding that text gives other ids than
//! the ones sampled, the engine will not find its blocks, though the bytes are the same: see
//! `docs/decisions/bytes.md`.
//!
//! The block is encoded again together with the last bytes before it, and the result must have a
//! token boundary where the block begins, and the block's own ids after it. Those last bytes may
//! begin in the middle of a word, so several beginnings are tried; ids that come out right from
//! any of them are right, for what an encoder makes of a word depends on nothing before that word.

use super::ModelContext;

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The block's ids are its text's.
    Same,
    /// Its text has other ids.
    Differs,
    /// Even the last id before the block would be another one.
    BeforeDiffers,
}

/// Most bytes before the block that are encoded again.
const CONTEXT: usize = 48;
/// Most bytes of a block's text: a block of more tokens than that could need is not checked, and ends the chain.
const MAX_TEXT: usize = 64 << 10;

/// Memory to reuse.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    text: Vec<u8>,
    ids: Vec<u32>,
}

/// Checks `ids` that follow `before` bytes, the last of which are `tail`.
pub(super) fn check(
    scratch: &mut Scratch,
    before: u32,
    tail: &[u8],
    ids: &[u32],
    model: &ModelContext<'_>,
) -> Verdict {
    let context = tail.get(tail.len().saturating_sub(CONTEXT)..).unwrap_or_default();
    let Scratch { text, ids: encoded } = scratch;
    text.clear();
    text.extend_from_slice(context);
    // Ids up to the last one that ends with a whole character: of the rest, the next block tells.
    let mut checked = (0, text.len());
    for (count, id) in (1..).zip(ids) {
        let Some(bytes) = model.tokens.get(*id) else { break };
        text.extend_from_slice(bytes);
        if text.len() > MAX_TEXT {
            return Verdict::Differs;
        }
        if !ends_inside_character(text) {
            checked = (count, text.len());
        }
    }
    let (count, end) = checked;
    text.truncate(end);
    let Some(ids) = ids.get(..count) else { return Verdict::Differs };
    let mut worst = Verdict::BeforeDiffers;
    for start in starts(context, before) {
        let Some(Ok(text)) = text.get(start..).map(std::str::from_utf8) else { continue };
        encoded.clear();
        if !model.encoder.encode(text, encoded) {
            return Verdict::Differs;
        }
        match compare(encoded, context.len().saturating_sub(start), ids, model) {
            Verdict::Same => return Verdict::Same,
            Verdict::Differs => worst = Verdict::Differs,
            Verdict::BeforeDiffers => {}
        }
    }
    worst
}

/// Whether `encoded` has a boundary `skip` bytes from its start, and `ids` after it.
fn compare(encoded: &[u32], skip: usize, ids: &[u32], model: &ModelContext<'_>) -> Verdict {
    let mut bytes = 0usize;
    let mut position = 0usize;
    while bytes < skip {
        let Some(id) = encoded.get(position) else { return Verdict::BeforeDiffers };
        let Some(len) = model.tokens.get(*id).map(<[u8]>::len) else { return Verdict::Differs };
        bytes = bytes.saturating_add(len);
        position = position.saturating_add(1);
    }
    if bytes > skip {
        return Verdict::BeforeDiffers;
    }
    if encoded.get(position..) == Some(ids) { Verdict::Same } else { Verdict::Differs }
}

/// Where to begin: after a word that is surely over, at the first whole character, in between.
fn starts(context: &[u8], before: u32) -> impl Iterator<Item = usize> {
    let first = context.iter().position(|byte| !is_continuation(*byte)).unwrap_or(context.len());
    let whole = before as usize == context.len();
    // A letter and then a space: every tokenizer that splits words splits there.
    let space = context
        .windows(2)
        .position(|pair| matches!(pair, [letter, b' '] if letter.is_ascii_alphabetic()));
    let word = space.map(|at| at.saturating_add(1)).filter(|_| !whole);
    let newline = context
        .windows(2)
        .rposition(|pair| matches!(pair, [b'\n', other] if other.is_ascii_alphabetic()))
        .map(|at| at.saturating_add(1))
        .filter(|_| !whole);
    let second = context.get(first..).and_then(|rest| {
        let skip = rest.iter().skip(1).position(|byte| !is_continuation(*byte))?;
        Some(first.saturating_add(skip).saturating_add(1))
    });
    [word, Some(first), newline, second.filter(|_| !whole)].into_iter().flatten()
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// Whether the text stops in the middle of a UTF-8 character.
fn ends_inside_character(text: &[u8]) -> bool {
    let tail = text.get(text.len().saturating_sub(3)..).unwrap_or_default();
    let Some(lead) = tail.iter().rposition(|byte| !is_continuation(*byte)) else { return false };
    let have = tail.len().saturating_sub(lead);
    let need = match tail.get(lead) {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => 1,
    };
    have < need
}
