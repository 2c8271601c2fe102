//! The fields of a body while it comes in.

use super::facts::{Content, Field, StreamOptions, TextSpan};
use super::messages::MessagesDraft;
use super::prompts::PromptDraft;

/// The fields of the body seen so far; see [`RequestFacts`](super::RequestFacts).
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) is_object: bool,
    pub(super) body_start: u32,
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
    pub(super) reasoning_effort: Option<TextSpan>,
    pub(super) adds_special_tokens: Option<bool>,
    pub(super) truncates: bool,
    pub(super) has_suffix: bool,
    /// Indices of kept values.
    pub(super) tools: Option<u32>,
    pub(super) tool_choice: Option<u32>,
    pub(super) documents: Option<u32>,
    pub(super) template_arguments: Option<u32>,
    /// `input` or `items`, if it is a list.
    pub(super) items: Option<u32>,
    /// The same if it is a text.
    pub(super) input: Content,
    /// `input` is not null.
    pub(super) has_input: bool,
    pub(super) has_features: bool,
    /// Anthropic's; and `instructions`.
    pub(super) system: Content,
    pub(super) disables_thinking: bool,
    pub(super) messages: MessagesDraft,
    pub(super) prompt: PromptDraft,
}

impl Draft {
    /// Forgets what stood in `sampling_params`: they come anew.
    pub(super) fn reset_sampling(&mut self) {
        self.max_tokens = None;
        self.choices = None;
    }
}
