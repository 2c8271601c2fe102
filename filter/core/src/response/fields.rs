//! The fields of answers that we read, and where they stand: OpenAI's chat, completions, embeddings and responses,
//! Anthropic's messages, and the generate APIs of vLLM and SGLang. No name means different things to two of them, so
//! one reader serves all.

use super::facts::FinishReason;
use crate::json::Container;

/// Where a usage stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    Root,
    /// `message` of Anthropic's first event.
    Message,
    /// `response` of the Responses API's events.
    Response,
}

/// The container whose fields or items are being read. Each has one possible parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    Outside,
    Root,
    Choices,
    Choice,
    /// `delta` of a chunk, `message` of a whole answer.
    Delta,
    ToolCalls,
    /// `token_ids` of a choice.
    ChoiceTokens,
    Usage(Holder),
    UsageDetails(Holder),
    Error,
    /// Anthropic's: `message` of the first event, `delta`, `content` of a whole answer, and one block of it, which
    /// is an event's `content_block`, too.
    Message,
    EventDelta,
    Content,
    ContentBlock,
    EventBlock,
    /// The Responses API's: `response` of an event, `output` of a whole answer.
    Response,
    Output,
    /// SGLang's: `meta_info`, its `finish_reason`, and `output_ids`.
    MetaInfo,
    FinishDetail,
    OutputTokens,
}

impl Frame {
    pub(super) fn parent(self) -> Self {
        match self {
            Self::Outside | Self::Root => Self::Outside,
            Self::Choices
            | Self::Error
            | Self::Usage(Holder::Root)
            | Self::Message
            | Self::EventDelta
            | Self::Content
            | Self::EventBlock
            | Self::Response
            | Self::Output
            | Self::MetaInfo
            | Self::OutputTokens => Self::Root,
            Self::Choice => Self::Choices,
            Self::Delta | Self::ChoiceTokens => Self::Choice,
            Self::ToolCalls => Self::Delta,
            Self::Usage(Holder::Message) => Self::Message,
            Self::Usage(Holder::Response) => Self::Response,
            Self::UsageDetails(holder) => Self::Usage(holder),
            Self::ContentBlock => Self::Content,
            Self::FinishDetail => Self::MetaInfo,
        }
    }

    /// What the items of an array frame are; of an object its keys say it.
    pub(super) fn item(self) -> Slot {
        match self {
            Self::Content => Slot::EventBlock,
            Self::Choices => Slot::Choice,
            Self::ToolCalls | Self::Output | Self::ChoiceTokens | Self::OutputTokens => {
                Slot::GeneratedItem
            }
            _ => Slot::Unread,
        }
    }

    /// The frame that a container in `slot` opens here; `None` if it is not read.
    pub(super) fn enter(self, slot: Slot, container: Container) -> Option<Self> {
        Some(match (slot, container, self) {
            (Slot::Document, Container::Object, _) => Self::Root,
            (Slot::Choices, Container::Array, _) => Self::Choices,
            (Slot::Choice, Container::Object, _) => Self::Choice,
            (Slot::Delta, Container::Object, _) => Self::Delta,
            (Slot::ToolCalls, Container::Array, _) => Self::ToolCalls,
            (Slot::Tokens, Container::Array, Self::Choice) => Self::ChoiceTokens,
            (Slot::Tokens, Container::Array, _) => Self::OutputTokens,
            (Slot::Usage, Container::Object, Self::Message) => Self::Usage(Holder::Message),
            (Slot::Usage, Container::Object, Self::Response) => Self::Usage(Holder::Response),
            (Slot::Usage, Container::Object, _) => Self::Usage(Holder::Root),
            (Slot::UsageDetails, Container::Object, Self::Usage(holder)) => {
                Self::UsageDetails(holder)
            }
            (Slot::Message, Container::Object, _) => Self::Message,
            (Slot::EventDelta, Container::Object, _) => Self::EventDelta,
            (Slot::Content, Container::Array, _) => Self::Content,
            (Slot::EventBlock, Container::Object, Self::Content) => Self::ContentBlock,
            (Slot::EventBlock, Container::Object, _) => Self::EventBlock,
            (Slot::Error, Container::Object, Self::Root) => Self::Error,
            (Slot::Response, Container::Object, _) => Self::Response,
            (Slot::Output, Container::Array, _) => Self::Output,
            (Slot::MetaInfo, Container::Object, _) => Self::MetaInfo,
            (Slot::FinishReason, Container::Object, Self::MetaInfo) => Self::FinishDetail,
            _ => return None,
        })
    }
}

/// What the next value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Unread,
    Document,
    Choices,
    Choice,
    Delta,
    /// Generated text of any sort.
    Generated,
    /// Something generated, whatever it looks like.
    GeneratedItem,
    Role,
    ToolCalls,
    Tokens,
    FinishReason,
    Usage,
    UsageDetails,
    Count(Count),
    Error,
    ErrorCode,
    /// Anthropic's and the Responses API's.
    EventType,
    Message,
    /// An object, or (Responses) generated text.
    EventDelta,
    Content,
    EventBlock,
    Response,
    Output,
    Status,
    MetaInfo,
}

