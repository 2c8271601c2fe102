//! From JSON events to facts. Of duplicate keys the last wins, as in the engine's (Python's) parser.

use super::content::{PartDraft, PartType};
use super::error::{MessageFault, RequestError};
use super::facts::{
    ByteSpan, Captured, Content, Field, Message, Prompt, StreamOptions, TextSpan, clamp, widen,
};
use super::fields::{Frame, Kept, Slot};
use super::path::PathClass;
use super::scratch::Scratch;
use crate::json::{Container, Handler, Number, Scalar};

/// The most messages, parts, prompts or kept values held: far beyond any real request, and it bounds memory.
pub(super) const MAX_ITEMS: usize = 1 << 16;

/// What was given for a field that must not be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Given {
    /// Not sent, or null.
    #[default]
    Nothing,
    /// Something of the right shape.
    Good,
    /// Something else.
    Bad,
}

/// The shape that the first item gives to a `prompt` array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum PromptShape {
    #[default]
    Empty,
    Texts,
    Tokens,
    Rows,
}

/// The value given to a slot. Containers that a slot does not take are `Wrong`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Text(TextSpan),
    Null,
    Bool(bool),
    Number(Number),
    Wrong,
}

impl Value {
    fn text(self) -> Option<TextSpan> {
        match self {
            Self::Text(span) => Some(span),
            _ => None,
        }
    }

    fn bool(self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    fn count(self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }
}

/// Listens to the scanner and fills the buffers.
pub(super) struct Reader {
    pub(super) path: PathClass,
    pub(super) scratch: Scratch,
    frame: Frame,
    slot: Slot,
    /// Containers open inside a value that we do not read.
    skipped: usize,
    /// The string being read is stored.
    storing: bool,
    text_start: usize,
    value_at: usize,
    /// The kept value being read is not complete.
    pub(super) keeping: bool,
    /// A list grew too long.
    pub(super) overflow: Option<RequestError>,

    pub(super) is_object: bool,
    pub(super) model: Option<Field<TextSpan>>,
    pub(super) stream: bool,
    pub(super) max_tokens: Option<u64>,
    pub(super) max_completion_tokens: Option<u64>,
    pub(super) choices: Option<u64>,
    pub(super) stream_options: Option<StreamOptions>,
    pub(super) cache_salt: Option<TextSpan>,
    pub(super) chat_template: Option<TextSpan>,
    pub(super) add_generation_prompt: Option<bool>,
    pub(super) continue_final_message: Option<bool>,
    /// Indices of kept values of the body itself.
    pub(super) tools: Option<u32>,
    pub(super) tool_choice: Option<u32>,
    pub(super) documents: Option<u32>,
    pub(super) template_arguments: Option<u32>,

    pub(super) messages: Given,
    pub(super) first_message: usize,
    pub(super) message_fault: Option<(usize, MessageFault)>,
    message: Message,
    role_fault: bool,
    content_fault: Option<MessageFault>,
    first_part: usize,
    part: PartDraft,

    pub(super) prompt: Given,
    pub(super) first_prompt: usize,
    prompt_shape: PromptShape,
    token_start: usize,
}

impl Reader {
    pub(super) fn new(path: PathClass, scratch: Scratch) -> Self {
        Self {
            path,
            scratch,
            frame: Frame::Outside,
            slot: Slot::Body,
            skipped: 0,
            storing: false,
            text_start: 0,
            value_at: 0,
            keeping: false,
            overflow: None,
            is_object: false,
            model: None,
            stream: false,
            max_tokens: None,
            max_completion_tokens: None,
            choices: None,
            stream_options: None,
            cache_salt: None,
            chat_template: None,
            add_generation_prompt: None,
            continue_final_message: None,
            tools: None,
            tool_choice: None,
            documents: None,
            template_arguments: None,
            messages: Given::Nothing,
            first_message: 0,
            message_fault: None,
            message: Message::default(),
            role_fault: false,
            content_fault: None,
            first_part: 0,
            part: PartDraft::default(),
            prompt: Given::Nothing,
            first_prompt: 0,
            prompt_shape: PromptShape::Empty,
            token_start: 0,
        }
    }

    fn slot(&self) -> Slot {
        self.frame.item().unwrap_or(self.slot)
    }

