//! Bodies of answers.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::connection::ResetFlag;
use super::core::{Ending, Heard};
use super::generation::Flight;
use super::records::Outcome;
use crate::api::errors::ApiError;
use crate::api::framing::{Framing, Shape};
use crate::api::generate::Generate;
use crate::api::sse::{self, Piece, StreamHead, Totals};
use crate::engine::FinishReason;

/// The connection ends with its answer unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer was cut off, as a fault on command or a restart demands")]
pub struct Cut;

/// An answer's body.
pub enum ReplyBody {
    /// In one piece.
    Whole(Option<Bytes>),
    /// Event by event.
    Events(Box<EventStream>),
}

/// A stream of events, one token each.
pub struct EventStream {
    framing: Framing,
    generate: Generate,
    flight: Flight,
    heard: mpsc::UnboundedReceiver<Heard>,
    pending: VecDeque<Bytes>,
    totals: Totals,
    unfinished: usize,
    begun: bool,
    ended: bool,
    keep_alive: Option<Interval>,
    reset_after: Option<(usize, ResetFlag)>,
}

impl EventStream {
    pub(super) fn new(
        head: StreamHead,
        generate: Generate,
        flight: Flight,
        heard: mpsc::UnboundedReceiver<Heard>,
        reset_after: Option<(usize, ResetFlag)>,
    ) -> Self {
        let keep_alive = flight.config().sse_keep_alive.map(|seconds| {
            let period = Duration::from_secs_f64(seconds.clamp(0.001, 86_400.0));
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.reset();
            ticks
        });
        let shape = Shape {
            include_usage: generate.include_usage,
            continuous_usage: generate.continuous_usage,
            details: flight.config().api.prompt_tokens_details,
        };
        let prompt = generate.prompts.iter().map(|prompt| prompt.prompt_len).sum();
        Self {
            unfinished: generate.prompts.len(),
            framing: Framing::new(head, shape),
            generate,
            flight,
            heard,
            pending: VecDeque::new(),
            totals: Totals { prompt, ..Totals::default() },
            begun: false,
            ended: false,
            keep_alive,
            reset_after,
        }
    }

    fn push(&mut self, events: Vec<Vec<u8>>) {
        self.pending.extend(events.into_iter().map(Bytes::from));
    }

    fn hear(&mut self, heard: Option<Heard>) -> Result<(), Cut> {
        match heard {
            Some(Heard::Token { choice, index, cached, finish }) => {
                self.token(choice, index, cached, finish);
                if let Some(ticks) = &mut self.keep_alive {
                    ticks.reset();
                }
                if let Some((after, reset)) = &self.reset_after
                    && self.totals.completion >= *after
                {
                    reset.set();
                    return Err(Cut);
                }
                Ok(())
            }
            Some(Heard::Gone(Ending::ErrorEvent)) => {
                let events = self.framing.failure(&ApiError::engine_dead());
                self.push(events);
                self.ended = true;
                Ok(())
            }
            Some(Heard::Gone(Ending::Cut | Ending::Silence)) | None => Err(Cut),
        }
    }

    fn token(&mut self, choice: usize, index: usize, cached: usize, finish: Option<FinishReason>) {
        let Generate { return_token_ids, include_usage, .. } = self.generate;
        let Some(prompt) = self.generate.prompts.get(choice) else { return };
        let block_size = self.flight.config().engine.block_size;
        if index == 0 {
            self.totals.cached += cached;
            self.flight.note_cached(cached);
            self.totals.created +=
                (prompt.prompt_len / block_size * block_size).saturating_sub(cached);
        }
        let Some(&id) = prompt.tokens.get(prompt.prompt_len + index) else { return };
        let prompt_ids = (return_token_ids && index == 0)
            .then(|| prompt.tokens.get(..prompt.prompt_len))
            .flatten()
            .map(<[u32]>::to_vec);
        if !self.begun {
            self.begun = true;
            let events = self.framing.begin(prompt_ids.as_deref(), self.totals);
            self.push(events);
        }
        self.totals.completion += 1;
        self.flight.note_completion(self.totals.completion);
        self.unfinished -= usize::from(finish.is_some());
        let last = self.unfinished == 0;
        let tokenizer = Arc::clone(self.flight.tokenizer());
        let piece = Piece {
            choice,
            text: tokenizer.words().text(id),
            token_id: return_token_ids.then_some(id),
            finish,
            fingerprint: last && !include_usage,
        };
        let event = self.framing.token(piece, prompt_ids.as_deref(), self.totals);
        self.push(vec![event]);
        if last {
            let finish = finish.unwrap_or(self.generate.finish);
            let events = self.framing.end(self.totals, finish);
            self.push(events);
            self.ended = true;
            self.flight.end(Outcome::Finished);
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let stream = match &mut *self {
            Self::Whole(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
            Self::Events(stream) => stream,
        };
        loop {
            if let Some(event) = stream.pending.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(event))));
            }
            if stream.ended {
                return Poll::Ready(None);
            }
            if let Poll::Ready(heard) = stream.heard.poll_recv(cx) {
                if let Err(cut) = stream.hear(heard) {
                    return Poll::Ready(Some(Err(cut)));
                }
                continue;
            }
            let Some(ticks) = &mut stream.keep_alive else { return Poll::Pending };
            std::task::ready!(ticks.poll_tick(cx));
            stream.push(vec![sse::KEEP_ALIVE.to_vec()]);
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Events(_) => SizeHint::default(),
        }
    }
}
