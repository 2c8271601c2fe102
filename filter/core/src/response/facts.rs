//! What was seen in a response.

/// Token counts as the engine reports them. `None`: never reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated.
    pub completion_tokens: Option<u64>,
    /// Both together; their sum if the engine does not say.
    pub total_tokens: Option<u64>,
    /// Prompt tokens taken from the prefix cache. vLLM reports them only under
    /// `--enable-prompt-tokens-details`, and in a stream only in the last chunk.
    pub cached_tokens: Option<u64>,
    /// Generated tokens that are reasoning.
    pub reasoning_tokens: Option<u64>,
}

impl Usage {
    /// Takes over what `later` reports. Counts are running totals, so the last wins and nothing is summed; a
    /// field that `later` lacks stays.
    pub fn update(&mut self, later: &Self) {
        self.prompt_tokens = later.prompt_tokens.or(self.prompt_tokens);
        self.completion_tokens = later.completion_tokens.or(self.completion_tokens);
        self.total_tokens = later.total_tokens.or(self.total_tokens);
        self.cached_tokens = later.cached_tokens.or(self.cached_tokens);
        self.reasoning_tokens = later.reasoning_tokens.or(self.reasoning_tokens);
    }
}

/// Why a choice ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// `stop`; Anthropic's `end_turn` and `stop_sequence`; a response's `completed`
    Stop,
    /// `length`; Anthropic's `max_tokens`; a response's `incomplete`
    Length,
    /// `tool_calls` or `function_call`; Anthropic's `tool_use`
    ToolCalls,
    /// `content_filter`
    ContentFilter,
    /// `abort`: the engine gave the request up; a response's `cancelled`.
    Abort,
    /// `error`: the engine failed; a response's `failed`.
    Error,
    /// Any other.
    Other,
}

impl FinishReason {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"stop" | b"end_turn" | b"stop_sequence" => Self::Stop,
            b"length" | b"max_tokens" => Self::Length,
            b"tool_calls" | b"function_call" | b"tool_use" => Self::ToolCalls,
            b"content_filter" => Self::ContentFilter,
            b"abort" => Self::Abort,
            b"error" => Self::Error,
            _ => Self::Other,
        }
    }

    /// Whether the answer is not what was asked for.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Abort | Self::Error)
    }
}

/// An `error` in a response, even under status 200.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineError {
    /// Its `code`, if it is a number: vLLM gives the HTTP status that it would have sent.
    pub code: Option<u64>,
}

/// All that was seen in a response so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseFacts {
    /// JSON objects read: the chunks of a stream, or 1 for a whole answer.
    pub chunks: u64,
    /// Comment lines of a stream (`: keep-alive`) and Anthropic's `ping` events. They are not progress.
    pub comments: u64,
    /// Events of a stream that were no JSON object.
    pub bad_chunks: u64,
    /// Some generated text, reasoning or tool call has come.
    pub first_token: bool,
    /// Token counts, as far as reported.
    pub usage: Usage,
    /// Chunks with a token since the last one that reported generated tokens: an empty text is half a character, and a
    /// token all the same; one beside a `role` opens the answer and is none.
    pub unreported_chunks: u64,
    /// Choices that said why they ended.
    pub finished_choices: u64,
    /// Why the last of them ended; a failure is not overwritten.
    pub finish_reason: Option<FinishReason>,
    /// The first error reported.
    pub error: Option<EngineError>,
    /// `[DONE]`, Anthropic's `message_stop`, or the last event of a response (`response.completed` and its like) has
    /// come.
    pub done: bool,
}
