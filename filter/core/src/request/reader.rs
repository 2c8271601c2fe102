//! From JSON events to fields. Of duplicate keys the last wins, as in the engine's (Python's) parser.

use super::content::PartType;
use super::draft::Draft;
use super::facts::{ByteSpan, Content, Field, Part, StreamOptions, TextSpan, clamp};
use super::fields::{Altering, Frame, Kept, Slot};
use super::kept::Keeper;
use super::path::PathClass;
use super::prompt_digest::PromptDigest;
use super::scratch::Scratch;
use super::value::Value;
use crate::json::{Container, Handler, Scalar};

/// Bytes of a text that are gathered before they are hashed: they come in short pieces, and a processor that reads words
/// where it has just written bytes has to wait for each.
const GATHERED_BYTES: usize = 4096;

/// What becomes of a string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Becomes {
    /// Passed over.
    Nothing,
    /// Stored.
    Text,
    /// Hashed.
    Digest,
}

/// Listens to the scanner, follows where it is, and fills draft and buffers.
pub(super) struct Reader {
    pub(super) path: PathClass,
    pub(super) scratch: Scratch,
    pub(super) draft: Draft,
    pub(super) keeper: Keeper,
    frame: Frame,
    /// What the next value is: said by the last key, or by the array.
    slot: Slot,
    /// Containers open inside a value that we do not read.
    skipped: usize,
    /// What that value is.
    skipped_slot: Slot,
    /// What becomes of the string being read.
    string: Becomes,
    /// Where messages are hashed as they come: what was read of them.
    pub(super) digest: Option<Box<PromptDigest>>,
    /// Where the texts of the part at hand begin.
    part_start: usize,
    text_start: usize,
    value_at: usize,
}

impl Reader {
    pub(super) fn new(path: PathClass, scratch: Scratch) -> Self {
        Self {
            path,
            scratch,
            draft: Draft::default(),
            keeper: Keeper::default(),
            frame: Frame::Outside,
            slot: Slot::Body,
            skipped: 0,
            skipped_slot: Slot::Unread,
            string: Becomes::Nothing,
            digest: None,
            part_start: 0,
            text_start: 0,
            value_at: 0,
        }
    }

    fn to(&mut self, frame: Frame) {
        self.frame = frame;
        self.slot = frame.item();
    }

    /// Gives a complete value (or the start of a wrong container) to its slot.
    fn assign(&mut self, slot: Slot, value: Value, span: ByteSpan) {
        let Self { draft, scratch, .. } = self;
        match slot {
            Slot::Model => {
                scratch.push_model(span);
                draft.model = value.text().map(|value| Field { value, span });
            }
            Slot::Stream => draft.stream = value.means_true(&scratch.text),
            Slot::MaxTokens => draft.max_tokens = value.count(&scratch.text),
            Slot::MaxCompletionTokens => draft.max_completion_tokens = value.count(&scratch.text),
            Slot::Choices => draft.choices = value.count(&scratch.text),
            Slot::StreamOptions => {
                let is_null = value == Value::Null;
                draft.stream_options =
                    Some(StreamOptions { span, is_null, ..StreamOptions::default() });
            }
            Slot::IncludeUsage | Slot::ContinuousUsage => {
                let value = value.bool();
                if let Some(options) = &mut draft.stream_options {
                    let field = match slot {
                        Slot::IncludeUsage => &mut options.include_usage,
                        _ => &mut options.continuous_usage_stats,
                    };
                    *field = Some(Field { value, span });
                }
            }
            Slot::CacheSalt => draft.cache_salt = value.text(),
            Slot::ChatTemplate => draft.chat_template = value.text(),
            Slot::AddGenerationPrompt => draft.add_generation_prompt = value.bool(),
            Slot::ContinueFinalMessage => draft.continue_final_message = value.bool(),
            Slot::ReasoningEffort => draft.reasoning_effort = value.text(),
            Slot::System => draft.system = value.text().map_or(Content::None, Content::Text),
            Slot::Thinking => draft.disables_thinking = false,
            Slot::ThinkingType => {
                let kind = value.text().map(|kind| kind.of(&scratch.text));
                draft.disables_thinking = kind == Some(b"disabled");
            }
            Slot::OutputConfig => draft.reasoning_effort = None,
            Slot::AlteringField(field) => match field {
                Altering::AddSpecialTokens => draft.adds_special_tokens = value.bool(),
                Altering::TruncatePromptTokens => draft.truncates = value != Value::Null,
                Altering::Suffix => draft.has_suffix = value != Value::Null,
            },
            // Strings and containers do not come here; a literal or number is nothing to keep.
            Slot::Kept(kept) => *self.kept_index(kept) = None,
            Slot::Messages => {
                draft.messages.value(value, scratch);
                self.digest.iter_mut().for_each(|digest| digest.restart());
            }
            Slot::Prompt => draft.prompt.value(value, scratch),
            Slot::PromptItem => draft.prompt.item(value, scratch),
            Slot::TokenId => draft.prompt.token_id(value, scratch),
            Slot::Tokens => draft.prompt.value(value, scratch),
            Slot::SamplingParams => draft.reset_sampling(),
            Slot::Features => draft.has_features = value != Value::Null,
            Slot::Items => {
                draft.input = value.text().map_or(Content::None, Content::Text);
                draft.items = None;
                draft.has_input = value != Value::Null;
                draft.messages.value(value, scratch);
            }
            _ => draft.messages.field(slot, value, scratch),
        }
    }

