use super::error::{JsonError, JsonErrorKind};
use super::number::{Number, NumberScan, Step};
use super::text::{Fault, TextScan};

/// Arrays and objects that may stand inside each other.
pub const MAX_DEPTH: usize = 128;

/// Object keys longer than this (decoded) reach the handler as the empty key: no field we know is as long.
pub const MAX_KEY: usize = 32;

/// What kind of container opens or closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
}

/// A value that is neither string nor container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// Any number.
    Number(Number),
}

/// Hears what a [`Scanner`] sees, in document order. Offsets count bytes from the start of the document.
/// Every method does nothing unless overridden.
pub trait Handler {
    /// A key begins; `at` is the offset of its opening quote.
    fn key_start(&mut self, _at: usize) {}
    /// An object's key, unescaped; empty if it is longer than [`MAX_KEY`]. Its value follows.
    fn key(&mut self, _name: &[u8]) {}
    /// A string value begins; `at` is the offset of its opening quote.
    fn string_start(&mut self, _at: usize) {}
    /// Some unescaped bytes of that string; a piece may end inside a UTF-8 sequence.
    fn string_piece(&mut self, _bytes: &[u8]) {}
    /// The string ends; `end` is the offset after its closing quote.
    fn string_end(&mut self, _end: usize) {}
    /// A literal or number at `at..end`.
    fn scalar(&mut self, _value: Scalar, _at: usize, _end: usize) {}
    /// A container opens; `at` is the offset of its bracket.
    fn open(&mut self, _container: Container, _at: usize) {}
    /// A container closes; `end` is the offset after its bracket.
    fn close(&mut self, _container: Container, _end: usize) {}
}

/// What may come next.
#[derive(Debug, Clone, Copy)]
enum State {
    /// A value.
    Value,
    /// A value, or the end of the array just opened.
    FirstItem,
    /// A key, or the end of the object just opened.
    FirstKey,
    /// A key.
    Key,
    /// The colon after a key.
    Colon,
    /// A comma or the end of the container.
    AfterValue,
    /// Only white space: the document's value is complete.
    Done,
    /// The rest of a literal.
    Literal { left: &'static [u8], value: Scalar, at: usize },
    /// The rest of a number.
    Number { scan: NumberScan, at: usize },
    /// The inside of a string value.
    Text(TextScan),
    /// The inside of a key.
    KeyText(TextScan),
    /// An error was found; it stays.
    Failed(JsonError),
}

/// An incremental JSON reader: feed it slices, then [`finish`](Self::finish).
///
/// It keeps a few hundred bytes of state and none of the input.
#[derive(Debug, Clone)]
pub struct Scanner {
    state: State,
    /// Bytes taken in earlier calls.
    taken: usize,
    depth: usize,
    /// Bit `i`: the container at depth `i` is an object.
    objects: u128,
    key: [u8; MAX_KEY],
    /// Length of the key so far; above `MAX_KEY` once it no longer fits.
    key_len: usize,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// A scanner before the first byte of a document.
    #[must_use]
    pub const fn new() -> Self {
        Self { state: State::Value, taken: 0, depth: 0, objects: 0, key: [0; MAX_KEY], key_len: 0 }
    }

    /// Bytes taken so far.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Whether a whole value has been read. A number at the top level is whole only after
    /// [`finish`](Self::finish), or white space.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Reads the next bytes.
    ///
    /// # Errors
    /// The first fault found; every later call returns it again.
    pub fn feed(&mut self, slice: &[u8], handler: &mut impl Handler) -> Result<(), JsonError> {
        if let State::Failed(error) = self.state {
            return Err(error);
        }
        let outcome = self.run(slice, handler);
        if let Err(error) = outcome {
            self.state = State::Failed(error);
        }
        self.taken = self.taken.saturating_add(slice.len());
        outcome
    }

    /// Ends the document.
    ///
    /// # Errors
    /// An earlier fault, or [`JsonErrorKind::UnexpectedEnd`] if no whole value was read.
    pub fn finish(&mut self, handler: &mut impl Handler) -> Result<(), JsonError> {
        match self.state {
            State::Failed(error) => return Err(error),
            State::Done => return Ok(()),
            State::Number { scan, at } if self.depth == 0 && scan.is_whole() => {
                handler.scalar(Scalar::Number(scan.number()), at, self.taken);
                self.state = State::Done;
                return Ok(());
            }
            _ => {}
        }
        let error = JsonError { kind: JsonErrorKind::UnexpectedEnd, offset: self.taken };
        self.state = State::Failed(error);
        Err(error)
    }

