//! Reads the fields of an answer, of a stream's chunk and of a whole one alike.

use super::facts::{EngineError, FinishReason, ResponseFacts, Usage};
use super::fields::{Count, Event, Frame, Slot, status};
use crate::json::{Container, Handler, Scalar};

/// Longer texts than this say nothing that we know: no event type is as long.
const TEXT_BYTES: usize = 24;

/// Reads one answer or chunk. Nothing counts before [`commit`](Self::commit).
#[derive(Debug, Clone)]
pub(super) struct ChunkReader {
    frame: Frame,
    /// What the next value is: said by the last key, or by the array.
    slot: Slot,
    /// Containers open inside a value that we do not read.
    skipped: usize,
    text: [u8; TEXT_BYTES],
    /// Its length; above `TEXT_BYTES` once it no longer fits.
    text_len: usize,
    is_object: bool,
    generated: bool,
    /// A choice has a text, be it empty, or a role.
    has_text: bool,
    has_role: bool,
    usage: Usage,
    /// Counts by the names of other APIs.
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    /// Anthropic's counts of prompt tokens that are not among its `input_tokens`.
    cache_read: Option<u64>,
    cache_creation: Option<u64>,
    event: Event,
    /// A final status of the Responses API, and whether the document is one of its responses.
    status: Option<FinishReason>,
    is_response: bool,
    finished: u64,
    finish_reason: Option<FinishReason>,
    error: Option<EngineError>,
}

impl ChunkReader {
    pub(super) fn new() -> Self {
        Self {
            frame: Frame::Outside,
            slot: Slot::Document,
            skipped: 0,
            text: [0; TEXT_BYTES],
            text_len: 0,
            is_object: false,
            generated: false,
            has_text: false,
            has_role: false,
            usage: Usage::default(),
            input_tokens: None,
            output_tokens: None,
            cache_read: None,
            cache_creation: None,
            event: Event::Plain,
            status: None,
            is_response: false,
            finished: 0,
            finish_reason: None,
            error: None,
        }
    }

    /// Adds what was read to `facts`. The document must be complete.
    pub(super) fn commit(&self, facts: &mut ResponseFacts) {
        if !self.is_object {
            facts.bad_chunks = facts.bad_chunks.saturating_add(1);
            return;
        }
        if self.event == Event::Ping {
            facts.comments = facts.comments.saturating_add(1);
            return;
        }
        facts.chunks = facts.chunks.saturating_add(1);
        facts.first_token |= self.generated;
        let usage = self.whole_usage();
        facts.usage.update(&usage);
        if usage.completion_tokens.is_some() {
            facts.unreported_chunks = 0;
        } else if self.generated || (self.has_text && !self.has_role) {
            facts.unreported_chunks = facts.unreported_chunks.saturating_add(1);
        }
        if usage.total_tokens.is_none() && usage != Usage::default() {
            let total = facts.usage.prompt_tokens.zip(facts.usage.completion_tokens);
            facts.usage.total_tokens = total.map(|(prompt, answer)| prompt.saturating_add(answer));
        }
        facts.finished_choices = facts.finished_choices.saturating_add(self.finished);
        keep_worse(&mut facts.finish_reason, self.finish_reason);
        let ended = match self.event {
            Event::ResponseEnd(reason) => Some(self.status.unwrap_or(reason)),
            _ => self.status.filter(|_| self.is_response),
        };
        if ended.is_some() {
            facts.finished_choices = facts.finished_choices.saturating_add(1);
            keep_worse(&mut facts.finish_reason, ended);
        }
        facts.done |= matches!(self.event, Event::Stop | Event::ResponseEnd(_));
        facts.error = facts.error.or(self.error);
    }

    /// The usage with prompt tokens counted as OpenAI does: cached ones included.
    fn whole_usage(&self) -> Usage {
        let cached = self.cache_read.unwrap_or(0).saturating_add(self.cache_creation.unwrap_or(0));
        let prompt = self.usage.prompt_tokens.or(self.input_tokens);
        Usage {
            prompt_tokens: prompt.map(|tokens| tokens.saturating_add(cached)),
            completion_tokens: self.usage.completion_tokens.or(self.output_tokens),
            total_tokens: self.usage.total_tokens,
            cached_tokens: self.usage.cached_tokens.or(self.cache_read),
            reasoning_tokens: self.usage.reasoning_tokens,
        }
    }

    fn to(&mut self, frame: Frame) {
        self.frame = frame;
        self.slot = frame.item();
    }

