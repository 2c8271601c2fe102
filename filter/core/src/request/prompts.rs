//! The `prompt` of a completions request (`input` of embeddings) in its four shapes, and the lists of token ids of the
//! generate APIs.

use super::error::RequestError;
use super::facts::{Prompt, TextSpan};
use super::path::PathClass;
use super::scratch::Scratch;
use super::value::{Given, Value};

/// The shape that the first item gives to an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Shape {
    #[default]
    Empty,
    Texts,
    Tokens,
    Rows,
    /// The field is a list of token ids and nothing else.
    List,
}

/// `prompt` while it comes in.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PromptDraft {
    given: Given,
    shape: Shape,
    /// Index of the first prompt that counts.
    pub(super) first: usize,
    /// Where the token ids being read start.
    token_start: usize,
}

impl PromptDraft {
    /// The field's whole value, if it is no array.
    pub(super) fn value(&mut self, value: Value, scratch: &mut Scratch) {
        self.first = scratch.prompts.len();
        self.shape = Shape::Empty;
        self.given = match value {
            // An empty prompt counts as none.
            Value::Text(text) if text.is_empty() => Given::Nothing,
            Value::Text(text) => {
                scratch.push_prompt(Prompt::Text(text));
                Given::Good
            }
            other => Given::unless_null(other),
        };
    }

    /// The array opens.
    pub(super) fn open(&mut self, scratch: &Scratch) {
        *self = Self {
            given: Given::Good,
            shape: Shape::Empty,
            first: scratch.prompts.len(),
            token_start: scratch.text.len(),
        };
    }

    /// The array of token ids of a generate API opens.
    pub(super) fn open_list(&mut self, scratch: &Scratch) {
        self.open(scratch);
        self.shape = Shape::List;
    }

    /// An item of the array that is no array itself.
    pub(super) fn item(&mut self, value: Value, scratch: &mut Scratch) {
        match (value, self.shape) {
            (Value::Text(text), Shape::Empty | Shape::Texts) => {
                self.shape = Shape::Texts;
                scratch.push_prompt(Prompt::Text(text));
            }
            (Value::Number(_), Shape::Empty | Shape::Tokens) => {
                self.shape = Shape::Tokens;
                self.token_id(value, scratch);
            }
            _ => self.given = Given::Bad,
        }
    }

    /// An array opens inside the array; says whether it may hold token ids.
    pub(super) fn open_row(&mut self, scratch: &Scratch) -> bool {
        let fits = matches!(self.shape, Shape::Empty | Shape::Rows);
        if fits {
            self.shape = Shape::Rows;
            self.token_start = scratch.text.len();
        }
        fits
    }

    /// An item of an array of token ids.
    pub(super) fn token_id(&mut self, value: Value, scratch: &mut Scratch) {
        match value.whole().and_then(|id| u32::try_from(id).ok()) {
            Some(id) => scratch.text.extend_from_slice(&id.to_le_bytes()),
            None => self.given = Given::Bad,
        }
    }

    /// An inner array closes.
    pub(super) fn close_row(&mut self, scratch: &mut Scratch) {
        let span = TextSpan::new(self.token_start, scratch.text.len());
        if span.is_empty() {
            self.given = Given::Bad;
        } else {
            scratch.push_prompt(Prompt::Tokens(span));
        }
    }

    /// The array closes.
    pub(super) fn close(&mut self, scratch: &mut Scratch) {
        match self.shape {
            Shape::Empty if self.given == Given::Good => self.given = Given::Nothing,
            Shape::List if scratch.text.len() > self.token_start => self.close_row(scratch),
            Shape::List if self.given == Given::Good => self.given = Given::Nothing,
            Shape::Tokens => self.close_row(scratch),
            _ => {}
        }
    }

    /// Judges the field at the end of the body.
    pub(super) fn check(&self, path: PathClass) -> Result<(), RequestError> {
        let field = match path {
            PathClass::Embeddings => "input",
            PathClass::Generate => "token_ids",
            PathClass::SglangGenerate => "input_ids",
            _ => "prompt",
        };
        // Images are made from one text.
        let is_list = self.shape != Shape::Empty;
        match self.given {
            Given::Good if is_list && path == PathClass::Images => {
                Err(RequestError::BadInput { field })
            }
            Given::Good => Ok(()),
            Given::Nothing => Err(RequestError::MissingInput { field }),
            Given::Bad => Err(RequestError::BadInput { field }),
        }
    }
}