    fn run(&mut self, slice: &[u8], handler: &mut impl Handler) -> Result<(), JsonError> {
        let mut position = 0usize;
        while let Some(&byte) = slice.get(position) {
            let at = self.taken.saturating_add(position);
            match &mut self.state {
                State::Text(scan) => {
                    let rest = slice.get(position..).unwrap_or_default();
                    let read = scan.read(rest, &mut |piece| handler.string_piece(piece));
                    let Some(length) = read.map_err(|fault| placed(&fault, at))? else {
                        return Ok(());
                    };
                    handler.string_end(at.saturating_add(length));
                    self.value_done();
                    position = position.saturating_add(length);
                    continue;
                }
                State::KeyText(scan) => {
                    let rest = slice.get(position..).unwrap_or_default();
                    let (key, key_len) = (&mut self.key, &mut self.key_len);
                    let read = scan.read(rest, &mut |piece| extend_key(key, key_len, piece));
                    let Some(length) = read.map_err(|fault| placed(&fault, at))? else {
                        return Ok(());
                    };
                    handler.key(self.key.get(..self.key_len).unwrap_or_default());
                    self.state = State::Colon;
                    position = position.saturating_add(length);
                    continue;
                }
                State::Number { scan, at: start } => {
                    let rest = slice.get(position..).unwrap_or_default();
                    let (length, step) = scan.read(rest);
                    position = position.saturating_add(length);
                    let at = self.taken.saturating_add(position);
                    match step {
                        Step::Taken => return Ok(()),
                        Step::Bad => return Err(unexpected(at)),
                        Step::Ended => {}
                    }
                    handler.scalar(Scalar::Number(scan.number()), *start, at);
                    // The byte that ended it is for the next state.
                    self.value_done();
                    continue;
                }
                State::Literal { left, value, at: start } => match left.split_first() {
                    Some((expected, more)) if *expected == byte => {
                        if more.is_empty() {
                            handler.scalar(*value, *start, at.saturating_add(1));
                            self.value_done();
                        } else {
                            *left = more;
                        }
                    }
                    _ => return Err(unexpected(at)),
                },
                _ if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') => {}
                State::Value => self.value(byte, at, handler)?,
                State::FirstItem if byte == b']' => self.close(Container::Array, at, handler)?,
                State::FirstItem => self.value(byte, at, handler)?,
                State::FirstKey if byte == b'}' => self.close(Container::Object, at, handler)?,
                State::FirstKey | State::Key if byte == b'"' => {
                    handler.key_start(at);
                    self.key_len = 0;
                    self.state = State::KeyText(TextScan::new());
                }
                State::Colon if byte == b':' => self.state = State::Value,
                State::AfterValue => match byte {
                    b',' if self.in_object() => self.state = State::Key,
                    b',' => self.state = State::Value,
                    b']' => self.close(Container::Array, at, handler)?,
                    b'}' => self.close(Container::Object, at, handler)?,
                    _ => return Err(unexpected(at)),
                },
                State::Done => {
                    return Err(JsonError { kind: JsonErrorKind::TrailingBytes, offset: at });
                }
                State::FirstKey | State::Key | State::Colon => return Err(unexpected(at)),
                State::Failed(error) => return Err(*error),
            }
            position = position.saturating_add(1);
        }
        Ok(())
    }

    fn value(&mut self, byte: u8, at: usize, handler: &mut impl Handler) -> Result<(), JsonError> {
        let literal = |left, value| State::Literal { left, value, at };
        self.state = match byte {
            b'"' => {
                handler.string_start(at);
                State::Text(TextScan::new())
            }
            b'{' => {
                self.open(Container::Object, at, handler)?;
                State::FirstKey
            }
            b'[' => {
                self.open(Container::Array, at, handler)?;
                State::FirstItem
            }
            b'n' => literal(b"ull", Scalar::Null),
            b't' => literal(b"rue", Scalar::Bool(true)),
            b'f' => literal(b"alse", Scalar::Bool(false)),
            _ => match NumberScan::start(byte) {
                Some(scan) => State::Number { scan, at },
                None => return Err(unexpected(at)),
            },
        };
        Ok(())
    }

    fn open(
        &mut self,
        container: Container,
        at: usize,
        handler: &mut impl Handler,
    ) -> Result<(), JsonError> {
        if self.depth >= MAX_DEPTH {
            return Err(JsonError { kind: JsonErrorKind::TooDeep, offset: at });
        }
        self.objects = (self.objects << 1) | u128::from(container == Container::Object);
        self.depth = self.depth.saturating_add(1);
        handler.open(container, at);
        Ok(())
    }

    fn close(
        &mut self,
        container: Container,
        at: usize,
        handler: &mut impl Handler,
    ) -> Result<(), JsonError> {
        if self.in_object() != (container == Container::Object) || self.depth == 0 {
            return Err(unexpected(at));
        }
        self.objects >>= 1;
        self.depth = self.depth.saturating_sub(1);
        handler.close(container, at.saturating_add(1));
        self.value_done();
        Ok(())
    }

    fn in_object(&self) -> bool {
        self.objects & 1 == 1
    }

    fn value_done(&mut self) {
        self.state = if self.depth == 0 { State::Done } else { State::AfterValue };
    }
}

fn unexpected(offset: usize) -> JsonError {
    JsonError { kind: JsonErrorKind::UnexpectedByte, offset }
}

fn placed(fault: &Fault, at: usize) -> JsonError {
    JsonError { kind: fault.kind, offset: at.saturating_add(fault.at).saturating_sub(fault.before) }
}

fn extend_key(key: &mut [u8; MAX_KEY], length: &mut usize, piece: &[u8]) {
    let end = length.saturating_add(piece.len());
    if let Some(slot) = key.get_mut(*length..end) {
        slot.copy_from_slice(piece);
    }
    // Past the end it stays past the end, and the key reads as empty.
    *length = end;
}
