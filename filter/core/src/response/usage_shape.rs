//! Takes the usage out of a stream whose client did not ask for it, while we asked the engine.
//!
//! Two things bring usage into a stream of chat or text completions: `include_usage` a last chunk of its own (`choices`
//! empty or null), which goes with all lines of its event; `continuous_usage_stats` a field `usage` of every chunk,
//! which goes with its comma. Every other byte stays as the engine sent it.
//!
//! Held back is only what may still have to go: an event up to its first choice, and after it what may become a
//! field `usage`. A comment inside an event shares its fate. An event that is not JSON passes.

mod chunk;

use super::sse::{EventSink, LineSplitter};
use crate::json::Scanner;
use crate::request::RequestFacts;
use chunk::{Choices, ChunkShape};
use core::ops::Range;

/// An event that holds more back is passed on as it is: no chunk that is to go is as long.
const MAX_HELD: usize = 16 << 10;

/// What a client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// No usage at all.
    Nothing,
    /// `include_usage`, but not `continuous_usage_stats`: the last chunk stays as it is.
    LastChunk,
}

impl Asked {
    /// What has to be taken out again of the answer to a request whose splices were
    /// [`usage_splices`](RequestFacts::usage_splices); `None` if nothing was asked for that the client did not ask for.
    #[must_use]
    pub fn by(facts: &RequestFacts, continuous: bool) -> Option<Self> {
        if !facts.stream || !facts.path.asks_for_usage() {
            return None;
        }
        let options = facts.stream_options.unwrap_or_default();
        let wants = |field: Option<crate::request::Field<Option<bool>>>| {
            field.and_then(|field| field.value) == Some(true)
        };
        match (wants(options.include_usage), wants(options.continuous_usage_stats)) {
            (false, _) => Some(Self::Nothing),
            (true, false) if continuous => Some(Self::LastChunk),
            (true, _) => None,
        }
    }
}

/// Shapes an event stream that passes by in slices cut anywhere.
#[derive(Debug, Clone)]
pub struct UsageShaper {
    asked: Asked,
    lines: LineSplitter,
    event: Event,
    /// Bytes not passed on yet.
    held: Vec<u8>,
    /// Offset in the stream of the first of them.
    held_at: usize,
}

/// What is known of the event being read. Offsets are those of the stream, which may wrap.
#[derive(Debug, Clone, Default)]
struct Event {
    /// Where its first line begins, as long as all of it may have to go.
    at: Option<usize>,
    /// Where the line being read begins.
    line_at: usize,
    payload: Payload,
    scanner: Scanner,
    /// Where its data ends, as far as it has come.
    data_end: usize,
    chunk: ChunkShape,
    /// It goes: from here on.
    dropped: Option<usize>,
    /// The empty line after what goes goes too, and has been read.
    dropped_end: bool,
    /// Ranges that go, in order.
    cuts: Vec<Range<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Payload {
    #[default]
    Empty,
    Json,
    Other,
}

impl UsageShaper {
    /// For the answer to a client that asked for so much.
    #[must_use]
    pub fn new(asked: Asked) -> Self {
        Self {
            asked,
            lines: LineSplitter::default(),
            event: Event::default(),
            held: Vec::new(),
            held_at: 0,
        }
    }

    /// Takes the next bytes: what to forward instead, which may be nothing; `None` = forward them as they are.
    pub fn feed(&mut self, slice: &[u8]) -> Option<Vec<u8>> {
        if self.held.is_empty() {
            self.held_at = self.lines.taken();
        }
        self.lines.feed(slice, &mut Reading { event: &mut self.event, asked: self.asked });
        let end = self.lines.taken();
        self.event.drop_until(end);
        if end.wrapping_sub(self.event.hold(end)) > MAX_HELD {
            self.event.pass();
        }
        let until = self.event.hold(end);
        if self.held.is_empty() && until == end && self.event.cuts.is_empty() {
            return None;
        }
        self.held.extend_from_slice(slice);
        Some(self.release(until))
    }

    /// The response has ended: what was held back.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        let end = self.lines.taken();
        self.lines.finish(&mut Reading { event: &mut self.event, asked: self.asked });
        self.event.drop_until(end);
        self.release(end)
    }