/// Numbers of a usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Prompt,
    Completion,
    /// The same by other names: count if those are missing.
    Input,
    Output,
    Total,
    Cached,
    Reasoning,
    /// Anthropic's prompt tokens beside `input_tokens`: read from the cache, or written to it.
    CacheRead,
    CacheCreation,
}

impl Slot {
    pub(super) fn of(frame: Frame, name: &[u8]) -> Self {
        match frame {
            Frame::Root => Self::of_root(name),
            Frame::Choice => match name {
                b"delta" | b"message" => Self::Delta,
                b"text" => Self::Generated,
                b"token_ids" => Self::Tokens,
                b"finish_reason" => Self::FinishReason,
                _ => Self::Unread,
            },
            Frame::Delta => match name {
                b"content" | b"reasoning" | b"reasoning_content" | b"refusal" => Self::Generated,
                b"role" => Self::Role,
                b"tool_calls" => Self::ToolCalls,
                b"function_call" => Self::GeneratedItem,
                _ => Self::Unread,
            },
            Frame::Usage(_) => match name {
                b"prompt_tokens_details"
                | b"input_tokens_details"
                | b"completion_tokens_details"
                | b"output_tokens_details" => Self::UsageDetails,
                _ => Self::count(name),
            },
            Frame::UsageDetails(_) => match name {
                b"cached_tokens" => Self::Count(Count::Cached),
                b"reasoning_tokens" => Self::Count(Count::Reasoning),
                _ => Self::Unread,
            },
            Frame::Error if name == b"code" => Self::ErrorCode,
            Frame::Message if name == b"usage" => Self::Usage,
            // The name is that of a tool that is called.
            Frame::EventDelta | Frame::ContentBlock | Frame::EventBlock => match name {
                b"text" | b"thinking" | b"partial_json" | b"name" => Self::Generated,
                b"stop_reason" if frame == Frame::EventDelta => Self::FinishReason,
                _ => Self::Unread,
            },
            Frame::Response => match name {
                b"usage" => Self::Usage,
                b"status" => Self::Status,
                b"error" => Self::Error,
                _ => Self::Unread,
            },
            Frame::MetaInfo => match name {
                b"finish_reason" => Self::FinishReason,
                b"cached_tokens" => Self::Count(Count::Cached),
                b"prompt_tokens" | b"completion_tokens" => Self::count(name),
                _ => Self::Unread,
            },
            Frame::FinishDetail if name == b"type" => Self::FinishReason,
            _ => Self::Unread,
        }
    }

    fn of_root(name: &[u8]) -> Self {
        match name {
            b"choices" => Self::Choices,
            b"usage" => Self::Usage,
            b"error" => Self::Error,
            b"type" => Self::EventType,
            b"message" => Self::Message,
            b"delta" => Self::EventDelta,
            b"content" => Self::Content,
            b"content_block" => Self::EventBlock,
            b"stop_reason" => Self::FinishReason,
            b"response" => Self::Response,
            b"output" => Self::Output,
            b"status" => Self::Status,
            b"text" => Self::Generated,
            b"output_ids" => Self::Tokens,
            b"meta_info" => Self::MetaInfo,
            _ => Self::Unread,
        }
    }

    fn count(name: &[u8]) -> Self {
        Self::Count(match name {
            b"prompt_tokens" => Count::Prompt,
            b"completion_tokens" => Count::Completion,
            b"input_tokens" => Count::Input,
            b"output_tokens" => Count::Output,
            b"total_tokens" => Count::Total,
            b"reasoning_tokens" => Count::Reasoning,
            b"cache_read_input_tokens" => Count::CacheRead,
            b"cache_creation_input_tokens" => Count::CacheCreation,
            _ => return Self::Unread,
        })
    }

    /// Whether the text of a string here says something.
    pub(super) fn takes_text(self) -> bool {
        matches!(self, Self::FinishReason | Self::EventType | Self::Status | Self::Count(_))
    }
}

/// What an event's `type` says, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Event {
    /// None, or one that says no more than its fields.
    #[default]
    Plain,
    /// A sign of life that is no progress.
    Ping,
    /// The end of Anthropic's.
    Stop,
    /// The end of a response; it says why unless the response's own status does.
    ResponseEnd(FinishReason),
}

impl Event {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"ping" => Self::Ping,
            b"message_stop" => Self::Stop,
            b"response.completed" => Self::ResponseEnd(FinishReason::Stop),
            b"response.incomplete" => Self::ResponseEnd(FinishReason::Length),
            b"response.cancelled" => Self::ResponseEnd(FinishReason::Abort),
            b"response.failed" => Self::ResponseEnd(FinishReason::Error),
            _ => Self::Plain,
        }
    }
}

/// What the Responses API's `status` says, if it is a final one.
pub(super) fn status(name: &[u8]) -> Option<FinishReason> {
    Some(match name {
        b"completed" => FinishReason::Stop,
        b"incomplete" => FinishReason::Length,
        b"cancelled" => FinishReason::Abort,
        b"failed" => FinishReason::Error,
        _ => return None,
    })
}
