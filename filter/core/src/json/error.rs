use core::fmt;

/// Why some bytes are not JSON, and where.
///
/// `offset` counts bytes from the start of the document. It names the offending byte, or, for bad UTF-8,
/// the first byte of the bad sequence, or, for a document that stops early, its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonError {
    /// What is wrong.
    pub kind: JsonErrorKind,
    /// Byte offset from the start of the document.
    pub offset: usize,
}

/// The ways a document can fail to be JSON (RFC 8259).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonErrorKind {
    /// A byte that cannot stand here: a stray comma, a byte order mark, `NaN`, …
    UnexpectedByte,
    /// The document stops before its value is complete.
    UnexpectedEnd,
    /// Something other than white space follows the value.
    TrailingBytes,
    /// A raw control character (below 0x20) inside a string.
    ControlInString,
    /// A backslash followed by something that is no escape.
    BadEscape,
    /// `\ud800`–`\udfff` that is not a high half followed by a low half.
    LoneSurrogate,
    /// A string that is not UTF-8.
    BadUtf8,
    /// More than [`MAX_DEPTH`](super::MAX_DEPTH) arrays and objects inside each other.
    TooDeep,
}

impl fmt::Display for JsonErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnexpectedByte => "unexpected character",
            Self::UnexpectedEnd => "unexpected end of the document",
            Self::TrailingBytes => "unexpected data after the document",
            Self::ControlInString => "control character in a string",
            Self::BadEscape => "invalid escape in a string",
            Self::LoneSurrogate => "unpaired surrogate escape in a string",
            Self::BadUtf8 => "string is not valid UTF-8",
            Self::TooDeep => "arrays and objects are nested too deeply",
        })
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind, self.offset)
    }
}

impl core::error::Error for JsonError {}