    /// Gives a complete value (or the start of a wrong container) to its slot.
    fn assign(&mut self, slot: Slot, value: Value, span: ByteSpan) {
        match slot {
            Slot::Unread | Slot::Body | Slot::InputAudio => {}
            Slot::Model => {
                self.model = value.text().map(|value| Field { value, span });
            }
            Slot::Stream => self.stream = value.bool() == Some(true),
            Slot::MaxTokens => self.max_tokens = value.count(),
            Slot::MaxCompletionTokens => self.max_completion_tokens = value.count(),
            Slot::Choices => self.choices = value.count(),
            Slot::StreamOptions => {
                self.stream_options = Some(StreamOptions { span, ..StreamOptions::default() });
            }
            Slot::IncludeUsage | Slot::ContinuousUsage => self.usage_option(slot, value, span),
            Slot::CacheSalt => self.cache_salt = value.text(),
            Slot::ChatTemplate => self.chat_template = value.text(),
            Slot::AddGenerationPrompt => self.add_generation_prompt = value.bool(),
            Slot::ContinueFinalMessage => self.continue_final_message = value.bool(),
            // Strings and containers are kept as they come; a literal or number is nothing to keep.
            Slot::Kept(kept) => *self.kept_index(kept) = None,
            Slot::Messages => {
                self.messages = given(value);
                self.message_fault = None;
            }
            Slot::Message => self.blame(MessageFault::NotAnObject),
            Slot::Role => {
                self.message.role = value.text();
                self.role_fault = !matches!(value, Value::Text(_) | Value::Null);
            }
            Slot::Content => {
                let (content, fault) = match value {
                    Value::Text(span) => (Content::Text(span), None),
                    Value::Null => (Content::None, None),
                    _ => (Content::None, Some(MessageFault::Content)),
                };
                self.message.content = content;
                self.content_fault = fault;
            }
            Slot::Name => self.message.name = value.text(),
            Slot::ToolCallId => self.message.tool_call_id = value.text(),
            Slot::Reasoning => self.message.reasoning = value.text().or(self.message.reasoning),
            Slot::Part => match value {
                Value::Text(text) => {
                    self.part = PartDraft { text: Some(text), ..PartDraft::default() };
                    self.part_done();
                }
                _ => self.content_fault = Some(MessageFault::Part),
            },
            Slot::PartType => {
                self.part.kind = match value {
                    Value::Text(name) => PartType::of(name.of(&self.scratch.text)),
                    Value::Null => PartType::Absent,
                    _ => PartType::Unknown,
                };
            }
            Slot::PartText => self.part.text = value.text(),
            Slot::Url(kind) => *self.part.url(kind) = value.text(),
            Slot::AudioData => self.part.audio_data = value.text(),
            Slot::AudioFormat => self.part.audio_format = value.text().unwrap_or_default(),
            Slot::Prompt => self.prompt_value(value),
            Slot::PromptItem => self.prompt_item(value),
            Slot::TokenId => self.token_id(value),
        }
    }

    fn usage_option(&mut self, slot: Slot, value: Value, span: ByteSpan) {
        let field = Some(Field { value: value.bool(), span });
        if let Some(options) = &mut self.stream_options {
            match slot {
                Slot::IncludeUsage => options.include_usage = field,
                _ => options.continuous_usage_stats = field,
            }
        }
    }

    fn message_done(&mut self) {
        if self.role_fault {
            self.blame(MessageFault::Role);
        } else if let Some(fault) = self.content_fault {
            self.blame(fault);
        }
        if has_room(&mut self.overflow, self.scratch.messages.len(), "messages") {
            self.scratch.messages.push(self.message);
        }
    }

    /// Remembers the first fault of the messages; the message at hand is the next one to be stored.
    fn blame(&mut self, fault: MessageFault) {
        let index = self.scratch.messages.len().saturating_sub(self.first_message);
        self.message_fault.get_or_insert((index, fault));
    }

    fn part_done(&mut self) {
        if has_room(&mut self.overflow, self.scratch.parts.len(), "messages") {
            self.scratch.parts.push(self.part.part());
        }
    }

    fn push_prompt(&mut self, prompt: Prompt) {
        if has_room(&mut self.overflow, self.scratch.prompts.len(), "prompt") {
            self.scratch.prompts.push(prompt);
        }
    }

    fn prompt_value(&mut self, value: Value) {
        self.first_prompt = self.scratch.prompts.len();
        self.prompt = given(value);
        if let Value::Text(text) = value {
            // An empty prompt counts as none.
            if !text.is_empty() {
                self.prompt = Given::Good;
                self.push_prompt(Prompt::Text(text));
            } else {
                self.prompt = Given::Nothing;
            }
        }
    }

