//! The fields of a body that we read, and where they stand.

use super::facts::MediaKind;
use super::path::PathClass;

/// The container whose items or fields are being read. Each has one possible parent, so no stack is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// Before the body's first value.
    Outside,
    Root,
    StreamOptions,
    Messages,
    Message,
    Parts,
    Part,
    /// `{"url": …}` of a media part.
    Media(MediaKind),
    InputAudio,
    Prompt,
    /// One array of token ids among several.
    TokenRow,
}

impl Frame {
    pub(super) fn parent(self) -> Self {
        match self {
            Self::Outside | Self::Root => Self::Outside,
            Self::StreamOptions | Self::Messages | Self::Prompt => Self::Root,
            Self::Message => Self::Messages,
            Self::Parts => Self::Message,
            Self::Part => Self::Parts,
            Self::Media(_) | Self::InputAudio => Self::Part,
            Self::TokenRow => Self::Prompt,
        }
    }

    /// What the items of an array frame are; `None` for an object, whose keys say it.
    pub(super) fn item(self) -> Option<Slot> {
        match self {
            Self::Messages => Some(Slot::Message),
            Self::Parts => Some(Slot::Part),
            Self::Prompt => Some(Slot::PromptItem),
            Self::TokenRow => Some(Slot::TokenId),
            _ => None,
        }
    }
}

/// What the next value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// Nothing that we read.
    Unread,
    Body,
    Model,
    Stream,
    MaxTokens,
    MaxCompletionTokens,
    Choices,
    StreamOptions,
    IncludeUsage,
    ContinuousUsage,
    CacheSalt,
    ChatTemplate,
    AddGenerationPrompt,
    ContinueFinalMessage,
    ReasoningEffort,
    /// A field that changes the tokens of a prompt behind the template's back.
    AlteringField(Altering),
    Kept(Kept),
    Messages,
    Message,
    Role,
    Content,
    Name,
    ToolCallId,
    Reasoning,
    ReasoningContent,
    Part,
    PartType,
    PartText,
    /// A media URL: a string, or an object that holds it.
    Url(MediaKind),
    InputAudio,
    AudioData,
    AudioFormat,
    Prompt,
    PromptItem,
    TokenId,
}

/// Fields that change a prompt's tokens, whatever the template makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Altering {
    AddSpecialTokens,
    TruncatePromptTokens,
    Suffix,
}

/// Values kept as they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Tools,
    ToolChoice,
    Documents,
    TemplateArguments,
    ToolCalls,
}

impl Slot {
    /// The field `name` of the object `frame`. Names are case-sensitive, as in the engine.
    pub(super) fn of(frame: Frame, name: &[u8], path: PathClass) -> Self {
        match frame {
            Frame::Root => Self::of_root(name, path),
            Frame::StreamOptions => match name {
                b"include_usage" => Self::IncludeUsage,
                b"continuous_usage_stats" => Self::ContinuousUsage,
                _ => Self::Unread,
            },
            Frame::Message => match name {
                b"role" => Self::Role,
                b"content" => Self::Content,
                b"name" => Self::Name,
                b"tool_call_id" => Self::ToolCallId,
                b"tool_calls" => Self::Kept(Kept::ToolCalls),
                b"reasoning" => Self::Reasoning,
                b"reasoning_content" => Self::ReasoningContent,
                _ => Self::Unread,
            },
            Frame::Part => match name {
                b"type" => Self::PartType,
                b"text" => Self::PartText,
                b"image_url" => Self::Url(MediaKind::Image),
                b"video_url" => Self::Url(MediaKind::Video),
                b"audio_url" => Self::Url(MediaKind::Audio),
                b"input_audio" => Self::InputAudio,
                _ => Self::Unread,
            },
            Frame::Media(kind) if name == b"url" => Self::Url(kind),
            Frame::InputAudio => match name {
                b"data" => Self::AudioData,
                b"format" => Self::AudioFormat,
                _ => Self::Unread,
            },
            _ => Self::Unread,
        }
    }

    fn of_root(name: &[u8], path: PathClass) -> Self {
        let chat = path == PathClass::Chat;
        match name {
            b"model" => Self::Model,
            b"stream" => Self::Stream,
            b"max_tokens" => Self::MaxTokens,
            b"n" => Self::Choices,
            b"stream_options" => Self::StreamOptions,
            b"cache_salt" => Self::CacheSalt,
            b"add_special_tokens" => Self::AlteringField(Altering::AddSpecialTokens),
            b"truncate_prompt_tokens" => Self::AlteringField(Altering::TruncatePromptTokens),
            b"suffix" if !chat => Self::AlteringField(Altering::Suffix),
            b"prompt" if !chat => Self::Prompt,
            b"messages" if chat => Self::Messages,
            b"max_completion_tokens" if chat => Self::MaxCompletionTokens,
            b"chat_template" if chat => Self::ChatTemplate,
            b"add_generation_prompt" if chat => Self::AddGenerationPrompt,
            b"continue_final_message" if chat => Self::ContinueFinalMessage,
            b"reasoning_effort" if chat => Self::ReasoningEffort,
            b"tools" if chat => Self::Kept(Kept::Tools),
            b"tool_choice" if chat => Self::Kept(Kept::ToolChoice),
            b"documents" if chat => Self::Kept(Kept::Documents),
            b"chat_template_kwargs" if chat => Self::Kept(Kept::TemplateArguments),
            _ => Self::Unread,
        }
    }

    /// Whether a string here is decoded and stored.
    pub(super) fn takes_text(self) -> bool {
        matches!(
            self,
            Self::Model
                | Self::CacheSalt
                | Self::ChatTemplate
                | Self::ReasoningEffort
                | Self::Role
                | Self::Content
                | Self::Name
                | Self::ToolCallId
                | Self::Reasoning
                | Self::ReasoningContent
                | Self::Part
                | Self::PartType
                | Self::PartText
                | Self::Url(_)
                | Self::AudioData
                | Self::AudioFormat
                | Self::Prompt
                | Self::PromptItem
        )
    }
}
