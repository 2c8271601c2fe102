//! Gives the client's model name back where the engine names the model that the request was rewritten to.
//!
//! Where it stands: in the field `model` of a JSON answer or event, of Anthropic's `message` in it and of the
//! Responses API's `response` in it. Only a field is replaced whose whole value is the target's name; generated
//! text, tool arguments and deeper fields are never touched, whatever they hold. (llm-d replaces the literal
//! `"model":"<target>"` wherever it stands, and misses one that is split over two chunks.)
//!
//! Nothing is delayed but a value of `model` that may still become the target's name.

use super::sse::{EventSink, LineSplitter};
use crate::json::{Container, Handler, Scanner};
use core::ops::Range;
use serde_json::Value;

/// Restores the client's model name in a response that passes by in slices cut anywhere: a JSON document or an
/// event stream, as its first byte tells.
#[derive(Debug, Clone)]
pub struct ModelRestorer {
    /// The client's name as a JSON string, quotes included.
    replacement: Vec<u8>,
    form: Form,
    field: ModelField,
    /// Bytes of the response taken; it may wrap, only differences count.
    taken: usize,
    /// A value of `model` that is not complete.
    held: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Form {
    Unknown,
    Document(Scanner),
    Stream(LineSplitter, Payload),
    /// Read no further: it is not, or no longer, JSON.
    Opaque,
}

/// What a stream's event has of JSON so far.
#[derive(Debug, Clone)]
enum Payload {
    Empty,
    Json(Scanner),
    Other,
}

impl ModelRestorer {
    /// Replaces `target` by `incoming`; `None` if there is nothing to do, since they are equal or one is empty.
    #[must_use]
    pub fn new(target: &str, incoming: &str) -> Option<Self> {
        if target.is_empty() || incoming.is_empty() || target == incoming {
            return None;
        }
        Some(Self {
            replacement: Value::from(incoming).to_string().into_bytes(),
            form: Form::Unknown,
            field: ModelField::new(target),
            taken: 0,
            held: Vec::new(),
        })
    }

    /// Takes the next bytes: what to forward instead, which may be nothing; `None` = forward them as they are.
    pub fn feed(&mut self, slice: &[u8]) -> Option<Vec<u8>> {
        let base = self.taken;
        self.taken = base.wrapping_add(slice.len());
        self.read(slice, base);
        let start = self.field.value_at;
        if self.held.is_empty() && self.field.found.is_empty() && start.is_none() {
            return None;
        }
        let mut out = Vec::with_capacity(slice.len().saturating_add(self.held.len()));
        let mut held = core::mem::take(&mut self.held);
        let mut next = 0;
        // A place before the slice wraps to one beyond it: a value that began earlier, now held back.
        let place = |offset: usize| offset.wrapping_sub(base);
        for found in self.field.found.drain(..) {
            match slice.get(next..place(found.start)) {
                Some(before) => {
                    out.append(&mut held);
                    out.extend_from_slice(before);
                }
                None => held.clear(),
            }
            out.extend_from_slice(&self.replacement);
            next = place(found.end);
        }
        let rest = slice.get(next..).unwrap_or_default();
        let value = start.map_or(rest.len(), |start| place(start).saturating_sub(next));
        match rest.split_at_checked(value) {
            Some((before, value)) => {
                out.append(&mut held);
                out.extend_from_slice(before);
                self.held.extend_from_slice(value);
            }
            None => {
                self.held = held;
                self.held.extend_from_slice(rest);
            }
        }
        Some(out)
    }

    /// The response has ended: what was held back.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        self.form = Form::Opaque;
        self.field.reset();
        core::mem::take(&mut self.held)
    }

    fn read(&mut self, slice: &[u8], base: usize) {
        if matches!(self.form, Form::Unknown) {
            self.form = match slice.trim_ascii_start().first() {
                None => return,
                Some(b'{' | b'[') => Form::Document(Scanner::new()),
                Some(_) => Form::Stream(LineSplitter::default(), Payload::Empty),
            };
        }
        match &mut self.form {
            Form::Document(scanner) => {
                if !self.field.read(scanner, slice, base) {
                    self.form = Form::Opaque;
                }
            }
            Form::Stream(lines, payload) => {
                let base = base.wrapping_sub(lines.taken());
                lines.feed(slice, &mut Events { payload, field: &mut self.field, base });
            }
            Form::Unknown | Form::Opaque => {}
        }
    }
}

