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
/// The most bytes that one shape is told by, and that a plan has.
const MOST_BYTES_EACH: usize = 128 << 10;
/// Different roles, and the bytes of one: a shape has no room for more.
const MOST_ROLES: usize = 8;
const LONGEST_ROLE: usize = 64;

/// A conversation's shape, and the texts that it leaves out.
pub(crate) struct Shape<'a> {
    key: Vec<u8>,
    texts: Vec<PlainText<'a>>,
}

impl<'a> Shape<'a> {
    /// `day` is the number of the day that a template may show. `None` if a text is not plain, or if there is more to the conversation than texts.
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
        if self.key.len().saturating_add(bytes.len()) > MOST_BYTES_EACH {
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

    /// Puts stand-ins for the texts of its turns.
    pub(crate) fn put_stand_ins(&self, turns: &mut [Turn<'_>]) {
        let mut texts = self.texts.iter().enumerate();
        let mut stand_in = |text: &mut Cow<'_, [u8]>| {
            if !text.is_empty()
                && let Some((number, PlainText { before, behind, .. })) = texts.next()
            {
                *text = Cow::Owned([before, mark(number).as_bytes(), behind].concat());
            }
        };
        for turn in turns {
            match &mut turn.content {
                Body::Text(text) => stand_in(text),
                Body::Parts(texts) => texts.iter_mut().for_each(&mut stand_in),
            }
        }
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
    /// Bytes of the key and of the literals.
    bytes: usize,
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
        let pieces = prompt.and_then(|prompt| plan(prompt, shape.texts.len()).ok());
        if let Some(pieces) = &pieces {
            give_out(pieces, &shape.texts, limit, out);
        }
        let is_made = pieces.is_some();
        let literals = prompt.filter(|_| is_made).map_or(0, str::len);
        let count = pieces.as_ref().map_or(0, Vec::len);
        let bytes = shape
            .key
            .len()
            .saturating_add(literals)
            .saturating_add(count.saturating_mul(size_of::<Piece>()));
        if bytes <= MOST_BYTES_EACH.saturating_mul(2) {
            self.bytes = self.bytes.saturating_add(bytes);
            self.plans.push(Plan { key: shape.key.into(), pieces, bytes });
            while self.plans.len() > MOST_PLANS || self.bytes > MOST_BYTES {
                let oldest = self.plans.remove(0);
                self.bytes = self.bytes.saturating_sub(oldest.bytes);
            }
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
