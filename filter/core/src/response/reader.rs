//! Chooses how to read a response, and reads it.

use super::chunk::ChunkReader;
use super::events::ChunkEvents;
use super::facts::ResponseFacts;
use super::outcome::{End, Expected, Outcome, classify};
use super::sse::{EventSink, LineSplitter};
use crate::content_encoding;
use crate::json::Scanner;

/// A response in the form in which it comes.
#[derive(Debug, Clone)]
enum Body {
    Stream(LineSplitter, ChunkEvents),
    Document(Scanner, ChunkReader, ResponseFacts),
    /// Not read.
    Opaque(ResponseFacts),
}

/// Reads one response body as it passes by.
#[derive(Debug, Clone)]
pub struct ResponseReader {
    status: u16,
    body: Body,
}

/// What a response was, once it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseReport {
    /// What was seen in it.
    pub facts: ResponseFacts,
    /// What became of the request.
    pub outcome: Outcome,
}

const EVENT_STREAM: &[u8] = b"text/event-stream";

/// A `content-type` without its parameters, in lower case.
fn media_type(content_type: Option<&[u8]>) -> Vec<u8> {
    let kind = content_type.and_then(|value| value.split(|byte| *byte == b';').next());
    kind.unwrap_or_default().trim_ascii().to_ascii_lowercase()
}

/// Whether a `content-type` is that of an event stream.
#[must_use]
pub(crate) fn is_event_stream(content_type: Option<&[u8]>) -> bool {
    media_type(content_type) == EVENT_STREAM
}

impl ResponseReader {
    /// Chooses by the response's headers: `text/event-stream`, JSON, or anything else, which is not read; nor
    /// is a body with a `content-encoding`.
    #[must_use]
    pub fn for_headers(
        status: u16,
        content_type: Option<&[u8]>,
        content_encoding: Option<&[u8]>,
    ) -> Self {
        let body = match media_type(content_type).as_slice() {
            _ if content_encoding::foreign(content_encoding).is_some() => {
                Body::Opaque(ResponseFacts::default())
            }
            EVENT_STREAM => Body::Stream(LineSplitter::default(), ChunkEvents::default()),
            name if name == b"application/json" || name.ends_with(b"+json") => {
                Body::Document(Scanner::new(), ChunkReader::new(), ResponseFacts::default())
            }
            _ => Body::Opaque(ResponseFacts::default()),
        };
        Self { status, body }
    }

    /// A reader for a response whose content does not matter.
    #[must_use]
    pub fn opaque(status: u16) -> Self {
        Self { status, body: Body::Opaque(ResponseFacts::default()) }
    }

    /// Whether the response is an event stream.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        matches!(self.body, Body::Stream(..))
    }

    /// Whether what is fed to it matters.
    #[must_use]
    pub fn reads(&self) -> bool {
        !matches!(self.body, Body::Opaque(_))
    }

    /// Reads the next bytes and gives the facts so far. In a stream, progress is a change of `chunks`: comments
    /// alone are no sign of life. Of a whole answer nothing counts before [`finish`](Self::finish).
    pub fn feed(&mut self, slice: &[u8]) -> &ResponseFacts {
        match &mut self.body {
            Body::Stream(splitter, events) => {
                splitter.feed(slice, events);
                &events.facts
            }
            Body::Document(scanner, chunk, facts) => {
                // A fault stays with the scanner; what follows the document may still be one.
                let _ = scanner.feed(slice, chunk);
                facts
            }
            Body::Opaque(facts) => facts,
        }
    }

    /// The facts so far.
    #[must_use]
    pub fn facts(&self) -> &ResponseFacts {
        match &self.body {
            Body::Stream(_, events) => &events.facts,
            Body::Document(_, _, facts) | Body::Opaque(facts) => facts,
        }
    }

    /// Ends the response and judges it.
    #[must_use]
    pub fn finish(mut self, end: End) -> ResponseReport {
        let (facts, expected) = match &mut self.body {
            Body::Stream(splitter, events) => {
                splitter.finish(events);
                // What is left of an event that never ended.
                events.dispatch();
                (events.facts, Expected::Stream)
            }
            Body::Document(scanner, chunk, facts) => {
                let whole = scanner.finish(chunk).is_ok();
                if whole {
                    chunk.commit(facts);
                } else {
                    facts.bad_chunks = 1;
                }
                (*facts, Expected::Document { whole })
            }
            Body::Opaque(facts) => (*facts, Expected::Anything),
        };
        ResponseReport { facts, outcome: classify(&facts, expected, self.status, end) }
    }
}
