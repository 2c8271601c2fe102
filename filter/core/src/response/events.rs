//! From the payloads of an event stream to facts, as OpenAI's streams use them.

use super::chunk::ChunkReader;
use super::facts::ResponseFacts;
use super::opening::Opening;
use super::sse::EventSink;
use crate::json::Scanner;

const DONE: &[u8] = b"[DONE]";

/// The payload being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Payload {
    /// None yet.
    Empty,
    /// This many bytes of [`DONE`], and nothing else.
    Done(usize),
    Json,
    /// Neither.
    Bad,
}

/// Reads chunk after chunk. A chunk counts when its `data` line ends and it is complete, so that a server
/// that separates events by single line ends is understood too; a chunk spread over several lines goes on.
#[derive(Debug, Clone)]
pub(super) struct ChunkEvents {
    payload: Payload,
    scanner: Scanner,
    chunk: ChunkReader,
    opening: Opening,
    pub(super) facts: ResponseFacts,
}

impl Default for ChunkEvents {
    fn default() -> Self {
        Self {
            payload: Payload::Empty,
            scanner: Scanner::new(),
            chunk: ChunkReader::new(),
            opening: Opening::default(),
            facts: ResponseFacts::default(),
        }
    }
}

impl ChunkEvents {
    /// A payload begins with `piece`, which is not empty.
    fn begin(&mut self, piece: &[u8]) {
        if piece.first() == DONE.first() {
            self.done(0, piece);
            return;
        }
        self.payload = Payload::Json;
        if self.opening.read(piece, &mut self.scanner, &mut self.chunk).is_err() {
            self.payload = Payload::Bad;
        }
    }

    fn json(&mut self, piece: &[u8]) {
        if self.scanner.feed(piece, &mut self.chunk).is_err() {
            self.payload = Payload::Bad;
        }
    }

    fn done(&mut self, seen: usize, piece: &[u8]) {
        let mut seen = seen;
        for &byte in piece {
            let expected = DONE.get(seen).copied();
            if expected == Some(byte) {
                seen = seen.saturating_add(1);
            } else if expected.is_some() || !byte.is_ascii_whitespace() {
                self.payload = Payload::Bad;
                return;
            }
        }
        self.payload = Payload::Done(seen);
    }
}

impl EventSink for ChunkEvents {
    fn data(&mut self, piece: &[u8], _at: usize) {
        match self.payload {
            Payload::Empty => {
                let piece = piece.trim_ascii_start();
                if !piece.is_empty() {
                    self.begin(piece);
                }
            }
            Payload::Done(seen) => self.done(seen, piece),
            Payload::Json => self.json(piece),
            Payload::Bad => {}
        }
    }

    fn data_end(&mut self) {
        match self.payload {
            Payload::Empty | Payload::Bad => {}
            Payload::Done(seen) if seen == DONE.len() => {
                self.facts.done = true;
                self.payload = Payload::Empty;
            }
            Payload::Done(_) => self.payload = Payload::Bad,
            Payload::Json if self.scanner.is_done() => {
                self.chunk.commit(&mut self.facts);
                self.payload = Payload::Empty;
            }
            // The line end is part of a payload that goes on.
            Payload::Json => self.json(b"\n"),
        }
    }

    fn dispatch(&mut self) {
        if self.payload != Payload::Empty {
            self.facts.bad_chunks = self.facts.bad_chunks.saturating_add(1);
            self.payload = Payload::Empty;
        }
    }

    fn comment(&mut self) {
        self.facts.comments = self.facts.comments.saturating_add(1);
    }
}
