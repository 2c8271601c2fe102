//! What a request says, as plain data that borrows from wherever the request is kept.

/// A chat, as an API's body gave it.
#[derive(Debug, Clone, Default)]
pub struct ChatRequest<'a> {
    /// The messages in order.
    pub messages: Vec<Message<'a>>,
    /// `tools`.
    pub tools: Option<Tools<'a>>,
    /// `documents`, raw JSON.
    pub documents: Option<&'a [u8]>,
    /// `chat_template_kwargs`, raw JSON.
    pub template_arguments: Option<&'a [u8]>,
    /// `reasoning_effort`; it also sets `enable_thinking`.
    pub reasoning_effort: Option<&'a str>,
    /// `add_generation_prompt`; the engine's default is true.
    pub add_generation_prompt: Option<bool>,
    /// `continue_final_message`; the engine's default is false.
    pub continue_final_message: Option<bool>,
}

/// One message. What was not sent, or was null, is `None`.
#[derive(Debug, Clone, Default)]
pub struct Message<'a> {
    /// `role`. A message without one is refused.
    pub role: Option<&'a str>,
    /// `content`.
    pub content: Content<'a>,
    /// `name`.
    pub name: Option<&'a str>,
    /// `tool_call_id`.
    pub tool_call_id: Option<&'a str>,
    /// `reasoning`, else `reasoning_content`.
    pub reasoning: Option<&'a str>,
    /// `tool_calls`.
    pub tool_calls: Option<ToolCalls<'a>>,
}

/// A message's content.
#[derive(Debug, Clone, Default)]
pub enum Content<'a> {
    /// Not sent, or null.
    #[default]
    None,
    /// One string, in UTF-8. It may be long and is looked at only where it must be, so it is bytes: what a template is to
    /// see is checked, and fails if it is no UTF-8.
    Text(&'a [u8]),
    /// A list of parts.
    Parts(Vec<Part<'a>>),
}

impl Content<'_> {
    /// Bytes of its text.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Text(text) => text.len(),
            Self::Parts(parts) => parts.iter().fold(0, |sum, part| match part {
                Part::Text(text) => sum.saturating_add(text.len()),
                Part::Other => sum,
            }),
        }
    }
}

/// One part of a structured content.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    /// Text, in UTF-8.
    Text(&'a [u8]),
    /// Anything else (an image, say): its bytes in the prompt cannot be known here.
    Other,
}

/// A message's tool calls.
#[derive(Debug, Clone)]
pub enum ToolCalls<'a> {
    /// The array as an OpenAI body writes it, raw JSON.
    Json(&'a [u8]),
    /// One by one, as an Anthropic body gives them.
    List(Vec<ToolCall<'a>>),
}

/// A call that an Anthropic body gives as a `tool_use` block.
#[derive(Debug, Clone, Copy)]
pub struct ToolCall<'a> {
    /// `id`. A template that shows it when it is missing shows the engine's clock.
    pub id: Option<&'a str>,
    /// `name`.
    pub name: &'a str,
    /// `input`, raw JSON.
    pub input: Option<&'a [u8]>,
}

/// The tools that a request offers.
#[derive(Debug, Clone, Copy)]
pub enum Tools<'a> {
    /// An OpenAI body's array, raw JSON.
    OpenAi(&'a [u8]),
    /// An Anthropic body's array, raw JSON.
    Anthropic(&'a [u8]),
}
