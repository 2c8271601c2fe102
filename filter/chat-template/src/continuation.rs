//! `continue_final_message`: the prompt ends inside the last message (`render_jinja_template` in `transformers`).

use crate::conversation::{Body, Turn, checked};
use crate::error::RenderError;
use crate::methods::strip;
use std::borrow::Cow;

/// What marks the end of the message while the template runs; the blank shows whether the template trims.
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// A conversation whose last message is marked.
pub(crate) struct Continuation {
    /// The text that must be found in the prompt.
    message: String,
}

impl Continuation {
    /// Marks the last message's content.
    pub(crate) fn mark(turns: &mut [Turn<'_>]) -> Result<Self, RenderError> {
        let last = turns.last_mut().ok_or(RenderError::Refused("no message to continue"))?;
        let text = match &mut last.content {
            Body::Text(text) => text,
            Body::Parts(texts) => {
                texts.last_mut().ok_or(RenderError::Refused("no text to continue"))?
            }
        };
        let whole = checked(text)?;
        let message = strip(whole, None, true, true).to_owned();
        *text = Cow::Owned(format!("{whole}{TAG}").into_bytes());
        Ok(Self { message })
    }

    /// Cuts the prompt where the message ends.
    pub(crate) fn cut(&self, prompt: &mut String) -> Result<(), RenderError> {
        let tag = TAG.trim_end();
        let lost = RenderError::Refused("the template drops the message to continue");
        let at = prompt.rfind(tag).ok_or(lost)?;
        if !prompt.contains(&self.message) {
            return Err(lost);
        }
        let trimmed = !prompt.get(at..).is_some_and(|rest| rest.starts_with(TAG));
        prompt.truncate(at);
        if trimmed {
            let kept = strip(prompt, None, false, true).len();
            prompt.truncate(kept);
        }
        Ok(())
    }
}
