//! Prompts by their shape. What a template makes of a conversation whose texts are all plain
//! ([`plain_text`](crate::plain_text)) depends on its roles, tools and arguments alone: it is the same bytes with the texts
//! between them. Those are kept, and the next conversation of that shape needs no run of the template.
//!
//! Conversations have few shapes: roles take turns. Nothing of a client's text is kept, only what the template put around
//! it, and what the shape is told by.

use crate::conversation::{Body, Turn};
use crate::plain_text::{PlainText, TextUses, is_within};
use crate::request::{ChatRequest, Tools};
use crate::shortening::{self, BrokenMark, MARK, Needles, mark, pieces_of};
use std::borrow::Cow;

/// The most plans of one template.
const MOST_PLANS: usize = 64;
/// The most bytes of all plans of one template.
const MOST_BYTES: usize = 1 << 20;
/// The most bytes that one shape is told by.
const MOST_TOLD: usize = 128 << 10;
/// The most bytes that a template may put around the texts of one shape.
pub(crate) const MOST_PLANNED: usize = 128 << 10;
/// Different roles, and the bytes of one: a shape has no room for more.
const MOST_ROLES: usize = 8;
const LONGEST_ROLE: usize = 64;

/// A conversation's shape, and the texts that it leaves out.
pub(crate) struct Shape<'a> {
    key: Vec<u8>,
    texts: Vec<PlainText<'a>>,
}

impl<'a> Shape<'a> {
    /// `day` is the number of the day that a template may show. `None` if a text is not plain, or if there is more to the
    /// conversation than texts.
    pub(crate) fn of(
        request: &ChatRequest<'a>,
        turns: &[Turn<'a>],
        uses: &TextUses,
        needles: &Needles,
        in_parts: bool,
        day: u64,
    ) -> Option<Self> {
        if request.documents.is_some() || request.continue_final_message == Some(true) {
            return None;
        }
        let mut shape = Self { key: day.to_le_bytes().into(), texts: Vec::new() };
        let mut roles: Vec<&str> = Vec::new();
        for turn in turns {
            if !turn.is_only_text() || turn.role.len() > LONGEST_ROLE || turn.role.contains(MARK) {
                return None;
            }
            if !roles.contains(&turn.role) {
                if roles.len() == MOST_ROLES {
                    return None;
                }
                roles.push(turn.role);
            }
            shape.tell(turn.role.as_bytes())?;
            match &turn.content {
                // A template that loops over contents would loop over this one's characters.
                Body::Text(_) if in_parts => return None,
                Body::Text(text) => shape.text(text, uses)?,
                Body::Parts(texts) => {
                    shape.tell(&u32::try_from(texts.len()).ok()?.to_le_bytes())?;
                    texts.iter().try_for_each(|text| shape.text(text, uses))?;
                }
            }
        }
        // Contents may be compared with roles.
        let is_role = |text: &PlainText<'_>| roles.iter().any(|role| is_within(text.text, role));
        if shape.texts.iter().any(is_role) {
            return None;
        }
        let (kind, tools) = match request.tools {
            None => (0, None),
            Some(Tools::OpenAi(raw)) => (1, Some(raw)),
            Some(Tools::Anthropic(raw)) => (2, Some(raw)),
        };
        shape.key.push(kind);
        for raw in [tools, request.template_arguments, request.reasoning_effort.map(str::as_bytes)]
        {
            shape.key.push(raw.is_some().into());
            shape.tell(raw.unwrap_or_default())?;
        }
        shape.key.push(request.add_generation_prompt.unwrap_or(true).into());
        let found = shape.texts.iter().any(|text| needles.occur_in(text.text));
        (!found).then_some(shape)
    }

    /// `None` if that is too much to tell a shape by.
    fn tell(&mut self, bytes: &[u8]) -> Option<()> {
        if self.key.len().saturating_add(bytes.len()) > MOST_TOLD {
            return None;
        }
        self.key.extend((bytes.len() as u64).to_le_bytes());
        self.key.extend(bytes);
        Some(())
    }

    // Only what is borrowed outlives the turns.
    #[allow(clippy::ptr_arg)]
    fn text(&mut self, text: &Cow<'a, [u8]>, uses: &TextUses) -> Option<()> {
        self.key.push(u8::from(!text.is_empty()));
        let text = match *text {
            Cow::Borrowed([]) => return Some(()),
            Cow::Borrowed(text) => uses.plain_text(text)?,
            Cow::Owned(_) => return None,
        };
        self.tell(text.before)?;
        self.tell(text.behind)?;
        self.texts.push(text);
        Some(())
    }

    /// Its turns with stand-ins for their texts.
    pub(crate) fn with_stand_ins<'t>(&self, turns: &[Turn<'t>]) -> Vec<Turn<'t>> {
        let mut texts = self.texts.iter().enumerate();
        let mut stand_in = |text: &mut Cow<'_, [u8]>| {
            if !text.is_empty()
                && let Some((number, PlainText { before, behind, .. })) = texts.next()
            {
                *text = Cow::Owned([before, mark(number).as_bytes(), behind].concat());
            }
        };
        let mut turns = turns.to_vec();
        for turn in &mut turns {
            match &mut turn.content {
                Body::Text(text) => stand_in(text),
                Body::Parts(texts) => texts.iter_mut().for_each(&mut stand_in),
            }
        }
        turns
    }
}

