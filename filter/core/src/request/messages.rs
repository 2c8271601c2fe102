//! The `messages` of a chat while they come in.

use super::content::{PartDraft, PartType};
use super::error::{MessageFault, RequestError};
use super::facts::{Content, Message, Part, TextSpan, clamp};
use super::fields::Slot;
use super::scratch::Scratch;
use super::value::{Given, Value};

/// `messages`, the message at hand, and its part at hand.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MessagesDraft {
    given: Given,
    /// Index of the first message that counts.
    pub(super) first: usize,
    /// The first fault and its message.
    fault: Option<(usize, MessageFault)>,
    pub(super) message: Message,
    /// `reasoning_content`: counts if there is no `reasoning`.
    reasoning_content: Option<TextSpan>,
    role_fault: bool,
    content_fault: Option<MessageFault>,
    first_part: usize,
    pub(super) part: PartDraft,
    /// A block inside the part's tool result is being read.
    in_result: bool,
    first_result_part: usize,
    result_part: PartDraft,
}

impl MessagesDraft {
    /// The field's whole value, if it is no array.
    pub(super) fn value(&mut self, value: Value, scratch: &Scratch) {
        self.given = Given::unless_null(value);
        self.fault = None;
        self.first = scratch.messages.len();
    }

    /// The array opens.
    pub(super) fn open(&mut self, scratch: &Scratch) {
        self.given = Given::Good;
        self.fault = None;
        self.first = scratch.messages.len();
    }

    /// A message opens.
    pub(super) fn open_message(&mut self) {
        self.message = Message::default();
        self.reasoning_content = None;
        self.role_fault = false;
        self.content_fault = None;
    }

    /// An array of parts opens.
    pub(super) fn open_parts(&mut self, scratch: &Scratch) {
        self.content_fault = None;
        self.first_part = scratch.parts.len();
    }

    /// A tool result's array of blocks opens.
    pub(super) fn open_result(&mut self, scratch: &Scratch) {
        self.in_result = true;
        self.first_result_part = scratch.result_parts.len();
    }

    /// A part, or a block of a tool result, opens.
    pub(super) fn open_part(&mut self) {
        *self.current_part() = PartDraft::default();
    }

    fn current_part(&mut self) -> &mut PartDraft {
        if self.in_result { &mut self.result_part } else { &mut self.part }
    }

    /// An object opens as the value of a media field of the part.
    pub(super) fn open_media(&mut self, slot: Slot) {
        match slot {
            Slot::Url(kind) => *self.part.url(kind) = None,
            Slot::Source => {
                let part = self.current_part();
                part.source_data = None;
                part.source_url = None;
            }
            _ => {
                self.part.audio_data = None;
                self.part.audio_format = TextSpan::default();
            }
        }
    }

    /// A field of a message or of a part.
    pub(super) fn field(&mut self, slot: Slot, value: Value, scratch: &mut Scratch) {
        match slot {
            // A message that is no object.
            Slot::Message => self.blame(MessageFault::NotAnObject, scratch),
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
            Slot::Reasoning => self.message.reasoning = value.text(),
            Slot::ReasoningContent => self.reasoning_content = value.text(),
            // A part that is no object.
            Slot::Part if self.in_result => scratch.push_result_part(Part::Other),
            Slot::Part => match value.text() {
                Some(text) => {
                    self.part = PartDraft { text: Some(text), ..PartDraft::default() };
                    self.close_part(scratch);
                }
                None => self.content_fault = Some(MessageFault::Part),
            },
            Slot::PartType => {
                self.current_part().kind = match value {
                    Value::Text(name) => PartType::of(name.of(&scratch.text)),
                    Value::Null => PartType::Absent,
                    _ => PartType::Unknown,
                };
            }
            Slot::PartText => self.current_part().text = value.text(),
            Slot::PartThinking => self.part.thinking = value.text(),
            Slot::BlockId => self.part.id = value.text(),
            Slot::BlockName => self.part.name = value.text(),
            Slot::BlockResultId => self.part.result_id = value.text(),
            Slot::BlockResult => {
                self.part.result = value.text().map_or(Content::None, Content::Text);
            }
            Slot::SourceData => self.current_part().source_data = value.text(),
            Slot::SourceUrl => self.current_part().source_url = value.text(),
            Slot::Url(kind) => *self.part.url(kind) = value.text(),
            Slot::AudioData => self.part.audio_data = value.text(),
            Slot::AudioFormat => self.part.audio_format = value.text().unwrap_or_default(),
            _ => {}
        }
    }

    /// The part, or the block of a tool result, closes.
    pub(super) fn close_part(&mut self, scratch: &mut Scratch) {
        if self.in_result {
            scratch.push_result_part(self.result_part.part());
        } else {
            scratch.push_part(self.part.part());
        }
    }

    /// The tool result's array of blocks closes.
    pub(super) fn close_result(&mut self, scratch: &Scratch) {
        let (start, end) = (self.first_result_part, scratch.result_parts.len());
        self.part.result = Content::Parts { start: clamp(start), end: clamp(end) };
        self.in_result = false;
    }

    /// An array of parts closes: what it was.
    pub(super) fn close_parts(&self, scratch: &Scratch) -> Content {
        Content::Parts { start: clamp(self.first_part), end: clamp(scratch.parts.len()) }
    }

    /// The message closes.
    pub(super) fn close_message(&mut self, scratch: &mut Scratch) {
        if self.role_fault {
            self.blame(MessageFault::Role, scratch);
        } else if let Some(fault) = self.content_fault {
            self.blame(fault, scratch);
        }
        self.message.reasoning = self.message.reasoning.or(self.reasoning_content);
        scratch.push_message(self.message);
    }

    /// The array closes.
    pub(super) fn close(&mut self, scratch: &Scratch) {
        // A wrong item (a number, say) is a fault of its own; no item at all is no messages.
        if scratch.messages.len() == self.first && self.fault.is_none() {
            self.given = Given::Nothing;
        }
    }

    /// What was given for the whole field, whatever its items are.
    pub(super) fn given(&self) -> Given {
        self.given
    }

    /// Judges the field at the end of the body.
    pub(super) fn check(&self) -> Result<(), RequestError> {
        match (self.given, self.fault) {
            (Given::Good, None) => Ok(()),
            (Given::Good, Some((index, fault))) => {
                Err(RequestError::BadMessages { index: Some(clamp(index)), fault })
            }
            (Given::Nothing, _) => Err(RequestError::MissingMessages),
            (Given::Bad, _) => {
                Err(RequestError::BadMessages { index: None, fault: MessageFault::NotAnArray })
            }
        }
    }

    /// Remembers the first fault. The message at hand is the next one to be stored.
    fn blame(&mut self, fault: MessageFault, scratch: &Scratch) {
        let index = scratch.messages.len().saturating_sub(self.first);
        self.fault.get_or_insert((index, fault));
    }
}
