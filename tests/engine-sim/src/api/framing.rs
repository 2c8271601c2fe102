//! A stream's events, as its API frames them.

use super::errors::ApiError;
use super::generate::Api;
use super::messages;
use super::responses;
use super::sse::{self, Piece, StreamHead, Totals};
use crate::engine::FinishReason;

/// What of the configuration and the request shapes a stream.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Usage in an event of its own at the end, where the API leaves the choice.
    pub include_usage: bool,
    /// Usage on every event, where the API has such a thing.
    pub continuous_usage: bool,
    /// Whether usage says what was cached.
    pub details: bool,
}

/// The events of one stream.
#[derive(Debug)]
pub struct Framing {
    head: StreamHead,
    shape: Shape,
    responses: responses::Events,
}

impl Framing {
    /// Of an answer with this head.
    pub fn new(head: StreamHead, shape: Shape) -> Self {
        let responses = responses::Events::new(&head);
        Self { head, shape, responses }
    }

    fn running(&self, totals: Totals) -> Option<Totals> {
        self.shape.continuous_usage.then_some(totals)
    }

    /// The events before the first token. `ids`: the prompt's, if asked for.
    pub fn begin(&mut self, ids: Option<&[u32]>, totals: Totals) -> Vec<Vec<u8>> {
        match self.head.api {
            Api::Chat => vec![self.head.role(ids, self.running(totals))],
            Api::Messages => messages::begin(&self.head, totals),
            Api::Responses => self.responses.begin(&self.head),
            Api::Completion | Api::Tokens | Api::Embedding => Vec::new(),
        }
    }

    /// The event of a token. `ids`: the prompt's, with a prompt's first token if asked for.
    pub fn token(&mut self, piece: Piece<'_>, ids: Option<&[u32]>, totals: Totals) -> Vec<u8> {
        match self.head.api {
            Api::Messages => messages::token(piece),
            Api::Responses => self.responses.token(piece.text),
            _ => self.head.token(piece, ids, self.running(totals)),
        }
    }

    /// The events after the last token, which ended like this.
    pub fn end(&mut self, totals: Totals, finish: FinishReason) -> Vec<Vec<u8>> {
        let Shape { include_usage, details, .. } = self.shape;
        match self.head.api {
            Api::Messages => messages::end(totals, details, finish),
            Api::Responses => self.responses.end(&self.head, totals, details, finish),
            _ => {
                let usage = include_usage.then(|| self.head.usage(totals, details));
                usage.into_iter().chain([sse::DONE.to_vec()]).collect()
            }
        }
    }

    /// The events of an engine that is gone.
    pub fn failure(&self, error: &ApiError) -> Vec<Vec<u8>> {
        match self.head.api {
            Api::Messages => vec![messages::failure(error)],
            _ => vec![error.sse_event(), sse::DONE.to_vec()],
        }
    }
}