/// A piece of a prompt.
enum Piece {
    Literal(Box<[u8]>),
    /// The text of that number.
    Text(usize),
}

/// What a template makes of one shape.
struct Plan {
    key: Box<[u8]>,
    /// `None`: it cannot be made this way.
    pieces: Option<Vec<Piece>>,
}

impl Plan {
    /// Bytes of memory held.
    fn bytes(&self) -> usize {
        let piece = |piece: &Piece| match piece {
            Piece::Literal(text) => text.len().saturating_add(size_of::<Piece>()),
            Piece::Text(_) => size_of::<Piece>(),
        };
        let pieces = self.pieces.iter().flatten().map(piece);
        pieces.fold(self.key.len(), usize::saturating_add)
    }
}

/// Plans of one template, the last used last.
#[derive(Default)]
pub(crate) struct Plans {
    plans: Vec<Plan>,
    bytes: usize,
}

impl Plans {
    /// Gives out the prompt of a shape that is known, `limit` bytes at most. Whether it could be made this way; `None` if
    /// the shape is not known.
    pub(crate) fn give(
        &mut self,
        shape: &Shape<'_>,
        limit: usize,
        out: &mut dyn FnMut(&[u8]),
    ) -> Option<bool> {
        let at = self.plans.iter().rposition(|plan| *plan.key == *shape.key)?;
        self.plans.get_mut(at..)?.rotate_left(1);
        let pieces = self.plans.last()?.pieces.as_ref();
        if let Some(pieces) = pieces {
            give_out(pieces, &shape.texts, limit, out);
        }
        Some(pieces.is_some())
    }

    /// Keeps what the template made of the stand-ins, if it made anything, and gives the prompt out; whether it could be.
    pub(crate) fn keep(
        &mut self,
        shape: Shape<'_>,
        prompt: Option<&str>,
        limit: usize,
        out: &mut dyn FnMut(&[u8]),
    ) -> bool {
        let prompt = prompt.filter(|prompt| prompt.len() <= MOST_PLANNED);
        let pieces = prompt.and_then(|prompt| plan(prompt, shape.texts.len()).ok());
        if let Some(pieces) = &pieces {
            give_out(pieces, &shape.texts, limit, out);
        }
        let is_made = pieces.is_some();
        let plan = Plan { key: shape.key.into(), pieces };
        self.bytes = self.bytes.saturating_add(plan.bytes());
        self.plans.push(plan);
        while self.plans.len() > MOST_PLANS || self.bytes > MOST_BYTES {
            let oldest = self.plans.remove(0);
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
        }
        is_made
    }
}

