//! MessagePack, read in place: <https://github.com/msgpack/msgpack/blob/master/spec.md>.
//!
//! An own reader and not a crate, because every block of every engine passes here: it allocates
//! nothing, and no length it reads is trusted before the bytes are seen.

/// Why reading stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The input ends inside a value.
    #[error("the payload ends inside a value")]
    Truncated,
    /// Marker 0xc1, which no value has.
    #[error("the payload holds the reserved marker 0xc1")]
    Reserved,
}

/// A value, or the head of an array or a map whose elements follow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Token<'a> {
    /// Nothing.
    Nil,
    /// A truth value.
    Bool(bool),
    /// An integer from 0 up.
    Uint(u64),
    /// An integer below 0.
    Negative(i64),
    /// A number with a fraction.
    Float(f64),
    /// Text, not checked to be UTF-8.
    Text(&'a [u8]),
    /// Bytes.
    Bytes(&'a [u8]),
    /// So many values follow.
    Array(u32),
    /// So many pairs of key and value follow.
    Map(u32),
    /// A value of an extension type.
    Extension,
}

impl Token<'_> {
    /// Values that belong to this one and follow it.
    fn children(self) -> u64 {
        match self {
            Token::Array(n) => u64::from(n),
            Token::Map(n) => u64::from(n) * 2,
            _ => 0,
        }
    }
}

/// Reads values one after the other. A copy is a place to come back to.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their start.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not read yet: more values than that cannot follow.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next value or head.
    ///
    /// # Errors
    /// [`Malformed`]; then nothing more can be read.
    #[inline]
    pub fn token(&mut self) -> Result<Token<'a>, Malformed> {
        let [marker] = self.fixed()?;
        Ok(match marker {
            0x00..=0x7f => Token::Uint(marker.into()),
            0x80..=0x8f => Token::Map((marker & 0x0f).into()),
            0x90..=0x9f => Token::Array((marker & 0x0f).into()),
            0xa0..=0xbf => Token::Text(self.take((marker & 0x1f).into())?),
            0xc0 => Token::Nil,
            0xc1 => return Err(Malformed::Reserved),
            0xc2 => Token::Bool(false),
            0xc3 => Token::Bool(true),
            0xc4 | 0xd9 => {
                let len = u8::from_be_bytes(self.fixed()?);
                self.string(marker == 0xd9, len.into())?
            }
            0xc5 | 0xda => {
                let len = u16::from_be_bytes(self.fixed()?);
                self.string(marker == 0xda, len.into())?
            }
            0xc6 | 0xdb => {
                let len = u32::from_be_bytes(self.fixed()?);
                self.string(marker == 0xdb, len)?
            }
            // An extension has one byte for its type before its bytes.
            0xc7 => {
                let len = u8::from_be_bytes(self.fixed()?);
                self.extension(len.into())?
            }
            0xc8 => {
                let len = u16::from_be_bytes(self.fixed()?);
                self.extension(len.into())?
            }
            0xc9 => {
                let len = u32::from_be_bytes(self.fixed()?);
                self.extension(len)?
            }
            0xca => Token::Float(f32::from_be_bytes(self.fixed()?).into()),
            0xcb => Token::Float(f64::from_be_bytes(self.fixed()?)),
            0xcc => Token::Uint(u8::from_be_bytes(self.fixed()?).into()),
            0xcd => Token::Uint(u16::from_be_bytes(self.fixed()?).into()),
            0xce => Token::Uint(u32::from_be_bytes(self.fixed()?).into()),
            0xcf => Token::Uint(u64::from_be_bytes(self.fixed()?)),
            0xd0 => signed(i8::from_be_bytes(self.fixed()?).into()),
            0xd1 => signed(i16::from_be_bytes(self.fixed()?).into()),
            0xd2 => signed(i32::from_be_bytes(self.fixed()?).into()),
            0xd3 => signed(i64::from_be_bytes(self.fixed()?)),
            0xd4..=0xd8 => self.extension(1 << (marker - 0xd4))?,
            0xdc => Token::Array(u16::from_be_bytes(self.fixed()?).into()),
            0xdd => Token::Array(u32::from_be_bytes(self.fixed()?)),
            0xde => Token::Map(u16::from_be_bytes(self.fixed()?).into()),
            0xdf => Token::Map(u32::from_be_bytes(self.fixed()?)),
            0xe0..=0xff => signed(i8::from_be_bytes([marker]).into()),
        })
    }

    /// Passes over the next value with all that belongs to it, however deep.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn skip(&mut self) -> Result<(), Malformed> {
        // Every turn takes at least a byte, whatever lengths say.
        let mut open: u64 = 1;
        while open > 0 {
            open = (open - 1).saturating_add(self.token()?.children());
        }
        Ok(())
    }

    /// Passes over what belongs to `token`, the last that was read.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn skip_rest(&mut self, token: Token<'_>) -> Result<(), Malformed> {
        let mut open = token.children();
        while open > 0 {
            open = (open - 1).saturating_add(self.token()?.children());
        }
        Ok(())
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    fn take(&mut self, len: u32) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed::Truncated)?;
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    fn string(&mut self, text: bool, len: u32) -> Result<Token<'a>, Malformed> {
        let bytes = self.take(len)?;
        Ok(if text { Token::Text(bytes) } else { Token::Bytes(bytes) })
    }

    fn extension(&mut self, len: u32) -> Result<Token<'a>, Malformed> {
        self.take(1)?;
        self.take(len)?;
        Ok(Token::Extension)
    }
}

