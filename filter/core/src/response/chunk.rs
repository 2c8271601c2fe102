//! The fields of the answers that we read, of a stream's chunk and of a whole answer alike: OpenAI's chat and
//! completions, and Anthropic's messages. No name means different things to the two, so one reader serves both.

use super::facts::{EngineError, FinishReason, ResponseFacts, Usage};
use crate::json::{Container, Handler, Scalar};

/// The container whose fields or items are being read. Each has one possible parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    Outside,
    Root,
    Choices,
    Choice,
    /// `delta` of a chunk, `message` of a whole answer.
    Delta,
    ToolCalls,
    Usage,
    UsageDetails,
    Error,
    /// Anthropic's: `message` of the first event, `delta`, `content` of a whole answer, and one block of it, which
    /// is an event's `content_block`, too.
    Message,
    EventDelta,
    Content,
    ContentBlock,
    EventBlock,
    /// `usage` of the first event's message.
    MessageUsage,
}

impl Frame {
    fn parent(self) -> Self {
        match self {
            Self::Outside | Self::Root => Self::Outside,
            Self::Choices | Self::Usage | Self::Error => Self::Root,
            Self::Choice => Self::Choices,
            Self::Delta => Self::Choice,
            Self::ToolCalls => Self::Delta,
            Self::UsageDetails => Self::Usage,
            Self::Message | Self::EventDelta | Self::Content | Self::EventBlock => Self::Root,
            Self::ContentBlock => Self::Content,
            Self::MessageUsage => Self::Message,
        }
    }
}

/// What the next value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Unread,
    Document,
    Choices,
    Choice,
    Delta,
    /// Generated text of any sort.
    Generated,
    ToolCalls,
    ToolCall,
    FinishReason,
    Usage,
    PromptTokens,
    CompletionTokens,
    TotalTokens,
    UsageDetails,
    CachedTokens,
    Error,
    ErrorCode,
    /// Anthropic's.
    EventType,
    Message,
    EventDelta,
    Content,
    EventBlock,
    /// Prompt tokens beside `input_tokens`: read from the cache, or written to it.
    CacheRead,
    CacheCreation,
}

impl Slot {
    fn of(frame: Frame, name: &[u8]) -> Self {
        match (frame, name) {
            (Frame::Root, b"choices") => Self::Choices,
            (Frame::Root, b"usage") => Self::Usage,
            (Frame::Root, b"error") => Self::Error,
            (Frame::Root, b"type") => Self::EventType,
            (Frame::Root, b"message") => Self::Message,
            (Frame::Root, b"delta") => Self::EventDelta,
            (Frame::Root, b"content") => Self::Content,
            (Frame::Root, b"content_block") => Self::EventBlock,
            (Frame::Root | Frame::EventDelta, b"stop_reason") => Self::FinishReason,
            (Frame::Message, b"usage") => Self::Usage,
            // The name is that of a tool that is called.
            (
                Frame::EventDelta | Frame::ContentBlock | Frame::EventBlock,
                b"text" | b"thinking" | b"partial_json" | b"name",
            ) => Self::Generated,
            (Frame::Choice, b"delta" | b"message") => Self::Delta,
            (Frame::Choice, b"text") => Self::Generated,
            (Frame::Choice, b"finish_reason") => Self::FinishReason,
            (Frame::Delta, b"content" | b"reasoning" | b"reasoning_content" | b"refusal") => {
                Self::Generated
            }
            (Frame::Delta, b"tool_calls") => Self::ToolCalls,
            (Frame::Delta, b"function_call") => Self::ToolCall,
            (Frame::Usage | Frame::MessageUsage, b"prompt_tokens" | b"input_tokens") => {
                Self::PromptTokens
            }
            (Frame::Usage | Frame::MessageUsage, b"completion_tokens" | b"output_tokens") => {
                Self::CompletionTokens
            }
            (Frame::Usage | Frame::MessageUsage, b"cache_read_input_tokens") => Self::CacheRead,
            (Frame::Usage | Frame::MessageUsage, b"cache_creation_input_tokens") => {
                Self::CacheCreation
            }
            (Frame::Usage, b"total_tokens") => Self::TotalTokens,
            (Frame::Usage, b"prompt_tokens_details" | b"input_tokens_details") => {
                Self::UsageDetails
            }
            (Frame::UsageDetails, b"cached_tokens") => Self::CachedTokens,
            (Frame::Error, b"code") => Self::ErrorCode,
            _ => Self::Unread,
        }
    }
}

