//! Reading JSON as it arrives: a push scanner that checks every byte, builds no tree and keeps no input.
//!
//! - [`Scanner`] takes slices cut anywhere and calls a [`Handler`] for what it sees.
//! - [`JsonError`] says what is wrong and at which byte; it is the same however the input was cut.
//!
//! Why not serde_json: a filter sees a body in slices, must not re-buffer it, and has tens of
//! microseconds for a 200 KB prompt. A differential property test holds the two to the same verdict and
//! the same decoded strings. They differ on purpose in two places:
//! - a number too large for an `f64` is well-formed here (as in Python's parser);
//! - nesting is allowed up to [`MAX_DEPTH`] = 128, serde_json stops at 127.

mod error;
mod number;
mod plain;
mod scanner;
mod text;

#[cfg(test)]
mod tests;

pub use error::{JsonError, JsonErrorKind};
pub use number::Number;
pub use scanner::{Container, Handler, MAX_DEPTH, MAX_KEY, Scalar, Scanner};
