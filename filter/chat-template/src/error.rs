use core::fmt;

/// Why a template cannot be used at all. Its model stays with the approximate stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateError {
    /// The model speaks Harmony (gpt-oss): vLLM builds its prompts without the template.
    Harmony,
    /// The template is no valid Jinja, or uses what is not built in here.
    Syntax {
        /// Line of the template, from 1; 0 if unknown.
        line: usize,
        /// What is wrong. It quotes the template, never a request.
        reason: String,
    },
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Harmony => f.write_str(
                "the template is Harmony's: the engine builds such prompts without it, so prefixes stay approximate",
            ),
            Self::Syntax { line, reason } => {
                write!(f, "line {line} of the chat template: {reason}; prefixes stay approximate")
            }
        }
    }
}

impl core::error::Error for TemplateError {}

/// Why a request was not rendered. Only shapes and places: no text of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenderError {
    /// The request holds something whose bytes cannot be known here (media, say). What it is.
    Unsupported(&'static str),
    /// The engine refuses such a request. Why.
    Refused(&'static str),
    /// The template raised an exception of its own: the engine refuses the request.
    Raised,
    /// The template failed at this line (0 if unknown), for a reason of ours or the engine's.
    Failed {
        /// Line of the template.
        line: usize,
        /// The kind of failure, in minijinja's words.
        kind: &'static str,
    },
    /// Rendering took more steps than a request may cost.
    TooMuchWork,
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(what) => write!(f, "cannot be rendered here: {what}"),
            Self::Refused(why) => write!(f, "the engine refuses it: {why}"),
            Self::Raised => f.write_str("the chat template raised an exception"),
            Self::Failed { line, kind } => write!(f, "line {line} of the chat template: {kind}"),
            Self::TooMuchWork => f.write_str("the chat template takes too many steps"),
        }
    }
}

impl core::error::Error for RenderError {}