    fn prompt_item(&mut self, value: Value) {
        match (value, self.prompt_shape) {
            (Value::Text(text), PromptShape::Empty | PromptShape::Texts) => {
                self.prompt_shape = PromptShape::Texts;
                self.push_prompt(Prompt::Text(text));
            }
            (Value::Number(_), PromptShape::Empty | PromptShape::Tokens) => {
                self.prompt_shape = PromptShape::Tokens;
                self.token_id(value);
            }
            _ => self.prompt = Given::Bad,
        }
    }

    fn token_id(&mut self, value: Value) {
        match value.count().and_then(|id| u32::try_from(id).ok()) {
            Some(id) => self.scratch.text.extend_from_slice(&id.to_le_bytes()),
            None => self.prompt = Given::Bad,
        }
    }

    /// The ids stored since `token_start` are one prompt.
    fn tokens_done(&mut self) {
        let span = TextSpan::new(self.token_start, self.scratch.text.len());
        if span.is_empty() {
            self.prompt = Given::Bad;
        } else {
            self.push_prompt(Prompt::Tokens(span));
        }
    }

    fn kept_index(&mut self, kept: Kept) -> &mut Option<u32> {
        match kept {
            Kept::Tools => &mut self.tools,
            Kept::ToolChoice => &mut self.tool_choice,
            Kept::Documents => &mut self.documents,
            Kept::TemplateArguments => &mut self.template_arguments,
            Kept::ToolCalls => &mut self.message.tool_calls,
        }
    }

    fn keep(&mut self, kept: Kept, at: usize) {
        let index = self.scratch.captures.len();
        if has_room(&mut self.overflow, index, "messages") {
            self.keeping = true;
            self.scratch
                .captures
                .push(Captured { body: ByteSpan::new(at, usize::MAX), copy: TextSpan::default() });
            *self.kept_index(kept) = Some(clamp(index));
        }
    }

    fn kept(&mut self, end: usize) {
        if self.keeping {
            self.keeping = false;
            if let Some(captured) = self.scratch.captures.last_mut() {
                captured.body.end = clamp(end);
            }
        }
    }

    /// Enters a container that its slot takes; says if it did.
    fn enter(&mut self, slot: Slot, container: Container, at: usize) -> bool {
        let span = ByteSpan::new(at, at);
        self.frame = match (slot, container) {
            (Slot::Body, Container::Object) => {
                self.is_object = true;
                Frame::Root
            }
            (Slot::StreamOptions, Container::Object) => {
                self.assign(slot, Value::Wrong, span);
                if let Some(options) = &mut self.stream_options {
                    options.is_object = true;
                    options.is_empty = true;
                }
                Frame::StreamOptions
            }
            (Slot::Messages, Container::Array) => {
                self.messages = Given::Good;
                self.message_fault = None;
                self.first_message = self.scratch.messages.len();
                Frame::Messages
            }
            (Slot::Message, Container::Object) => {
                self.message = Message::default();
                self.role_fault = false;
                self.content_fault = None;
                Frame::Message
            }
            (Slot::Content, Container::Array) => {
                self.content_fault = None;
                self.first_part = self.scratch.parts.len();
                Frame::Parts
            }
            (Slot::Part, Container::Object) => {
                self.part = PartDraft::default();
                Frame::Part
            }
            (Slot::Url(kind), Container::Object) if self.frame == Frame::Part => {
                *self.part.url(kind) = None;
                Frame::Media(kind)
            }
            (Slot::InputAudio, Container::Object) => {
                self.part.audio_data = None;
                self.part.audio_format = TextSpan::default();
                Frame::InputAudio
            }
            (Slot::Prompt, Container::Array) => {
                self.prompt = Given::Good;
                self.prompt_shape = PromptShape::Empty;
                self.first_prompt = self.scratch.prompts.len();
                self.token_start = self.scratch.text.len();
                Frame::Prompt
            }
            (Slot::PromptItem, Container::Array)
                if matches!(self.prompt_shape, PromptShape::Empty | PromptShape::Rows) =>
            {
                self.prompt_shape = PromptShape::Rows;
                self.token_start = self.scratch.text.len();
                Frame::TokenRow
            }
            _ => return false,
        };
        true
    }
}

impl Handler for Reader {
    fn key(&mut self, name: &[u8]) {
        if self.skipped > 0 {
            return;
        }
        self.slot = Slot::of(self.frame, name, self.path);
        if self.frame == Frame::StreamOptions
            && let Some(options) = &mut self.stream_options
        {
            options.is_empty = false;
        }
    }

    fn string_start(&mut self, at: usize) {
        if self.skipped > 0 {
            return;
        }
        let slot = self.slot();
        self.value_at = at;
        self.text_start = self.scratch.text.len();
        self.storing = slot.takes_text();
        if let Slot::Kept(kept) = slot {
            self.keep(kept, at);
        }
    }

