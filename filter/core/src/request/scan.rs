//! One pass over a body, as it arrives.

use super::error::{MessageFault, RequestError};
use super::facts::{RequestFacts, clamp, widen};
use super::path::PathClass;
use super::reader::{Given, Reader};
use super::scratch::Scratch;
use crate::json::Scanner;

/// Reads one request body as it arrives, in slices cut anywhere.
///
/// Nothing is kept of the body but decoded strings and the few values that are wanted as written, so memory
/// is at most about twice the body (four times for token ids of one digit).
pub struct BodyScan {
    scanner: Scanner,
    reader: Reader,
    /// Kept values copied in full so far.
    copied: usize,
    failed: Option<RequestError>,
}

impl BodyScan {
    /// Starts a scan. `path` must be [`PathClass::Chat`] or [`PathClass::Completions`]: another class is read
    /// as completions. `scratch` is recycled first.
    #[must_use]
    pub fn new(path: PathClass, mut scratch: Scratch) -> Self {
        scratch.recycle();
        Self {
            scanner: Scanner::new(),
            reader: Reader::new(path, scratch),
            copied: 0,
            failed: None,
        }
    }

    /// Body bytes read so far.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.scanner.taken()
    }

    /// Reads the next bytes.
    ///
    /// # Errors
    /// As soon as the body is known to be no JSON, or too large to hold. Wrong shapes show only in
    /// [`finish`](Self::finish), since a later duplicate key may mend them. An error stays.
    pub fn feed(&mut self, slice: &[u8]) -> Result<(), RequestError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let outcome = self.read(slice);
        if let Err(error) = outcome {
            self.failed = Some(error);
        }
        outcome
    }

    fn read(&mut self, slice: &[u8]) -> Result<(), RequestError> {
        let base = self.scanner.taken();
        if base.saturating_add(slice.len()) >= widen(u32::MAX) {
            return Err(RequestError::TooLarge);
        }
        self.scanner.feed(slice, &mut self.reader)?;
        if let Some(error) = self.reader.overflow {
            return Err(error);
        }
        self.copied = self.reader.copy_kept(slice, base, self.copied);
        Ok(())
    }

    /// Ends the body and judges it.
    ///
    /// # Errors
    /// Why it cannot be routed; see [`RequestError`].
    pub fn finish(mut self) -> Result<RequestFacts, RequestError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.scanner.finish(&mut self.reader)?;
        let body_bytes = self.scanner.taken();
        let reader = self.reader;
        if !reader.is_object {
            return Err(RequestError::NotAnObject);
        }
        let model = reader
            .model
            .filter(|model| !model.value.is_empty())
            .ok_or(RequestError::MissingModel)?;
        match reader.path {
            PathClass::Chat => check_messages(&reader)?,
            PathClass::Completions | PathClass::Other => match reader.prompt {
                Given::Good => {}
                Given::Nothing => return Err(RequestError::MissingPrompt),
                Given::Bad => return Err(RequestError::BadPrompt),
            },
        }
        let captures = &reader.scratch.captures;
        let kept = |index: Option<u32>| captures.get(widen(index?)).copied();
        Ok(RequestFacts {
            path: reader.path,
            body_bytes,
            model,
            stream: reader.stream,
            max_output_tokens: reader.max_completion_tokens.or(reader.max_tokens),
            choices: reader.choices,
            stream_options: reader.stream_options,
            cache_salt: reader.cache_salt,
            chat_template: reader.chat_template,
            add_generation_prompt: reader.add_generation_prompt,
            continue_final_message: reader.continue_final_message,
            tools: kept(reader.tools),
            tool_choice: kept(reader.tool_choice),
            documents: kept(reader.documents),
            chat_template_kwargs: kept(reader.template_arguments),
            messages: (clamp(reader.first_message), clamp(reader.scratch.messages.len())),
            prompts: (clamp(reader.first_prompt), clamp(reader.scratch.prompts.len())),
            scratch: reader.scratch,
        })
    }
}

fn check_messages(reader: &Reader) -> Result<(), RequestError> {
    match reader.messages {
        Given::Nothing => Err(RequestError::MissingMessages),
        Given::Bad => {
            Err(RequestError::BadMessages { index: None, fault: MessageFault::NotAnArray })
        }
        Given::Good => match reader.message_fault {
            None => Ok(()),
            Some((index, fault)) => {
                Err(RequestError::BadMessages { index: Some(clamp(index)), fault })
            }
        },
    }
}
