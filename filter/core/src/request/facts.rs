//! What a scan found.

use super::path::PathClass;
use super::prompt_digest::PromptDigest;
use super::scratch::Scratch;
use core::fmt;

/// Bytes `start..end` of the raw body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByteSpan {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

impl ByteSpan {
    pub(super) fn new(start: usize, end: usize) -> Self {
        Self { start: clamp(start), end: clamp(end) }
    }

    /// As a range for slicing the body.
    #[must_use]
    pub fn range(self) -> core::ops::Range<usize> {
        widen(self.start)..widen(self.end)
    }
}

/// A decoded string: read it with [`RequestFacts::bytes`] or [`RequestFacts::str`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextSpan {
    start: u32,
    end: u32,
}

impl TextSpan {
    pub(super) fn new(start: usize, end: usize) -> Self {
        Self { start: clamp(start), end: clamp(end) }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(self) -> usize {
        widen(self.end.saturating_sub(self.start))
    }

    /// Whether the string is `""`.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    pub(super) fn extended_to(self, end: usize) -> Self {
        Self { start: self.start, end: clamp(end) }
    }

    pub(super) fn of(self, arena: &[u8]) -> &[u8] {
        arena.get(widen(self.start)..widen(self.end)).unwrap_or_default()
    }
}

/// A value kept exactly as the client wrote it: read it with [`RequestFacts::raw`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Captured {
    /// Where it stands in the body.
    pub body: ByteSpan,
    /// Where its copy stands.
    pub(super) copy: TextSpan,
}

/// An optional field whose presence and place matter, because it may be spliced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<T> {
    /// What was sent.
    pub value: T,
    /// The value's bytes in the body.
    pub span: ByteSpan,
}

/// `stream_options`, as far as usage goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamOptions {
    /// The whole value. Something may be inserted after its first byte if `is_object`.
    pub span: ByteSpan,
    /// Whether it is an object; else it is `null` or something wrong.
    pub is_object: bool,
    /// Whether it is `null`.
    pub is_null: bool,
    /// Whether the object has no field at all: an insertion then needs no comma.
    pub is_empty: bool,
    /// `include_usage`; the value is `None` if it is not a boolean.
    pub include_usage: Option<Field<Option<bool>>>,
    /// `continuous_usage_stats`; the value is `None` if it is not a boolean.
    pub continuous_usage_stats: Option<Field<Option<bool>>>,
}

/// One message of a chat. Spans that were not sent, or were null, are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Message {
    /// `role`.
    pub role: Option<TextSpan>,
    /// `content`.
    pub content: Content,
    /// `name`.
    pub name: Option<TextSpan>,
    /// `tool_call_id`.
    pub tool_call_id: Option<TextSpan>,
    /// `reasoning`, else `reasoning_content`.
    pub reasoning: Option<TextSpan>,
    /// `tool_calls`: index into the captures, read by [`RequestFacts::tool_calls`].
    pub(super) tool_calls: Option<u32>,
}

/// A message's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Content {
    /// Not sent, or null (as in an assistant's tool call).
    #[default]
    None,
    /// One string.
    Text(TextSpan),
    /// A list of parts: read it with [`RequestFacts::parts`].
    Parts {
        /// Index of the first part.
        start: u32,
        /// Index after the last.
        end: u32,
    },
}

/// The kinds of media a part can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    /// `image_url`
    Image,
    /// `video_url`
    Video,
    /// `audio_url` or `input_audio`
    Audio,
}

/// One part of a structured content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Text.
    Text(TextSpan),
    /// An image, video or audio.
    Media {
        /// Which.
        kind: MediaKind,
        /// Its URL (a `data:` URL whole), or the base64 data of `input_audio`.
        content: TextSpan,
        /// The `format` of `input_audio`, else empty.
        format: TextSpan,
    },
    /// What the model thought.
    Thinking(TextSpan),
    /// Anthropic's call of a tool.
    ToolUse {
        /// `id`.
        id: Option<TextSpan>,
        /// `name`.
        name: Option<TextSpan>,
        /// `input`: index into the captures, read by [`RequestFacts::tool_input`].
        #[doc(hidden)]
        input: Option<u32>,
    },
    /// Anthropic's result of a tool.
    ToolResult {
        /// `tool_use_id`.
        id: Option<TextSpan>,
        /// `content`: its blocks are read by [`RequestFacts::result_parts`].
        content: Content,
    },
    /// A block that adds nothing to the prompt.
    Skipped,
    /// A kind we do not know, or one that lacks its content.
    Other,
}