    #[inline]
    fn string_piece(&mut self, bytes: &[u8]) {
        if self.storing {
            self.scratch.text.extend_from_slice(bytes);
        }
    }

    fn string_end(&mut self, end: usize) {
        if self.skipped > 0 {
            return;
        }
        let slot = self.slot();
        let value = if self.storing {
            self.storing = false;
            Value::Text(TextSpan::new(self.text_start, self.scratch.text.len()))
        } else {
            Value::Wrong
        };
        if matches!(slot, Slot::Kept(_)) {
            self.kept(end);
        } else {
            self.assign(slot, value, ByteSpan::new(self.value_at, end));
        }
    }

    fn scalar(&mut self, value: Scalar, at: usize, end: usize) {
        if self.skipped > 0 {
            return;
        }
        let value = match value {
            Scalar::Null => Value::Null,
            Scalar::Bool(value) => Value::Bool(value),
            Scalar::Number(number) => Value::Number(number),
        };
        self.assign(self.slot(), value, ByteSpan::new(at, end));
    }

    fn open(&mut self, container: Container, at: usize) {
        if self.skipped > 0 {
            self.skipped = self.skipped.saturating_add(1);
            return;
        }
        let slot = self.slot();
        if self.enter(slot, container, at) {
            self.slot = Slot::Unread;
            return;
        }
        self.skipped = 1;
        match slot {
            Slot::Kept(kept) => self.keep(kept, at),
            _ => self.assign(slot, Value::Wrong, ByteSpan::new(at, at)),
        }
    }

    fn close(&mut self, _container: Container, end: usize) {
        if self.skipped > 0 {
            self.skipped = self.skipped.saturating_sub(1);
            if self.skipped == 0 {
                self.kept(end);
            }
            return;
        }
        match self.frame {
            Frame::StreamOptions => {
                if let Some(options) = &mut self.stream_options {
                    options.span.end = clamp(end);
                }
            }
            Frame::Message => self.message_done(),
            // A wrong item (a number, say) is a fault of its own; no item at all is no messages.
            Frame::Messages
                if self.scratch.messages.len() == self.first_message
                    && self.message_fault.is_none() =>
            {
                self.messages = Given::Nothing;
            }
            Frame::Parts => {
                self.message.content = Content::Parts {
                    start: clamp(self.first_part),
                    end: clamp(self.scratch.parts.len()),
                };
            }
            Frame::Part => self.part_done(),
            Frame::TokenRow => self.tokens_done(),
            Frame::Prompt => match self.prompt_shape {
                PromptShape::Empty if self.prompt == Given::Good => self.prompt = Given::Nothing,
                PromptShape::Tokens => self.tokens_done(),
                _ => {}
            },
            _ => {}
        }
        self.frame = self.frame.parent();
        self.slot = Slot::Unread;
    }
}

/// For a field that must be a container or text: null is nothing, all else is wrong.
fn given(value: Value) -> Given {
    match value {
        Value::Null => Given::Nothing,
        _ => Given::Bad,
    }
}

/// Whether one more item may be held; if not, the scan fails with [`RequestError::TooMany`].
fn has_room(overflow: &mut Option<RequestError>, length: usize, field: &'static str) -> bool {
    let room = length < MAX_ITEMS;
    if !room {
        *overflow = Some(RequestError::TooMany { field, limit: MAX_ITEMS });
    }
    room
}

impl Reader {
    /// Copies what `slice` (whose first byte is byte `base` of the body) holds of the kept values, from index
    /// `first` on. Gives the index to go on from.
    pub(super) fn copy_kept(&mut self, slice: &[u8], base: usize, first: usize) -> usize {
        let Scratch { captures, raw, .. } = &mut self.scratch;
        let end_of_slice = base.saturating_add(slice.len());
        let mut done = first;
        for captured in captures.iter_mut().skip(first) {
            let (start, end) = (widen(captured.body.start), widen(captured.body.end));
            let from = start.max(base);
            let to = end.min(end_of_slice);
            let copied = raw.len();
            let piece = slice.get(from.saturating_sub(base)..to.saturating_sub(base));
            raw.extend_from_slice(piece.unwrap_or_default());
            captured.copy = if start >= base {
                TextSpan::new(copied, raw.len())
            } else {
                captured.copy.extended_to(raw.len())
            };
            if end > end_of_slice {
                break;
            }
            done = done.saturating_add(1);
        }
        done
    }
}
