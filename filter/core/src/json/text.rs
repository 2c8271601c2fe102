//! The inside of a string: UTF-8, control characters and escapes, across slice borders.

use super::error::JsonErrorKind;
use super::plain::plain_ascii;
use memchr::memchr2;

/// A fault found in a string: its kind, and where it lies relative to the bytes given.
pub(super) struct Fault {
    pub(super) kind: JsonErrorKind,
    /// Bytes from the start of the slice …
    pub(super) at: usize,
    /// … less these, for what began in an earlier slice.
    pub(super) before: usize,
}

impl Fault {
    fn at(kind: JsonErrorKind, at: usize) -> Self {
        Self { kind, at, before: 0 }
    }

    fn before(kind: JsonErrorKind, at: usize, before: u8) -> Self {
        let before = usize::from(before);
        Self { kind, at, before }
    }
}

/// Where the next byte of a string falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Between escapes.
    Plain,
    /// After a backslash.
    Escape,
    /// Among the four digits of `\u`.
    Hex { seen: u8, value: u16 },
    /// After a high surrogate: its partner's backslash must follow.
    LowBackslash,
    /// After that backslash: `u` must follow.
    LowU,
}

/// Reads the inside of a string, from after the opening quote to the closing one.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextScan {
    place: Place,
    /// The high surrogate that waits for its partner, or 0.
    high: u16,
    /// Bytes since the backslash of the escape (pair) being read, so that an error can point at it.
    since_escape: u8,
    /// An unfinished UTF-8 sequence at the end of the last slice.
    partial: [u8; 4],
    partial_len: u8,
}

impl TextScan {
    pub(super) const fn new() -> Self {
        Self { place: Place::Plain, high: 0, since_escape: 0, partial: [0; 4], partial_len: 0 }
    }

    /// Reads on; decoded bytes go to `out` in pieces (a piece may end inside a UTF-8 sequence). Gives the
    /// number of bytes up to and with the closing quote, or `None` if the string goes on after `bytes`.
    #[inline]
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<Option<usize>, Fault> {
        let mut at = 0usize;
        while let Some(&byte) = bytes.get(at) {
            if self.place != Place::Plain {
                self.escape(byte, at, out)?;
            } else if self.partial_len > 0 {
                self.finish_sequence(byte, at)?;
                out(&[byte]);
            } else {
                let rest = bytes.get(at..).unwrap_or_default();
                let length = self.run(rest, at)?;
                if length > 0 {
                    out(rest.get(..length).unwrap_or_default());
                }
                at = at.saturating_add(length);
                match bytes.get(at) {
                    None => break,
                    Some(b'"') => return Ok(Some(at.saturating_add(1))),
                    Some(_) => {
                        // Nearly always the escape is whole and short.
                        let next = bytes.get(at.saturating_add(1));
                        if let Some(decoded) = next.and_then(|&byte| short_escape(byte)) {
                            out(&[decoded]);
                            at = at.saturating_add(2);
                            continue;
                        }
                        self.place = Place::Escape;
                        self.since_escape = 0;
                    }
                }
            }
            at = at.saturating_add(1);
            self.since_escape = self.since_escape.saturating_add(1);
        }
        Ok(None)
    }

    /// Length of the run before the next quote or backslash, checked.
    #[inline]
    fn run(&mut self, rest: &[u8], at: usize) -> Result<usize, Fault> {
        let plain = plain_ascii(rest);
        if matches!(rest.get(plain), None | Some(b'"' | b'\\')) {
            return Ok(plain);
        }
        let more = rest.get(plain..).unwrap_or_default();
        Ok(plain.saturating_add(self.mixed(more, at.saturating_add(plain))?))
    }