/// The pieces of a prompt that was made of stand-ins for so many texts. An error if the marks are not as they were made, or
/// if a piece could not be normalised by itself.
fn plan(prompt: &str, texts: usize) -> Result<Vec<Piece>, BrokenMark> {
    let mut pieces = Vec::new();
    for piece in pieces_of(prompt)? {
        match piece {
            shortening::Piece::Given("") => {}
            shortening::Piece::Given(text) => {
                if !pieces.is_empty() && !text.starts_with(|c: char| c.is_ascii()) {
                    return Err(BrokenMark);
                }
                pieces.push(Piece::Literal(text.as_bytes().into()));
            }
            shortening::Piece::Removed(number) if number < texts => {
                pieces.push(Piece::Text(number));
            }
            shortening::Piece::Removed(_) => return Err(BrokenMark),
        }
    }
    Ok(pieces)
}

fn give_out(pieces: &[Piece], texts: &[PlainText<'_>], limit: usize, out: &mut dyn FnMut(&[u8])) {
    let bytes = pieces.iter().map(|piece| match piece {
        Piece::Literal(text) => &**text,
        Piece::Text(number) => texts.get(*number).map_or(b"".as_slice(), |text| text.text),
    });
    shortening::give_out(bytes, limit, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(key: Vec<u8>) -> Shape<'static> {
        let text = PlainText { before: b"", text: b"secret", behind: b"" };
        Shape { key, texts: vec![text] }
    }

    fn key(number: usize, bytes: usize) -> Vec<u8> {
        [number.to_le_bytes().as_slice(), &vec![0; bytes]].concat()
    }

    fn keep(plans: &mut Plans, key: Vec<u8>, prompt: Option<&str>) -> bool {
        plans.keep(shape(key), prompt, usize::MAX, &mut |_| {})
    }

    fn give(plans: &mut Plans, key: Vec<u8>) -> Option<bool> {
        plans.give(&shape(key), usize::MAX, &mut |_| {})
    }

    #[test]
    fn few_are_kept_and_those_that_were_used_longest() {
        let prompt = format!("a{}b", mark(0));
        let mut plans = Plans::default();
        for number in 0..1_000 {
            assert!(keep(&mut plans, key(number, 0), Some(&prompt)));
            assert_eq!(give(&mut plans, key(0, 0)), Some(true), "in use");
        }
        assert_eq!(plans.plans.len(), MOST_PLANS);
        assert_eq!(give(&mut plans, key(900, 0)), None);
        for number in 0..1_000 {
            assert!(keep(&mut plans, key(number, 60_000), Some(&prompt)));
            assert!(plans.bytes <= MOST_BYTES);
        }
        let held = plans.plans.iter().map(Plan::bytes).sum::<usize>();
        assert_eq!(plans.bytes, held);
        assert_eq!(give(&mut plans, key(999, 60_000)), Some(true));
    }

    #[test]
    fn what_cannot_be_made_is_remembered_and_what_is_too_long_is_not_kept() {
        let long = format!("{}{}", mark(0), "x".repeat(MOST_PLANNED));
        let mut plans = Plans::default();
        for (number, prompt) in [None, Some("\u{10fffe}0\u{10fffe}"), Some(&*mark(1)), Some(&*long)]
            .into_iter()
            .enumerate()
        {
            assert!(!keep(&mut plans, key(number, 0), prompt), "{number}");
            assert_eq!(give(&mut plans, key(number, 0)), Some(false), "{number}");
        }
        assert!(plans.bytes < 1_000);
    }

    #[test]
    fn no_text_is_kept() {
        let mut plans = Plans::default();
        let mut prompt = Vec::new();
        let out = &mut |piece: &[u8]| prompt.extend_from_slice(piece);
        assert!(plans.keep(shape(key(0, 0)), Some(&format!("a{}b", mark(0))), usize::MAX, out));
        assert_eq!(prompt, b"asecretb");
        for plan in &plans.plans {
            for piece in plan.pieces.iter().flatten() {
                assert!(
                    !matches!(piece, Piece::Literal(text) if memchr::memmem::find(text, b"secret").is_some())
                );
            }
        }
    }
}