    /// Gives all before the offset `until`, but for what goes.
    fn release(&mut self, until: usize) -> Vec<u8> {
        let held_at = self.held_at;
        let place = |offset: usize| offset.wrapping_sub(held_at);
        let mut out = Vec::with_capacity(self.held.len());
        let mut next = 0;
        for cut in self.event.cuts.drain(..) {
            out.extend_from_slice(self.held.get(next..place(cut.start)).unwrap_or_default());
            next = place(cut.end);
        }
        let until_place = place(until).min(self.held.len());
        out.extend_from_slice(self.held.get(next..until_place).unwrap_or_default());
        self.held.drain(..until_place);
        self.held_at = until;
        out
    }
}

impl Event {
    /// From where on nothing can be passed on yet; `end` is the offset after the last byte read.
    fn hold(&self, end: usize) -> usize {
        let in_chunk = match self.payload {
            Payload::Json => self.chunk.hold,
            Payload::Empty | Payload::Other => None,
        };
        self.at.or(in_chunk).unwrap_or(end)
    }

    /// What is dropped need not be held.
    fn drop_until(&mut self, end: usize) {
        if let Some(from) = self.dropped
            && from != end
        {
            self.cuts.push(from..end);
            self.dropped = Some(end);
        }
    }

    /// It is none of those that go, nor is anything in it from now on.
    fn pass(&mut self) {
        self.at = None;
        self.payload = Payload::Other;
        self.chunk.cuts.clear();
    }

    fn scan(&mut self, piece: &[u8], at: usize) {
        if self.payload != Payload::Json {
            return;
        }
        self.chunk.origin = at.wrapping_sub(self.scanner.taken());
        let is_json = self.scanner.feed(piece, &mut self.chunk).is_ok();
        if self.chunk.choices == Choices::Some {
            self.at = None;
            self.cuts.append(&mut self.chunk.cuts);
        }
        if !is_json {
            self.pass();
        }
    }

    /// Its JSON is complete.
    fn judge(&mut self, asked: Asked) {
        self.payload = Payload::Empty;
        let is_usage = self.chunk.choices == Choices::None && self.chunk.has_usage;
        match (asked, self.at.take()) {
            (Asked::Nothing, Some(at)) if is_usage => self.dropped = Some(at),
            (Asked::Nothing, _) => self.cuts.append(&mut self.chunk.cuts),
            (Asked::LastChunk, _) => {}
        }
        self.chunk.cuts.clear();
    }
}

/// Hears the stream's lines.
struct Reading<'a> {
    event: &'a mut Event,
    asked: Asked,
}

impl EventSink for Reading<'_> {
    fn line(&mut self, at: usize, empty: bool) {
        let event = &mut *self.event;
        event.line_at = at;
        if event.dropped.is_some() {
            if empty && !event.dropped_end {
                event.dropped_end = true;
                return;
            }
            event.drop_until(at);
            event.dropped = None;
            event.dropped_end = false;
        }
        if !empty && event.at.is_none() && event.payload == Payload::Empty {
            event.at = Some(at);
        }
    }

    fn data(&mut self, piece: &[u8], at: usize) {
        let event = &mut *self.event;
        event.data_end = at.wrapping_add(piece.len());
        if event.payload == Payload::Empty {
            match piece.trim_ascii_start().first() {
                None => return,
                Some(b'{') => {
                    event.chunk = ChunkShape::default();
                    event.scanner = Scanner::new();
                    event.payload = Payload::Json;
                }
                Some(_) => event.pass(),
            }
        }
        event.scan(piece, at);
    }

    fn data_end(&mut self) {
        let event = &mut *self.event;
        match event.payload {
            Payload::Json if event.scanner.is_done() => event.judge(self.asked),
            // The line end is white space of the payload.
            Payload::Json => event.scan(b"\n", event.data_end),
            // It was none; what follows is another.
            Payload::Other => event.payload = Payload::Empty,
            Payload::Empty => {}
        }
    }

    fn dispatch(&mut self) {
        self.event.at = None;
        self.event.payload = Payload::Empty;
        self.event.chunk.cuts.clear();
    }

    fn comment(&mut self) {
        if self.event.at == Some(self.event.line_at) {
            self.event.at = None;
        }
    }
}

#[cfg(test)]
mod tests;