    /// The same of what begins with no plain ASCII: all of it at once, since where one word is in another alphabet, most
    /// are. At the slice's end a UTF-8 sequence may go on in the next one.
    fn mixed(&mut self, rest: &[u8], at: usize) -> Result<usize, Fault> {
        let stop = memchr2(b'"', b'\\', rest);
        let run = rest.get(..stop.unwrap_or(rest.len())).unwrap_or_default();
        // A fold without a branch: compiled to vector code, natively and with simd128.
        let has_control = run.iter().fold(false, |found, byte| found | (*byte < 0x20));
        let control = if has_control { run.iter().position(|byte| *byte < 0x20) } else { None };
        let broken = match core::str::from_utf8(run) {
            Ok(_) => None,
            Err(error) => {
                let good = error.valid_up_to();
                let tail = run.get(good..).unwrap_or_default();
                if error.error_len().is_none() && stop.is_none() {
                    for (slot, byte) in self.partial.iter_mut().zip(tail) {
                        *slot = *byte;
                    }
                    self.partial_len = u8::try_from(tail.len()).unwrap_or(0);
                    None
                } else {
                    Some(good)
                }
            }
        };
        let (kind, inside) = match (control, broken) {
            (None, None) => return Ok(run.len()),
            (Some(low), None) => (JsonErrorKind::ControlInString, low),
            (Some(low), Some(bad)) if low < bad => (JsonErrorKind::ControlInString, low),
            (_, Some(bad)) => (JsonErrorKind::BadUtf8, bad),
        };
        Err(Fault::at(kind, at.saturating_add(inside)))
    }

    /// Takes one byte more of a UTF-8 sequence that an earlier slice began.
    #[cold]
    fn finish_sequence(&mut self, byte: u8, at: usize) -> Result<(), Fault> {
        let have = self.partial_len;
        let fault = Fault::before(JsonErrorKind::BadUtf8, at, have);
        let Some(slot) = self.partial.get_mut(usize::from(have)) else {
            return Err(fault);
        };
        *slot = byte;
        let now = have.saturating_add(1);
        let sequence = self.partial.get(..usize::from(now)).unwrap_or_default();
        match core::str::from_utf8(sequence) {
            Ok(_) => self.partial_len = 0,
            Err(error) if error.error_len().is_none() => self.partial_len = now,
            Err(_) => return Err(fault),
        }
        Ok(())
    }

    /// Takes a byte after a backslash.
    fn escape(&mut self, byte: u8, at: usize, out: &mut impl FnMut(&[u8])) -> Result<(), Fault> {
        self.place = match self.place {
            Place::Escape if byte == b'u' => Place::Hex { seen: 0, value: 0 },
            Place::Escape => {
                let decoded =
                    short_escape(byte).ok_or_else(|| Fault::at(JsonErrorKind::BadEscape, at))?;
                out(&[decoded]);
                Place::Plain
            }
            Place::Hex { seen, value } => {
                let Some(digit) = char::from(byte).to_digit(16) else {
                    return Err(Fault::at(JsonErrorKind::BadEscape, at));
                };
                let value = (value << 4) | u16::try_from(digit).unwrap_or(0);
                if seen < 3 {
                    let seen = seen.saturating_add(1);
                    Place::Hex { seen, value }
                } else {
                    self.unit(value, at, out)?
                }
            }
            Place::LowBackslash if byte == b'\\' => Place::LowU,
            Place::LowU if byte == b'u' => Place::Hex { seen: 0, value: 0 },
            Place::LowBackslash | Place::LowU | Place::Plain => return Err(self.lone(at)),
        };
        Ok(())
    }

    /// A whole `\uXXXX` has been read.
    fn unit(&mut self, unit: u16, at: usize, out: &mut impl FnMut(&[u8])) -> Result<Place, Fault> {
        if self.high == 0 && (0xd800..0xdc00).contains(&unit) {
            self.high = unit;
            return Ok(Place::LowBackslash);
        }
        let decoded = if self.high == 0 {
            char::from_u32(u32::from(unit))
        } else {
            char::decode_utf16([self.high, unit]).next().and_then(Result::ok)
        };
        let decoded = decoded.ok_or_else(|| self.lone(at))?;
        self.high = 0;
        out(decoded.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(Place::Plain)
    }

    fn lone(&self, at: usize) -> Fault {
        Fault::before(JsonErrorKind::LoneSurrogate, at, self.since_escape)
    }
}

/// What a backslash and this byte stand for, `\u` aside.
#[inline]
fn short_escape(byte: u8) -> Option<u8> {
    Some(match byte {
        b'"' | b'\\' | b'/' => byte,
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 0x08,
        b'f' => 0x0c,
        _ => return None,
    })
}