/// What Anthropic's `type` says, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Event {
    /// None, or one that says no more than its fields.
    #[default]
    Plain,
    /// Of Anthropic's API.
    Message,
    /// A sign of life that is no progress.
    Ping,
    /// The end.
    Stop,
}

impl Event {
    fn of(name: &[u8]) -> Self {
        match name {
            b"message" | b"message_start" | b"message_delta" => Self::Message,
            b"ping" => Self::Ping,
            b"message_stop" => Self::Stop,
            _ => Self::Plain,
        }
    }
}

/// Longer finish reasons are [`FinishReason::Other`].
const REASON_BYTES: usize = 16;

/// Reads one answer or chunk. Nothing counts before [`commit`](Self::commit).
#[derive(Debug, Clone)]
pub(super) struct ChunkReader {
    frame: Frame,
    slot: Slot,
    /// Containers open inside a value that we do not read.
    skipped: usize,
    reason: [u8; REASON_BYTES],
    reason_len: usize,
    is_object: bool,
    generated: bool,
    usage: Usage,
    /// Anthropic's counts of prompt tokens that are not among its `input_tokens`.
    cache_read: Option<u64>,
    cache_creation: Option<u64>,
    event: Event,
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
            reason: [0; REASON_BYTES],
            reason_len: 0,
            is_object: false,
            generated: false,
            usage: Usage::default(),
            cache_read: None,
            cache_creation: None,
            event: Event::Plain,
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
        facts.done |= self.event == Event::Stop;
        facts.usage.update(&self.whole_usage());
        if self.event == Event::Message {
            let Usage { prompt_tokens, completion_tokens, .. } = facts.usage;
            let total = prompt_tokens.zip(completion_tokens);
            facts.usage.total_tokens =
                total.map(|(prompt, completion)| prompt.saturating_add(completion));
        }
        facts.finished_choices = facts.finished_choices.saturating_add(self.finished);
        keep_worse(&mut facts.finish_reason, self.finish_reason);
        facts.error = facts.error.or(self.error);
    }

    /// The usage with prompt tokens counted as OpenAI does: cached ones included.
    fn whole_usage(&self) -> Usage {
        let mut usage = self.usage;
        usage.cached_tokens = usage.cached_tokens.or(self.cache_read);
        let cached = self.cache_read.unwrap_or(0).saturating_add(self.cache_creation.unwrap_or(0));
        usage.prompt_tokens = usage.prompt_tokens.map(|tokens| tokens.saturating_add(cached));
        usage
    }

    fn slot(&self) -> Slot {
        match self.frame {
            Frame::Content => Slot::EventBlock,
            Frame::Choices => Slot::Choice,
            Frame::ToolCalls => Slot::ToolCall,
            _ => self.slot,
        }
    }

    fn finished(&mut self, reason: FinishReason) {
        self.finished = self.finished.saturating_add(1);
        keep_worse(&mut self.finish_reason, Some(reason));
    }
}

/// The last reason stands, but a failure among several choices is not overwritten.
fn keep_worse(held: &mut Option<FinishReason>, new: Option<FinishReason>) {
    if new.is_some() && !held.is_some_and(FinishReason::is_failure) {
        *held = new;
    }
}

impl Handler for ChunkReader {
    fn key(&mut self, name: &[u8]) {
        if self.skipped == 0 {
            self.slot = Slot::of(self.frame, name);
        }
    }