/// One prompt of a completions request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompt {
    /// Text.
    Text(TextSpan),
    /// Token ids, each as four bytes little-endian.
    Tokens(TextSpan),
}

/// All that the filter wants to know of a request body.
///
/// Text is in buffers of its own; nothing refers to the body but [`ByteSpan`]s.
pub struct RequestFacts {
    /// The API.
    pub path: PathClass,
    /// Length of the body in bytes.
    pub body_bytes: usize,
    /// `model`, never empty; its span includes the quotes. `None` only where the API has none or it was said not to
    /// be needed.
    pub model: Option<Field<TextSpan>>,
    /// `stream` is `true`, or something else that the engine takes for it (`1`, `"true"`, `"on"` …).
    pub stream: bool,
    /// The client's limit: for chat the first valid of `max_completion_tokens` and `max_tokens`, for completions and
    /// Anthropic's messages `max_tokens`, for responses `max_output_tokens`, of `sampling_params` vLLM's `max_tokens`
    /// and SGLang's `max_new_tokens`. Valid is what the engine may read as a whole number from 0, so a string of digits
    /// too.
    pub max_output_tokens: Option<u64>,
    /// `n` (of the generate APIs in `sampling_params`), if it is valid in the same sense.
    pub choices: Option<u64>,
    /// `stream_options`, if sent (even as null).
    pub stream_options: Option<StreamOptions>,
    /// `cache_salt` (of SGLang `extra_key`), if it is a string.
    pub cache_salt: Option<TextSpan>,
    /// `chat_template`, if it is a string.
    pub chat_template: Option<TextSpan>,
    /// `add_generation_prompt`, if it is a boolean.
    pub add_generation_prompt: Option<bool>,
    /// `continue_final_message`, if it is a boolean.
    pub continue_final_message: Option<bool>,
    /// `reasoning_effort` (of Anthropic's API `output_config.effort`), if it is a string.
    pub reasoning_effort: Option<TextSpan>,
    /// The prompt's tokens are not those of its text alone: special tokens added or left out against the API's
    /// default, the prompt cut to a length, or a suffix to fill up to.
    pub alters_tokens: bool,
    /// `system` of Anthropic's API, `instructions` of the Responses API.
    pub system: Content,
    /// `input` of the Responses API, if it is a string; a list's items that are messages are among the messages.
    pub input: Content,
    /// `input` of the Responses API or `items` of the Conversations API, if it is a list.
    pub items: Option<Captured>,
    /// Anthropic's `thinking` is `{"type": "disabled"}`.
    pub disables_thinking: bool,
    /// `tools`, unless null.
    pub tools: Option<Captured>,
    /// `tool_choice`, unless null.
    pub tool_choice: Option<Captured>,
    /// `documents`, unless null.
    pub documents: Option<Captured>,
    /// `chat_template_kwargs`, unless null.
    pub chat_template_kwargs: Option<Captured>,
    /// Where the body's first byte that is no white space stands.
    pub(super) body_start: u32,
    /// vLLM's `features`: the token ids stand for more than text.
    pub(super) has_features: bool,
    /// Index range of the messages that count.
    pub(super) messages: (u32, u32),
    /// Index range of the prompts that count.
    pub(super) prompts: (u32, u32),
    /// The messages' texts, where they were hashed as they came and not kept.
    pub(super) digest: Option<Box<PromptDigest>>,
    pub(super) scratch: Scratch,
}

impl RequestFacts {
    /// The model's name; empty if the body has none.
    #[must_use]
    pub fn model_name(&self) -> &str {
        self.model.map(|model| self.str(model.value)).unwrap_or_default()
    }

