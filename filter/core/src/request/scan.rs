//! One pass over a body, as it arrives.

use super::error::RequestError;
use super::facts::{RequestFacts, clamp, widen};
use super::path::PathClass;
use super::prompt_digest::PromptDigest;
use super::reader::Reader;
use super::scratch::{Scratch, is_sure};
use super::value::Given;
use crate::json::Scanner;

/// Reads one request body as it arrives, in slices cut anywhere.
///
/// Nothing is kept of the body but decoded strings and the few values that are wanted as written, so memory
/// is at most about twice the body (four times for token ids of one digit).
pub struct BodyScan {
    scanner: Scanner,
    reader: Reader,
    failed: Option<RequestError>,
    taken: usize,
    /// Its length, as the client says.
    length: usize,
    model_is_optional: bool,
}

impl BodyScan {
    /// Starts a scan. A `path` whose bodies are not read ([`PathClass::reads_body`]) is not for it. `scratch` is emptied first.
    #[must_use]
    pub fn new(path: PathClass, mut scratch: Scratch) -> Self {
        scratch.clear();
        Self {
            scanner: Scanner::new(),
            reader: Reader::new(path, scratch),
            failed: None,
            taken: 0,
            length: 0,
            model_is_optional: !path.names_model(),
        }
    }

    /// The body need not name a model: a header does.
    pub fn allow_no_model(&mut self) {
        self.model_is_optional = true;
    }

    /// The contents of a chat's messages need not be kept: they are hashed as they come, `limit` bytes of them at most. To
    /// be said before the first byte. Does nothing for other APIs.
    pub fn digest_messages(&mut self, limit: usize) {
        if self.reader.path == PathClass::Chat {
            self.reader.digest = Some(Box::new(PromptDigest::new(limit)));
        }
    }

    /// Bytes of memory that the digest holds: a few bytes of body can stand for many.
    pub fn digest_bytes(&mut self) -> usize {
        self.reader.digest.as_mut().map_or(0, |digest| digest.held_bytes())
    }

    /// The client says that the body has so many bytes.
    pub fn expect(&mut self, length: usize) {
        self.length = length;
    }

    /// Body bytes handed over so far, also those behind an error: no byte is to come twice.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Bytes of memory held.
    #[cfg(test)]
    pub(super) fn held_bytes(&mut self) -> usize {
        let digest = self.digest_bytes();
        self.reader.scratch.held_bytes().saturating_add(digest)
    }

    /// Reads the next bytes.
    ///
    /// # Errors
    /// As soon as the body is known to be no JSON, or too large to hold. Wrong shapes show only in
    /// [`finish`](Self::finish), since a later duplicate key may mend them. An error stays.
    pub fn feed(&mut self, slice: &[u8]) -> Result<(), RequestError> {
        self.taken = self.taken.saturating_add(slice.len());
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
        let Reader { scratch, digest, .. } = &mut self.reader;
        scratch.expect(self.length, self.taken, digest.is_some());
        if let Some(digest) = digest
            && is_sure(self.length, self.taken)
        {
            digest.expect(self.length);
        }
        let base = self.scanner.taken();
        if base.saturating_add(slice.len()) >= widen(u32::MAX) {
            return Err(RequestError::TooLarge);
        }
        self.scanner.feed(slice, &mut self.reader)?;
        let Reader { keeper, scratch, .. } = &mut self.reader;
        if let Some((field, limit)) = scratch.overflow {
            return Err(RequestError::TooMany { field, limit });
        }
        keeper.copy(slice, base, scratch);
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
        let Reader { path, scratch, draft, digest, .. } = self.reader;
        if !draft.is_object {
            return Err(RequestError::NotAnObject);
        }
        let model = draft.model.filter(|model| !model.value.is_empty());
        if model.is_none() && !self.model_is_optional {
            return Err(RequestError::MissingModel);
        }
        let items = |field| match draft.messages.given() {
            Given::Good => Ok(()),
            Given::Nothing => Err(RequestError::MissingInput { field }),
            Given::Bad => Err(RequestError::BadInput { field }),
        };
        match path {
            PathClass::Chat | PathClass::Messages | PathClass::CountTokens => {
                draft.messages.check()?;
            }
            // Whatever it is: the engine knows its many shapes.
            PathClass::Responses if draft.has_input => {}
            PathClass::Responses => return Err(RequestError::MissingInput { field: "input" }),
            PathClass::Conversations => items("items")?,
            _ => draft.prompt.check(path)?,
        }
        let kept = |index: Option<u32>| scratch.captures.get(widen(index?)).copied();
        Ok(RequestFacts {
            path,
            body_bytes,
            model,
            stream: draft.stream,
            max_output_tokens: draft.max_completion_tokens.or(draft.max_tokens),
            choices: draft.choices,
            stream_options: draft.stream_options,
            cache_salt: draft.cache_salt,
            chat_template: draft.chat_template,
            add_generation_prompt: draft.add_generation_prompt,
            continue_final_message: draft.continue_final_message,
            reasoning_effort: draft.reasoning_effort,
            alters_tokens: draft.truncates
                || draft.has_suffix
                || draft.adds_special_tokens.is_some_and(|adds| adds == (path == PathClass::Chat)),
            body_start: draft.body_start,
            system: draft.system,
            input: draft.input,
            items: kept(draft.items),
            has_features: draft.has_features,
            disables_thinking: draft.disables_thinking,
            tools: kept(draft.tools),
            tool_choice: kept(draft.tool_choice),
            documents: kept(draft.documents),
            chat_template_kwargs: kept(draft.template_arguments),
            messages: (clamp(draft.messages.first), clamp(scratch.messages.len())),
            prompts: (clamp(draft.prompt.first), clamp(scratch.prompts.len())),
            digest,
            scratch,
        })
    }
}
