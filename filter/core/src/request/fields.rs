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
    /// Anthropic's `system`, its blocks, and one of them.
    System,
    SystemBlock,
    /// Anthropic's `source` of an image.
    Source,
    /// Anthropic's `content` of a tool result, one block of it, and that one's `source`.
    Result,
    ResultBlock,
    ResultSource,
    /// Anthropic's `thinking`.
    Thinking,
    /// Anthropic's `output_config`.
    OutputConfig,
    Prompt,
    /// One array of token ids among several.
    TokenRow,
    /// The one array of token ids of the generate APIs.
    Tokens,
    /// `sampling_params` of the generate APIs.
    SamplingParams,
}

impl Frame {
    pub(super) fn parent(self) -> Self {
        match self {
            Self::Outside | Self::Root => Self::Outside,
            Self::StreamOptions
            | Self::Messages
            | Self::Prompt
            | Self::System
            | Self::Thinking
            | Self::OutputConfig
            | Self::Tokens
            | Self::SamplingParams => Self::Root,
            Self::Message => Self::Messages,
            Self::Parts => Self::Message,
            Self::Part => Self::Parts,
            Self::Media(_) | Self::InputAudio | Self::Source | Self::Result => Self::Part,
            Self::SystemBlock => Self::System,
            Self::ResultBlock => Self::Result,
            Self::ResultSource => Self::ResultBlock,
            Self::TokenRow => Self::Prompt,
        }
    }