    /// Where the values of the body's `model` stand. It may be there more than once: the last counts here as in the
    /// engine, but another reader may take the first.
    #[must_use]
    pub fn model_spans(&self) -> &[ByteSpan] {
        &self.scratch.models
    }

    /// Whether there is more than text to read: images, video, audio.
    #[must_use]
    pub fn is_multimodal(&self) -> bool {
        let holds_media =
            |parts: &[Part]| parts.iter().any(|part| matches!(part, Part::Media { .. }));
        self.has_features
            || self.messages().iter().any(|message| {
                let parts = self.parts(message.content);
                holds_media(parts)
                    || parts.iter().any(|part| match *part {
                        Part::ToolResult { content, .. } => holds_media(self.result_parts(content)),
                        _ => false,
                    })
            })
    }

    /// The bytes of a decoded string: always UTF-8, but for token ids.
    #[must_use]
    pub fn bytes(&self, span: TextSpan) -> &[u8] {
        span.of(&self.scratch.text)
    }

    /// A decoded string. It is checked again; for long texts prefer [`bytes`](Self::bytes).
    #[must_use]
    pub fn str(&self, span: TextSpan) -> &str {
        core::str::from_utf8(self.bytes(span)).unwrap_or_default()
    }

    /// A captured value as it was written.
    #[must_use]
    pub fn raw(&self, captured: Captured) -> &[u8] {
        captured.copy.of(&self.scratch.raw)
    }

    /// The messages of a chat (of the Responses and Conversations APIs: all items, those that are no message without
    /// role and content); none for completions.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        range(&self.scratch.messages, self.messages)
    }

    /// The `tool_calls` of a message, unless null.
    #[must_use]
    pub fn tool_calls(&self, message: &Message) -> Option<Captured> {
        let index = widen(message.tool_calls?);
        self.scratch.captures.get(index).copied()
    }

    /// The parts of a structured content; none for text.
    #[must_use]
    pub fn parts(&self, content: Content) -> &[Part] {
        match content {
            Content::Parts { start, end } => range(&self.scratch.parts, (start, end)),
            Content::None | Content::Text(_) => &[],
        }
    }

    /// The blocks of a tool result's content; none for text.
    #[must_use]
    pub fn result_parts(&self, content: Content) -> &[Part] {
        match content {
            Content::Parts { start, end } => range(&self.scratch.result_parts, (start, end)),
            Content::None | Content::Text(_) => &[],
        }
    }

    /// The `input` of a tool use that is an object, an array or a string.
    #[must_use]
    pub fn tool_input(&self, part: &Part) -> Option<Captured> {
        let Part::ToolUse { input: Some(index), .. } = *part else { return None };
        self.scratch.captures.get(widen(index)).copied()
    }

    /// The prompts of a completions, embeddings, images or generate request; none for a chat.
    #[must_use]
    pub fn prompts(&self) -> &[Prompt] {
        range(&self.scratch.prompts, self.prompts)
    }

    /// How many independent prompts there are: 1 for a chat of any API. Each has a prefix of its own.
    #[must_use]
    pub fn prompt_count(&self) -> usize {
        match self.path {
            PathClass::Completions | PathClass::Embeddings => self.prompts().len(),
            _ => 1,
        }
    }

    /// Whether the messages' texts were hashed as they came: they read as empty.
    #[must_use]
    pub fn is_digested(&self) -> bool {
        self.digest.is_some()
    }

    /// Gives the buffers back.
    #[must_use]
    pub fn into_scratch(self) -> Scratch {
        self.scratch
    }
}

/// Sizes and flags only: no prompt text.
impl fmt::Debug for RequestFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestFacts")
            .field("path", &self.path)
            .field("body_bytes", &self.body_bytes)
            .field("stream", &self.stream)
            .field("max_output_tokens", &self.max_output_tokens)
            .field("messages", &self.messages().len())
            .field("prompts", &self.prompts().len())
            .finish_non_exhaustive()
    }
}

/// Offsets are below `u32::MAX`: a longer body is refused before it gets here.
pub(super) fn clamp(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

pub(super) fn widen(offset: u32) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn range<T>(items: &[T], (start, end): (u32, u32)) -> &[T] {
    items.get(widen(start)..widen(end)).unwrap_or_default()
}
