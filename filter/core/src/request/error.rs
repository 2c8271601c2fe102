//! What can be wrong with a body.

use crate::json::{JsonError, JsonErrorKind};
use core::fmt;

/// Why a body cannot be routed. All are the client's to mend: status 400, but 413 for
/// [`TooLarge`](Self::TooLarge).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestError {
    /// The body is not JSON.
    NotJson(JsonError),
    /// The body is JSON but no object.
    NotAnObject,
    /// `model` is missing, empty or no string.
    MissingModel,
    /// `messages` is missing, null or empty.
    MissingMessages,
    /// `messages` is no array, or one of its messages has a wrong shape.
    BadMessages {
        /// Index of the first wrong message; `None` if it is the field itself.
        index: Option<u32>,
        /// What is wrong with it.
        fault: MessageFault,
    },
    /// What stands for the messages in other APIs is missing, null or empty.
    MissingInput {
        /// `prompt`, `input`, `items`, `token_ids` or `input_ids`.
        field: &'static str,
    },
    /// It has a wrong shape.
    BadInput {
        /// As above.
        field: &'static str,
    },
    /// A list has more items than the filter is willing to hold.
    TooMany {
        /// Which list.
        field: &'static str,
        /// The most that is accepted.
        limit: usize,
    },
    /// The body is longer than offsets can say (4 GiB).
    TooLarge,
}

/// What can be wrong with `messages` or one of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFault {
    /// `messages` is no array.
    NotAnArray,
    /// A message is no object.
    NotAnObject,
    /// `role` is no string.
    Role,
    /// `content` is neither string, null nor an array of parts.
    Content,
    /// A part is neither an object nor a string.
    Part,
}

impl RequestError {
    /// The field of the body to blame, for the `param` of an OpenAI error.
    #[must_use]
    pub fn param(&self) -> Option<&'static str> {
        match self {
            Self::NotJson(_) | Self::NotAnObject | Self::TooLarge => None,
            Self::MissingModel => Some("model"),
            Self::MissingMessages | Self::BadMessages { .. } => Some("messages"),
            Self::MissingInput { field }
            | Self::BadInput { field }
            | Self::TooMany { field, .. } => Some(field),
        }
    }

    /// The HTTP status to answer with.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::TooLarge => 413,
            _ => 400,
        }
    }
}

impl From<JsonError> for RequestError {
    fn from(error: JsonError) -> Self {
        Self::NotJson(error)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(error) if error.kind == JsonErrorKind::TooDeep => {
                write!(f, "We could not parse the JSON body of your request: {error}.")
            }
            Self::NotJson(error) => write!(
                f,
                "We could not parse the JSON body of your request: {error}. The API expects a JSON payload."
            ),
            Self::NotAnObject => f.write_str("The body of your request must be a JSON object."),
            Self::MissingModel => f.write_str(
                "You must provide a model parameter: 'model' must be a non-empty string.",
            ),
            Self::MissingMessages => {
                f.write_str("'messages' must be an array with at least one message.")
            }
            Self::BadMessages { index, fault } => {
                match index {
                    Some(index) => write!(f, "'messages[{index}]'")?,
                    None => f.write_str("'messages'")?,
                }
                f.write_str(match fault {
                    MessageFault::NotAnArray => " must be an array.",
                    MessageFault::NotAnObject => " must be an object.",
                    MessageFault::Role => " must have a string as its 'role'.",
                    MessageFault::Content => {
                        " must have a string, null or an array of parts as its 'content'."
                    }
                    MessageFault::Part => " has a content part that is neither object nor string.",
                })
            }
            Self::MissingInput { field: field @ ("token_ids" | "input_ids") } => {
                write!(f, "'{field}' must be a non-empty array of token ids.")
            }
            Self::MissingInput { field } => {
                write!(f, "'{field}' must be a non-empty string or array.")
            }
            Self::BadInput { field: field @ ("token_ids" | "input_ids") } => {
                write!(f, "'{field}' must be an array of token ids.")
            }
            Self::BadInput { field: "items" } => f.write_str("'items' must be an array of items."),
            Self::BadInput { field } => write!(
                f,
                "'{field}' must be a string, an array of strings, an array of token ids, or an array of arrays of token ids."
            ),
            Self::TooMany { field, limit } => {
                write!(f, "'{field}' has too many items: at most {limit} are accepted.")
            }
            Self::TooLarge => f.write_str("The body of your request is too large."),
        }
    }
}

impl core::error::Error for RequestError {}