    fn kept_index(&mut self, kept: Kept) -> &mut Option<u32> {
        match kept {
            Kept::Tools => &mut self.draft.tools,
            Kept::ToolChoice => &mut self.draft.tool_choice,
            Kept::Documents => &mut self.draft.documents,
            Kept::TemplateArguments => &mut self.draft.template_arguments,
            Kept::ToolCalls => &mut self.draft.messages.message.tool_calls,
            Kept::ToolInput => &mut self.draft.messages.part.input,
        }
    }

    fn keep(&mut self, kept: Kept, at: usize) {
        let index = self.keeper.begin(at, &mut self.scratch);
        *self.kept_index(kept) = Some(index);
    }

    /// The frame that a container opens, if its slot takes it.
    fn enter(&mut self, slot: Slot, container: Container, at: usize) -> Option<Frame> {
        if (slot, container) == (Slot::Items, Container::Array) {
            return Some(self.enter_items(at));
        }
        let Self { draft, scratch, .. } = self;
        Some(match (slot, container) {
            (Slot::Body, Container::Object) => {
                draft.is_object = true;
                draft.body_start = clamp(at);
                Frame::Root
            }
            (Slot::StreamOptions, Container::Object) => {
                draft.stream_options = Some(StreamOptions {
                    span: ByteSpan::new(at, at),
                    is_object: true,
                    is_empty: true,
                    ..StreamOptions::default()
                });
                Frame::StreamOptions
            }
            (Slot::Messages, Container::Array) => {
                draft.messages.open(scratch);
                self.digest.iter_mut().for_each(|digest| digest.restart());
                Frame::Messages
            }
            (Slot::Message, Container::Object) => {
                draft.messages.open_message();
                self.digest.iter_mut().for_each(|digest| digest.begin_message());
                Frame::Message
            }
            (Slot::Content, Container::Array) => {
                draft.messages.open_parts(scratch);
                self.digest_role();
                Frame::Parts
            }
            (Slot::Part, Container::Object) => {
                draft.messages.open_part();
                self.part_start = scratch.text.len();
                self.digest.iter_mut().for_each(|digest| digest.begin_part());
                match self.frame {
                    Frame::System => Frame::SystemBlock,
                    Frame::Result => Frame::ResultBlock,
                    _ => Frame::Part,
                }
            }
            (Slot::Source, Container::Object) => {
                draft.messages.open_media(slot);
                if self.frame == Frame::ResultBlock { Frame::ResultSource } else { Frame::Source }
            }
            (Slot::BlockResult, Container::Array) => {
                draft.messages.open_result(scratch);
                Frame::Result
            }
            (Slot::System, Container::Array) => {
                draft.messages.open_parts(scratch);
                Frame::System
            }
            (Slot::Thinking, Container::Object) => {
                draft.disables_thinking = false;
                Frame::Thinking
            }
            (Slot::OutputConfig, Container::Object) => {
                draft.reasoning_effort = None;
                Frame::OutputConfig
            }
            (Slot::Url(kind), Container::Object) if self.frame == Frame::Part => {
                draft.messages.open_media(slot);
                Frame::Media(kind)
            }
            (Slot::InputAudio, Container::Object) => {
                draft.messages.open_media(slot);
                Frame::InputAudio
            }
            (Slot::Prompt, Container::Array) => {
                draft.prompt.open(scratch);
                Frame::Prompt
            }
            (Slot::Tokens, Container::Array) => {
                draft.prompt.open_list(scratch);
                Frame::Tokens
            }
            (Slot::SamplingParams, Container::Object) => {
                draft.reset_sampling();
                Frame::SamplingParams
            }
            (Slot::PromptItem, Container::Array) if draft.prompt.open_row(scratch) => {
                Frame::TokenRow
            }
            _ => return None,
        })
    }

