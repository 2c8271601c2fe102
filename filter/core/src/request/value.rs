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

    /// A whole number from 0, written as a number.
    pub(super) fn whole(self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    /// How many are asked for, as the engine (pydantic) reads it. Where the engine refuses, it may still be a number
    /// here; what the engine takes is never less there.
    pub(super) fn count(self, arena: &[u8]) -> Option<u64> {
        match self {
            Self::Number(number) => number.ceil(),
            Self::Bool(value) => Some(u64::from(value)),
            Self::Text(text) => count_in(core::str::from_utf8(text.of(arena)).ok()?),
            Self::Null | Self::Wrong => None,
        }
    }
}

/// Digits: maybe white space around them, a plus before, underscores between, a point and zeros behind.
fn count_in(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_prefix('+').unwrap_or(text);
    let (whole, zeros) = text.split_once('.').unwrap_or((text, "0"));
    let is_digit = |c: char| c.is_ascii_digit();
    if !whole.starts_with(is_digit) || !whole.ends_with(is_digit) || zeros.is_empty() {
        return None;
    }
    if zeros.bytes().any(|byte| byte != b'0') {
        return None;
    }
    let mut value = 0u64;
    for byte in whole.bytes().filter(|byte| *byte != b'_') {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value = value.saturating_mul(10).saturating_add(u64::from(digit));
    }
    Some(value)
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
