//! Values on their way to their fields.

use super::facts::TextSpan;
use crate::json::{Number, Scalar};

/// The value given to a field. A container where none is taken is `Wrong`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Text(TextSpan),
    Null,
    Bool(bool),
    Number(Number),
    Wrong,
}

impl Value {
    pub(super) fn text(self) -> Option<TextSpan> {
        match self {
            Self::Text(span) => Some(span),
            _ => None,
        }
    }

    pub(super) fn bool(self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Whether the engine (pydantic) reads it as true.
    pub(super) fn means_true(self, arena: &[u8]) -> bool {
        match self {
            Self::Bool(value) => value,
            Self::Number(number) => number.as_u64() == Some(1),
            Self::Text(text) => {
                let means = |name: &[u8]| text.of(arena).eq_ignore_ascii_case(name);
                [b"1".as_slice(), b"true", b"t", b"on", b"yes", b"y"].into_iter().any(means)
            }
            Self::Null | Self::Wrong => false,
        }
    }

    /// A whole number from 0.
    pub(super) fn count(self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }
}

impl From<Scalar> for Value {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Null => Self::Null,
            Scalar::Bool(value) => Self::Bool(value),
            Scalar::Number(number) => Self::Number(number),
        }
    }
}

/// What was given for a field that must not be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Given {
    /// Not sent, or null.
    #[default]
    Nothing,
    /// Something of the right shape.
    Good,
    /// Something else.
    Bad,
}

impl Given {
    /// For a field that takes none of the values that come here but null.
    pub(super) fn unless_null(value: Value) -> Self {
        match value {
            Value::Null => Self::Nothing,
            _ => Self::Bad,
        }
    }
}
