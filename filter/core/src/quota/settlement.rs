//! What a request is charged when it has ended, however it has.

use crate::response::{Outcome, ResponseReport};

/// What we believe of a request's prompt, for want of the engine's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    /// Its tokens.
    pub input: u64,
    /// Those that the endpoint held.
    pub cached: u64,
}

/// What a request is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Charged {
    /// Prompt tokens, cached ones included.
    pub input: u64,
    /// Cached prompt tokens.
    pub cached: u64,
    /// Generated tokens, reasoning included.
    pub output: u64,
    /// Reasoning tokens.
    pub reasoning: u64,
    /// `input` and `output` are the engine's counts.
    pub exact: bool,
    /// `cached` is the engine's count.
    pub exact_cached: bool,
}

impl Charged {
    /// What the budget is charged.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// The charge for a request that was sent on. `report`: what its answer was; `None`: the client left before one began.
///
/// - The engine's usage counts, the last that came. Tokens that came after it, or without any, count by their chunks.
/// - What the engine refused costs nothing, and so does what failed before its first token.
/// - A client that leaves before the first token pays for the prompt: the engine may have worked on it.
///
/// A request that no engine answered, though the client waited, is not settled but released. Of an answer that is not a
/// stream nothing can be seen before its end: if the client leaves, no output is charged.
#[must_use]
pub fn settlement(report: Option<&ResponseReport>, estimate: &Estimate) -> Charged {
    let estimated = Charged {
        input: estimate.input,
        cached: estimate.cached.min(estimate.input),
        ..Charged::default()
    };
    let Some(ResponseReport { facts, outcome }) = report else { return estimated };
    let usage = &facts.usage;
    let has_answer =
        facts.first_token || facts.unreported_chunks > 0 || usage.completion_tokens.is_some();
    match outcome {
        Outcome::Refused { .. } => {
            return Charged { exact: true, exact_cached: true, ..Charged::default() };
        }
        Outcome::EngineError | Outcome::Truncated(_) if !has_answer => return Charged::default(),
        _ => {}
    }
    // Of a whole answer the engine's last word is the sum of it.
    let complete = *outcome == Outcome::Completed && usage.completion_tokens.is_some();
    let unreported = if complete { 0 } else { facts.unreported_chunks };
    let input = usage.prompt_tokens.unwrap_or(estimate.input);
    let output = usage.completion_tokens.unwrap_or(0).saturating_add(unreported);
    // An answer without output, such as an embedding, has no count of it.
    let exact_output = usage.completion_tokens.is_some() || (!has_answer && facts.chunks > 0);
    // Engines tell it at the end; one that has told all else has none to tell.
    let exact_cached = usage.cached_tokens.is_some() || complete;
    let cached = usage.cached_tokens.unwrap_or(if complete { 0 } else { estimate.cached });
    Charged {
        input,
        cached: cached.min(input),
        output,
        reasoning: usage.reasoning_tokens.unwrap_or(0).min(output),
        exact: usage.prompt_tokens.is_some() && exact_output && unreported == 0,
        exact_cached,
    }
}
