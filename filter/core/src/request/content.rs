//! A content part while its fields come in, in any order.

use super::facts::{Content, MediaKind, Part, TextSpan};

/// What the `type` of a part says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PartType {
    /// Not sent: the part is what its fields make it.
    #[default]
    Absent,
    Text,
    Thinking,
    Media(MediaKind),
    /// Anthropic's image: its source is in other fields than OpenAI's.
    SourcedImage,
    ToolUse,
    ToolResult,
    /// Anthropic's, which the engine passes over.
    RedactedThinking,
    Unknown,
}

impl PartType {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"text" | b"input_text" | b"output_text" => Self::Text,
            b"thinking" => Self::Thinking,
            b"image" => Self::SourcedImage,
            b"tool_use" => Self::ToolUse,
            b"tool_result" => Self::ToolResult,
            b"redacted_thinking" => Self::RedactedThinking,
            b"image_url" | b"input_image" => Self::Media(MediaKind::Image),
            b"video_url" => Self::Media(MediaKind::Video),
            b"audio_url" | b"input_audio" => Self::Media(MediaKind::Audio),
            _ => Self::Unknown,
        }
    }
}

/// The fields of a part seen so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PartDraft {
    pub(super) kind: PartType,
    pub(super) text: Option<TextSpan>,
    pub(super) image_url: Option<TextSpan>,
    pub(super) video_url: Option<TextSpan>,
    pub(super) audio_url: Option<TextSpan>,
    pub(super) audio_data: Option<TextSpan>,
    pub(super) audio_format: TextSpan,
    pub(super) thinking: Option<TextSpan>,
    /// `id` of a tool use, `tool_use_id` of a tool result.
    pub(super) id: Option<TextSpan>,
    pub(super) result_id: Option<TextSpan>,
    pub(super) name: Option<TextSpan>,
    /// Index of the kept input of a tool use.
    pub(super) input: Option<u32>,
    pub(super) result: Content,
    pub(super) source_data: Option<TextSpan>,
    pub(super) source_url: Option<TextSpan>,
}

impl PartDraft {
    pub(super) fn url(&mut self, kind: MediaKind) -> &mut Option<TextSpan> {
        match kind {
            MediaKind::Image => &mut self.image_url,
            MediaKind::Video => &mut self.video_url,
            MediaKind::Audio => &mut self.audio_url,
        }
    }

    /// The finished part.
    pub(super) fn part(&self) -> Part {
        let text = self.text.map(Part::Text);
        let part = match self.kind {
            PartType::Text => text,
            PartType::Thinking => self.thinking.map(Part::Thinking),
            PartType::Media(kind) => self.media(kind),
            PartType::SourcedImage => self.sourced_image(),
            PartType::ToolUse => {
                Some(Part::ToolUse { id: self.id, name: self.name, input: self.input })
            }
            PartType::ToolResult => {
                Some(Part::ToolResult { id: self.result_id, content: self.result })
            }
            PartType::RedactedThinking => Some(Part::Skipped),
            PartType::Absent => text
                .or_else(|| self.media(MediaKind::Image))
                .or_else(|| self.media(MediaKind::Video))
                .or_else(|| self.media(MediaKind::Audio)),
            PartType::Unknown => None,
        };
        part.unwrap_or(Part::Other)
    }

    fn sourced_image(&self) -> Option<Part> {
        let content = self.source_data.or(self.source_url)?;
        Some(Part::Media { kind: MediaKind::Image, content, format: TextSpan::default() })
    }

    fn media(&self, kind: MediaKind) -> Option<Part> {
        let url = match kind {
            MediaKind::Image => self.image_url,
            MediaKind::Video => self.video_url,
            MediaKind::Audio => self.audio_url,
        };
        let (content, format) = match (url, kind) {
            (Some(url), _) => (url, TextSpan::default()),
            (None, MediaKind::Audio) => (self.audio_data?, self.audio_format),
            (None, _) => return None,
        };
        Some(Part::Media { kind, content, format })
    }
}