    /// A list that is kept and read as well.
    fn enter_items(&mut self, at: usize) -> Frame {
        let index = self.keeper.begin(at, &mut self.scratch);
        let Self { draft, scratch, .. } = self;
        draft.items = Some(index);
        draft.input = Content::None;
        draft.has_input = true;
        draft.messages.open(scratch);
        Frame::Messages
    }

    /// The role of the message at hand goes before what comes now of it.
    fn digest_role(&mut self) {
        let Self { digest: Some(digest), draft, scratch, .. } = self else { return };
        digest.role(draft.messages.message.role, &scratch.text);
    }

    /// Whether the string that begins is hashed as it comes.
    fn begins_digest(&mut self, slot: Slot) -> bool {
        let Some(digest) = &mut self.digest else { return false };
        match slot {
            Slot::Content | Slot::Part => {
                self.digest_role();
                true
            }
            // What a part's text is good for shows with its type, which nearly always comes first.
            Slot::PartText => {
                let is_text = self.draft.messages.part.kind == PartType::Text;
                digest.begin_part_text(is_text);
                is_text
            }
            _ => false,
        }
    }

    /// Hashes what was gathered of the string at hand, and keeps nothing of it.
    fn digest_text(&mut self) {
        let text = &mut self.scratch.text;
        if let Some(digest) = &mut self.digest {
            digest.push(text.get(self.text_start..).unwrap_or_default());
        }
        text.truncate(self.text_start);
    }

    /// The part at hand has closed: it is hashed, if it was not as it came, and not kept.
    fn digest_part(&mut self) {
        let Self { digest: Some(digest), scratch, .. } = self else { return };
        let Some(part) = scratch.parts.last_mut() else { return };
        digest.part(part, &scratch.text);
        let nothing = TextSpan::default();
        *part = match *part {
            Part::Text(_) => Part::Text(nothing),
            Part::Media { kind, .. } => Part::Media { kind, content: nothing, format: nothing },
            _ => Part::Other,
        };
        scratch.text.truncate(self.part_start);
    }

    /// The value of `slot` that was passed over ends before `end`.
    fn skipped(&mut self, slot: Slot, end: usize) {
        let end_of_span = clamp(end);
        let Self { draft, scratch, .. } = self;
        match slot {
            Slot::Kept(_) => self.keeper.end(end, scratch),
            Slot::Model => {
                if let Some(span) = scratch.models.last_mut() {
                    span.end = end_of_span;
                }
            }
            Slot::StreamOptions => {
                if let Some(options) = &mut draft.stream_options {
                    options.span.end = end_of_span;
                }
            }
            Slot::IncludeUsage | Slot::ContinuousUsage => {
                let options = draft.stream_options.as_mut();
                let field = options.and_then(|options| match slot {
                    Slot::IncludeUsage => options.include_usage.as_mut(),
                    _ => options.continuous_usage_stats.as_mut(),
                });
                if let Some(field) = field {
                    field.span.end = end_of_span;
                }
            }
            _ => {}
        }
    }