    /// What the items of an array frame are; of an object its keys say it.
    pub(super) fn item(self) -> Slot {
        match self {
            Self::Messages => Slot::Message,
            Self::Parts | Self::System | Self::Result => Slot::Part,
            Self::Prompt => Slot::PromptItem,
            Self::TokenRow | Self::Tokens => Slot::TokenId,
            _ => Slot::Unread,
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
    PartThinking,
    /// Anthropic's blocks: what names them and what they hold.
    BlockId,
    BlockName,
    BlockResultId,
    BlockResult,
    Source,
    SourceData,
    SourceUrl,
    System,
    Thinking,
    ThinkingType,
    OutputConfig,
    /// A media URL: a string, or an object that holds it.
    Url(MediaKind),
    InputAudio,
    AudioData,
    AudioFormat,
    Prompt,
    PromptItem,
    TokenId,
    /// The array of token ids of the generate APIs.
    Tokens,
    SamplingParams,
    /// `features` of vLLM's generate API: there is more than text.
    Features,
    /// `input` of the Responses API, `items` of the Conversations API: a text or a list of items, of which some are
    /// messages.
    Items,
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
    ToolInput,
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
                // The list of items is kept as it is written, so nothing in it is kept apart.
                _ if matches!(path, PathClass::Responses | PathClass::Conversations) => {
                    Self::Unread
                }
                b"name" => Self::Name,
                b"tool_call_id" => Self::ToolCallId,
                b"tool_calls" => Self::Kept(Kept::ToolCalls),
                b"reasoning" => Self::Reasoning,
                b"reasoning_content" => Self::ReasoningContent,
                _ => Self::Unread,
            },
            Frame::Part if path == PathClass::Messages => Self::of_block(name),
            Frame::ResultBlock | Frame::SystemBlock => match name {
                b"type" => Self::PartType,
                b"text" => Self::PartText,
                b"source" if frame == Frame::ResultBlock => Self::Source,
                _ => Self::Unread,
            },
            Frame::Source | Frame::ResultSource => match name {
                b"data" => Self::SourceData,
                b"url" => Self::SourceUrl,
                _ => Self::Unread,
            },
            Frame::Thinking if name == b"type" => Self::ThinkingType,
            Frame::OutputConfig if name == b"effort" => Self::ReasoningEffort,
            Frame::SamplingParams => match (name, path) {
                (b"max_tokens", PathClass::Generate)
                | (b"max_new_tokens", PathClass::SglangGenerate) => Self::MaxTokens,
                (b"n", _) => Self::Choices,
                _ => Self::Unread,
            },
            Frame::Part => match name {
                b"type" => Self::PartType,
                b"text" => Self::PartText,
                b"thinking" => Self::PartThinking,
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

    /// A field of one of Anthropic's blocks.
    fn of_block(name: &[u8]) -> Self {
        match name {
            b"type" => Self::PartType,
            b"text" => Self::PartText,
            b"thinking" => Self::PartThinking,
            b"source" => Self::Source,
            b"id" => Self::BlockId,
            b"name" => Self::BlockName,
            b"input" => Self::Kept(Kept::ToolInput),
            b"tool_use_id" => Self::BlockResultId,
            b"content" => Self::BlockResult,
            _ => Self::Unread,
        }
    }

    fn of_root(name: &[u8], path: PathClass) -> Self {
        match name {
            b"model" if path != PathClass::SglangGenerate => Self::Model,
            b"stream" => Self::Stream,
            b"cache_salt" if path != PathClass::SglangGenerate => Self::CacheSalt,
            b"add_special_tokens" => Self::AlteringField(Altering::AddSpecialTokens),
            b"truncate_prompt_tokens" => Self::AlteringField(Altering::TruncatePromptTokens),
            _ => match path {
                PathClass::Chat => Self::of_chat(name),
                PathClass::Messages | PathClass::CountTokens => Self::of_messages(name),
                PathClass::Completions | PathClass::Other => Self::of_completion(name),
                PathClass::Embeddings if name == b"input" => Self::Prompt,
                PathClass::Images if name == b"prompt" => Self::Prompt,
                PathClass::Conversations if name == b"items" => Self::Items,
                PathClass::Responses => Self::of_response(name),
                PathClass::Generate => Self::of_generate(name),
                PathClass::SglangGenerate => Self::of_sglang(name),
                PathClass::Embeddings | PathClass::Images | PathClass::Conversations => {
                    Self::Unread
                }
            },
        }
    }

    fn of_completion(name: &[u8]) -> Self {
        match name {
            b"n" => Self::Choices,
            b"max_tokens" => Self::MaxTokens,
            b"stream_options" => Self::StreamOptions,
            b"suffix" => Self::AlteringField(Altering::Suffix),
            b"prompt" => Self::Prompt,
            _ => Self::Unread,
        }
    }

    fn of_response(name: &[u8]) -> Self {
        match name {
            b"max_output_tokens" => Self::MaxTokens,
            b"instructions" => Self::System,
            b"tools" => Self::Kept(Kept::Tools),
            b"input" => Self::Items,
            _ => Self::Unread,
        }
    }

    fn of_generate(name: &[u8]) -> Self {
        match name {
            b"token_ids" => Self::Tokens,
            b"sampling_params" => Self::SamplingParams,
            b"features" => Self::Features,
            _ => Self::Unread,
        }
    }

    fn of_sglang(name: &[u8]) -> Self {
        match name {
            b"input_ids" => Self::Tokens,
            b"sampling_params" => Self::SamplingParams,
            b"extra_key" => Self::CacheSalt,
            _ => Self::Unread,
        }
    }

    fn of_chat(name: &[u8]) -> Self {
        match name {
            b"n" => Self::Choices,
            b"stream_options" => Self::StreamOptions,
            b"messages" => Self::Messages,
            b"max_tokens" => Self::MaxTokens,
            b"max_completion_tokens" => Self::MaxCompletionTokens,
            b"chat_template" => Self::ChatTemplate,
            b"add_generation_prompt" => Self::AddGenerationPrompt,
            b"continue_final_message" => Self::ContinueFinalMessage,
            b"reasoning_effort" => Self::ReasoningEffort,
            b"tools" => Self::Kept(Kept::Tools),
            b"tool_choice" => Self::Kept(Kept::ToolChoice),
            b"documents" => Self::Kept(Kept::Documents),
            b"chat_template_kwargs" => Self::Kept(Kept::TemplateArguments),
            _ => Self::Unread,
        }
    }

    /// Anthropic's API.
    fn of_messages(name: &[u8]) -> Self {
        match name {
            b"messages" => Self::Messages,
            b"max_tokens" => Self::MaxTokens,
            b"system" => Self::System,
            b"thinking" => Self::Thinking,
            b"output_config" => Self::OutputConfig,
            b"tools" => Self::Kept(Kept::Tools),
            b"tool_choice" => Self::Kept(Kept::ToolChoice),
            b"chat_template_kwargs" => Self::Kept(Kept::TemplateArguments),
            _ => Self::Unread,
        }
    }

    /// Whether a string here is decoded and stored.
    pub(super) fn takes_text(self) -> bool {
        matches!(
            self,
            Self::Model
                | Self::Stream
                | Self::MaxTokens
                | Self::MaxCompletionTokens
                | Self::Choices
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
                | Self::PartThinking
                | Self::BlockId
                | Self::BlockName
                | Self::BlockResultId
                | Self::BlockResult
                | Self::SourceData
                | Self::SourceUrl
                | Self::System
                | Self::ThinkingType
                | Self::Url(_)
                | Self::AudioData
                | Self::AudioFormat
                | Self::Prompt
                | Self::PromptItem
                | Self::Items
        )
    }
}