fn signed<'a>(value: i64) -> Token<'a> {
    u64::try_from(value).map_or(Token::Negative(value), Token::Uint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_marker_is_read() {
        let cases: &[(&[u8], Token<'_>)] = &[
            (&[0x7f], Token::Uint(127)),
            (&[0x81], Token::Map(1)),
            (&[0x92], Token::Array(2)),
            (b"\xa2ab", Token::Text(b"ab")),
            (&[0xc0], Token::Nil),
            (&[0xc2], Token::Bool(false)),
            (&[0xc3], Token::Bool(true)),
            (b"\xc4\x01a", Token::Bytes(b"a")),
            (b"\xc5\x00\x01a", Token::Bytes(b"a")),
            (b"\xc6\x00\x00\x00\x01a", Token::Bytes(b"a")),
            (b"\xc7\x02\x01ab", Token::Extension),
            (b"\xc8\x00\x02\x01ab", Token::Extension),
            (b"\xc9\x00\x00\x00\x02\x01ab", Token::Extension),
            (&[0xca, 0x3f, 0x80, 0, 0], Token::Float(1.0)),
            (&[0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0], Token::Float(1.0)),
            (&[0xcc, 0xff], Token::Uint(255)),
            (&[0xcd, 1, 0], Token::Uint(256)),
            (&[0xce, 0, 1, 0, 0], Token::Uint(65536)),
            (&[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Token::Uint(u64::MAX)),
            (&[0xd0, 0x80], Token::Negative(-128)),
            (&[0xd1, 0, 5], Token::Uint(5)),
            (&[0xd2, 0xff, 0xff, 0xff, 0xff], Token::Negative(-1)),
            (&[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0], Token::Negative(i64::MIN)),
            (b"\xd4\x01a", Token::Extension),
            (b"\xd8\x01abcdefghijklmnop", Token::Extension),
            (b"\xd9\x01a", Token::Text(b"a")),
            (b"\xda\x00\x01a", Token::Text(b"a")),
            (b"\xdb\x00\x00\x00\x01a", Token::Text(b"a")),
            (&[0xdc, 1, 0], Token::Array(256)),
            (&[0xdd, 0, 1, 0, 0], Token::Array(65536)),
            (&[0xde, 1, 0], Token::Map(256)),
            (&[0xdf, 0, 1, 0, 0], Token::Map(65536)),
            (&[0xff], Token::Negative(-1)),
        ];
        for (bytes, token) in cases {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.token(), Ok(*token), "{bytes:x?}");
            assert_eq!(reader.remaining(), 0, "{bytes:x?}");
            for cut in 0..bytes.len() {
                let cut = Reader::new(&bytes[..cut]).token();
                assert_eq!(cut, Err(Malformed::Truncated), "{bytes:x?}");
            }
        }
        assert_eq!(Reader::new(&[0xc1]).token(), Err(Malformed::Reserved));
    }

    #[test]
    fn skipping_takes_all_that_belongs_to_a_value() {
        let nested = [0x92, 0x81, 0xa1, b'k', 0x93, 1, 2, 3, 0xc0, 7];
        let mut reader = Reader::new(&nested);
        reader.skip().unwrap();
        assert_eq!(reader.token(), Ok(Token::Uint(7)));
        let mut reader = Reader::new(&nested);
        let head = reader.token().unwrap();
        reader.skip_rest(head).unwrap();
        assert_eq!(reader.token(), Ok(Token::Uint(7)));
        let deep = vec![0x91; 1 << 20];
        assert_eq!(Reader::new(&deep).skip(), Err(Malformed::Truncated));
        let wide = [0xdd, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(Reader::new(&wide).skip(), Err(Malformed::Truncated));
    }
}