    /// The frame at hand closes before `end`.
    fn leave(&mut self, end: usize) {
        let Self { draft, scratch, .. } = self;
        match self.frame {
            Frame::StreamOptions => {
                if let Some(options) = &mut draft.stream_options {
                    options.span.end = clamp(end);
                }
            }
            Frame::Messages => {
                draft.messages.close(scratch);
                if matches!(self.path, PathClass::Responses | PathClass::Conversations) {
                    self.keeper.end(end, scratch);
                }
            }
            Frame::Message => {
                self.digest_role();
                self.draft.messages.close_message(&mut self.scratch);
            }
            Frame::Parts => {
                draft.messages.message.content = draft.messages.close_parts(scratch);
            }
            Frame::System => draft.system = draft.messages.close_parts(scratch),
            Frame::Result => draft.messages.close_result(scratch),
            Frame::Part | Frame::SystemBlock | Frame::ResultBlock => {
                draft.messages.close_part(scratch);
                self.digest_part();
            }
            Frame::Prompt | Frame::Tokens => draft.prompt.close(scratch),
            Frame::TokenRow => draft.prompt.close_row(scratch),
            Frame::Outside
            | Frame::Root
            | Frame::Media(_)
            | Frame::InputAudio
            | Frame::Source
            | Frame::ResultSource
            | Frame::Thinking
            | Frame::OutputConfig
            | Frame::SamplingParams => {}
        }
        self.to(self.frame.parent());
    }
}

impl Handler for Reader {
    fn key(&mut self, name: &[u8]) {
        if self.skipped > 0 {
            return;
        }
        self.slot = Slot::of(self.frame, name, self.path);
        if self.frame == Frame::StreamOptions
            && let Some(options) = &mut self.draft.stream_options
        {
            options.is_empty = false;
        }
    }

    fn string_start(&mut self, at: usize) {
        if self.skipped > 0 {
            return;
        }
        let slot = self.slot;
        self.value_at = at;
        self.text_start = self.scratch.text.len();
        self.string = match slot {
            _ if !slot.takes_text() => Becomes::Nothing,
            _ if self.begins_digest(slot) => Becomes::Digest,
            _ => Becomes::Text,
        };
        if let Slot::Kept(kept) = slot {
            self.keep(kept, at);
        }
    }

    #[inline]
    fn string_piece(&mut self, bytes: &[u8]) {
        if self.string == Becomes::Nothing {
            return;
        }
        let text = &mut self.scratch.text;
        text.extend_from_slice(bytes);
        if self.string == Becomes::Digest
            && text.len().saturating_sub(self.text_start) >= GATHERED_BYTES
        {
            self.digest_text();
        }
    }

    fn string_end(&mut self, end: usize) {
        if self.skipped > 0 {
            return;
        }
        if self.string == Becomes::Digest {
            self.digest_text();
        }
        let value = match self.string {
            Becomes::Nothing => Value::Wrong,
            // Nothing was stored of what was hashed: an empty text.
            _ => Value::Text(TextSpan::new(self.text_start, self.scratch.text.len())),
        };
        self.string = Becomes::Nothing;
        match self.slot {
            Slot::Kept(_) => self.keeper.end(end, &mut self.scratch),
            slot => self.assign(slot, value, ByteSpan::new(self.value_at, end)),
        }
    }

    fn scalar(&mut self, value: Scalar, at: usize, end: usize) {
        if self.skipped > 0 {
            return;
        }
        let Self { draft, scratch, .. } = self;
        match self.slot {
            // Token ids come by the ten thousand.
            Slot::TokenId => draft.prompt.token_id(value.into(), scratch),
            Slot::PromptItem => draft.prompt.item(value.into(), scratch),
            slot => self.assign(slot, value.into(), ByteSpan::new(at, end)),
        }
    }

    fn open(&mut self, container: Container, at: usize) {
        if self.skipped > 0 {
            self.skipped = self.skipped.saturating_add(1);
            return;
        }
        let slot = self.slot;
        if let Some(frame) = self.enter(slot, container, at) {
            self.to(frame);
            return;
        }
        self.skipped = 1;
        self.skipped_slot = slot;
        match slot {
            Slot::Kept(kept) => self.keep(kept, at),
            _ => self.assign(slot, Value::Wrong, ByteSpan::new(at, at)),
        }
    }

    fn close(&mut self, _container: Container, end: usize) {
        if self.skipped > 0 {
            self.skipped = self.skipped.saturating_sub(1);
            if self.skipped == 0 {
                self.skipped(self.skipped_slot, end);
            }
            return;
        }
        self.leave(end);
    }
}