/// Hears a stream's lines. A payload may go on over several of them; a value never does.
struct Events<'a> {
    payload: &'a mut Payload,
    field: &'a mut ModelField,
    /// Offset of the stream's first byte.
    base: usize,
}

impl EventSink for Events<'_> {
    fn data(&mut self, piece: &[u8], at: usize) {
        if matches!(self.payload, Payload::Empty) {
            self.field.reset();
            *self.payload = match piece.trim_ascii_start().first() {
                None => return,
                Some(b'{') => Payload::Json(Scanner::new()),
                Some(_) => Payload::Other,
            };
        }
        if let Payload::Json(scanner) = self.payload
            && !self.field.read(scanner, piece, self.base.wrapping_add(at))
        {
            *self.payload = Payload::Other;
        }
    }

    fn data_end(&mut self) {
        let goes_on = match self.payload {
            // The line end is white space of the payload; inside a string it is a fault.
            Payload::Json(scanner) => !scanner.is_done() && self.field.read(scanner, b"\n", 0),
            Payload::Empty | Payload::Other => false,
        };
        if !goes_on {
            self.dispatch();
        }
    }

    fn dispatch(&mut self) {
        *self.payload = Payload::Empty;
        self.field.reset();
    }

    fn comment(&mut self) {}
}

/// What the value to come is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Model,
    /// `message` or `response`, whose own `model` counts.
    Holder,
    Other,
}

/// Finds the values of `model` that are the target's name.
#[derive(Debug, Clone)]
struct ModelField {
    target: Vec<u8>,
    /// Open containers.
    depth: usize,
    /// The container at depth 2 is a holder.
    in_holder: bool,
    slot: Slot,
    /// Where the value being read stands, as long as it may be the target's name.
    value_at: Option<usize>,
    /// Bytes of the target's name that it has.
    matched: usize,
    /// The scanner's offset 0, as an offset of the response.
    origin: usize,
    found: Vec<Range<usize>>,
}

impl ModelField {
    fn new(target: &str) -> Self {
        Self {
            target: target.as_bytes().to_vec(),
            depth: 0,
            in_holder: false,
            slot: Slot::Other,
            value_at: None,
            matched: 0,
            origin: 0,
            found: Vec::new(),
        }
    }

    /// A new document begins.
    fn reset(&mut self) {
        self.depth = 0;
        self.in_holder = false;
        self.slot = Slot::Other;
        self.value_at = None;
    }

    /// Reads `piece`, whose first byte is byte `at` of the response; `false` if it is not JSON.
    fn read(&mut self, scanner: &mut Scanner, piece: &[u8], at: usize) -> bool {
        self.origin = at.wrapping_sub(scanner.taken());
        let is_json = scanner.feed(piece, self).is_ok();
        if !is_json {
            self.value_at = None;
        }
        is_json
    }

    fn counts_here(&self) -> bool {
        self.depth == 1 || (self.depth == 2 && self.in_holder)
    }
}

impl Handler for ModelField {
    fn key(&mut self, name: &[u8]) {
        self.slot = match name {
            b"model" if self.counts_here() => Slot::Model,
            b"message" | b"response" if self.depth == 1 => Slot::Holder,
            _ => Slot::Other,
        };
    }

    fn string_start(&mut self, at: usize) {
        self.value_at = (self.slot == Slot::Model).then(|| self.origin.wrapping_add(at));
        self.matched = 0;
    }

    fn string_piece(&mut self, bytes: &[u8]) {
        if self.value_at.is_some() {
            let rest = self.target.get(self.matched..).unwrap_or_default();
            if rest.starts_with(bytes) {
                self.matched = self.matched.saturating_add(bytes.len());
            } else {
                self.value_at = None;
            }
        }
    }

    fn string_end(&mut self, end: usize) {
        if let Some(start) = self.value_at.take()
            && self.matched == self.target.len()
        {
            self.found.push(start..self.origin.wrapping_add(end));
        }
    }

    fn open(&mut self, container: Container, _at: usize) {
        self.depth = self.depth.saturating_add(1);
        if self.depth == 2 {
            self.in_holder = self.slot == Slot::Holder && container == Container::Object;
        }
        self.slot = Slot::Other;
    }

    fn close(&mut self, _container: Container, _end: usize) {
        self.depth = self.depth.saturating_sub(1);
        self.slot = Slot::Other;
    }
}

#[cfg(test)]
mod tests;