    fn string_start(&mut self, _at: usize) {
        self.reason_len = 0;
    }

    fn string_piece(&mut self, bytes: &[u8]) {
        if self.skipped > 0 {
            return;
        }
        match self.slot() {
            Slot::Generated | Slot::ToolCall => self.generated = true,
            Slot::FinishReason | Slot::EventType => {
                let end = self.reason_len.saturating_add(bytes.len());
                if let Some(slot) = self.reason.get_mut(self.reason_len..end) {
                    slot.copy_from_slice(bytes);
                }
                self.reason_len = end;
            }
            _ => {}
        }
    }

    fn string_end(&mut self, _end: usize) {
        if self.skipped > 0 {
            return;
        }
        match self.slot() {
            Slot::FinishReason => {
                let name = self.reason.get(..self.reason_len).unwrap_or_default();
                self.finished(FinishReason::of(name));
            }
            Slot::EventType => {
                let name = self.reason.get(..self.reason_len).unwrap_or_default();
                self.event = Event::of(name);
            }
            Slot::Error => self.error = Some(EngineError::default()),
            _ => {}
        }
    }

    fn scalar(&mut self, value: Scalar, _at: usize, _end: usize) {
        let Scalar::Number(number) = value else {
            return;
        };
        let Some(count) = number.as_u64() else {
            return;
        };
        if self.skipped > 0 {
            return;
        }
        let field = match self.slot() {
            Slot::PromptTokens => &mut self.usage.prompt_tokens,
            Slot::CompletionTokens => &mut self.usage.completion_tokens,
            Slot::TotalTokens => &mut self.usage.total_tokens,
            Slot::CachedTokens => &mut self.usage.cached_tokens,
            Slot::CacheRead => &mut self.cache_read,
            Slot::CacheCreation => &mut self.cache_creation,
            Slot::ErrorCode => {
                self.error = Some(EngineError { code: Some(count) });
                return;
            }
            _ => return,
        };
        *field = Some(count);
    }

    fn open(&mut self, container: Container, _at: usize) {
        if self.skipped > 0 {
            self.skipped = self.skipped.saturating_add(1);
            return;
        }
        let slot = self.slot();
        self.frame = match (slot, container) {
            (Slot::Document, Container::Object) => {
                self.is_object = true;
                Frame::Root
            }
            (Slot::Choices, Container::Array) => Frame::Choices,
            (Slot::Choice, Container::Object) => Frame::Choice,
            (Slot::Delta, Container::Object) => Frame::Delta,
            (Slot::ToolCalls, Container::Array) => Frame::ToolCalls,
            (Slot::Usage, Container::Object) if self.frame == Frame::Message => Frame::MessageUsage,
            (Slot::Usage, Container::Object) => Frame::Usage,
            (Slot::Message, Container::Object) => Frame::Message,
            (Slot::EventDelta, Container::Object) => Frame::EventDelta,
            (Slot::Content, Container::Array) => Frame::Content,
            (Slot::EventBlock, Container::Object) if self.frame == Frame::Content => {
                Frame::ContentBlock
            }
            (Slot::EventBlock, Container::Object) => Frame::EventBlock,
            (Slot::UsageDetails, Container::Object) => Frame::UsageDetails,
            (Slot::Error, Container::Object) => {
                self.error = Some(EngineError::default());
                Frame::Error
            }
            _ => {
                match slot {
                    Slot::ToolCall => self.generated = true,
                    Slot::FinishReason => self.finished(FinishReason::Other),
                    _ => {}
                }
                self.skipped = 1;
                return;
            }
        };
        self.slot = Slot::Unread;
    }

    fn close(&mut self, _container: Container, _end: usize) {
        if self.skipped > 0 {
            self.skipped = self.skipped.saturating_sub(1);
            return;
        }
        self.frame = self.frame.parent();
        self.slot = Slot::Unread;
    }
}