    fn finished(&mut self, reason: FinishReason) {
        self.finished = self.finished.saturating_add(1);
        keep_worse(&mut self.finish_reason, Some(reason));
    }

    fn count(&mut self, count: Count, value: u64) {
        let field = match count {
            Count::Prompt => &mut self.usage.prompt_tokens,
            Count::Completion => &mut self.usage.completion_tokens,
            Count::Input => &mut self.input_tokens,
            Count::Output => &mut self.output_tokens,
            Count::Total => &mut self.usage.total_tokens,
            Count::Cached => &mut self.usage.cached_tokens,
            Count::Reasoning => &mut self.usage.reasoning_tokens,
            Count::CacheRead => &mut self.cache_read,
            Count::CacheCreation => &mut self.cache_creation,
        };
        *field = Some(value);
    }
}

/// The last reason stands, but a failure among several choices is not overwritten.
fn keep_worse(held: &mut Option<FinishReason>, new: Option<FinishReason>) {
    if new.is_some() && !held.is_some_and(FinishReason::is_failure) {
        *held = new;
    }
}

/// A count that is written as a string.
fn number(text: &[u8]) -> Option<u64> {
    /// Above it an `f64` no longer knows every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let text = core::str::from_utf8(text).ok()?;
    if let Ok(count) = text.parse() {
        return Some(count);
    }
    let float: f64 = text.parse().ok()?;
    let is_count = float.fract() == 0.0 && (0.0..=EXACT).contains(&float);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "just checked")]
    is_count.then_some(float as u64)
}

impl Handler for ChunkReader {
    fn key(&mut self, name: &[u8]) {
        if self.skipped == 0 {
            self.slot = Slot::of(self.frame, name);
        }
    }

    fn string_start(&mut self, _at: usize) {
        self.text_len = 0;
        if self.skipped == 0 && matches!(self.frame, Frame::Choice | Frame::Delta) {
            self.has_text |= self.slot == Slot::Generated;
            self.has_role |= self.slot == Slot::Role;
        }
    }

    fn string_piece(&mut self, bytes: &[u8]) {
        if self.skipped > 0 {
            return;
        }
        match self.slot {
            Slot::Generated | Slot::GeneratedItem | Slot::EventDelta => self.generated = true,
            slot if slot.takes_text() => {
                let end = self.text_len.saturating_add(bytes.len());
                if let Some(slot) = self.text.get_mut(self.text_len..end) {
                    slot.copy_from_slice(bytes);
                }
                self.text_len = end;
            }
            _ => {}
        }
    }

    fn string_end(&mut self, _end: usize) {
        if self.skipped > 0 {
            return;
        }
        let text = self.text.get(..self.text_len).unwrap_or_default();
        match self.slot {
            Slot::FinishReason => self.finished(FinishReason::of(text)),
            Slot::EventType => self.event = Event::of(text),
            Slot::Status => self.status = status(text),
            Slot::Error => self.error = Some(EngineError::default()),
            Slot::Count(count) => {
                if let Some(value) = number(text) {
                    self.count(count, value);
                }
            }
            _ => {}
        }
    }

    fn scalar(&mut self, value: Scalar, _at: usize, _end: usize) {
        let Scalar::Number(number) = value else {
            return;
        };
        if self.skipped > 0 {
            return;
        }
        match (self.slot, number.as_u64()) {
            (Slot::Count(count), Some(value)) => self.count(count, value),
            (Slot::ErrorCode, Some(code)) => self.error = Some(EngineError { code: Some(code) }),
            (Slot::GeneratedItem, _) => self.generated = true,
            _ => {}
        }
    }

    fn open(&mut self, container: Container, _at: usize) {
        if self.skipped > 0 {
            self.skipped = self.skipped.saturating_add(1);
            return;
        }
        let slot = self.slot;
        if slot == Slot::Error {
            self.error = Some(EngineError::default());
        }
        if let Some(frame) = self.frame.enter(slot, container) {
            self.is_object |= slot == Slot::Document;
            self.is_response |= slot == Slot::Output;
            self.to(frame);
            return;
        }
        match slot {
            Slot::GeneratedItem => self.generated = true,
            Slot::FinishReason => self.finished(FinishReason::Other),
            _ => {}
        }
        self.skipped = 1;
    }

    fn close(&mut self, _container: Container, _end: usize) {
        if self.skipped > 0 {
            self.skipped = self.skipped.saturating_sub(1);
            return;
        }
        self.to(self.frame.parent());
    }
}
