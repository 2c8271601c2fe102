//! The end of a body, found as it arrives.

/// How a body is framed, and how far it has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyReader {
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many bytes of a body of known length are to come.
    Sized(u64),
    /// In the line with a chunk's size, read as far as this.
    Size(u64),
    /// Behind the digits, up to the line's end.
    SizeEnd(u64),
    /// So many bytes of a chunk are to come.
    Chunk(u64),
    /// In the line end behind a chunk.
    ChunkEnd,
    /// In a trailer's line, with so many bytes of it read.
    Trailer(usize),
    /// All of it was read.
    Done,
    /// It is no chunked body.
    Broken,
}

impl BodyReader {
    /// A body of a known length.
    #[must_use]
    pub fn sized(length: u64) -> Self {
        Self { state: if length == 0 { State::Done } else { State::Sized(length) } }
    }

    /// A chunked body.
    #[must_use]
    pub fn chunked() -> Self {
        Self { state: State::Size(0) }
    }

    /// All of it was read.
    #[must_use]
    pub fn done(&self) -> bool {
        self.state == State::Done
    }

    /// What came cannot be a body of this framing.
    #[must_use]
    pub fn broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Takes the next bytes, hands the body's own to `data`, and returns how many belong to the body and its framing.
    pub fn feed<'a>(&mut self, bytes: &'a [u8], mut data: impl FnMut(&'a [u8])) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() && !self.done() && !self.broken() {
            if let State::Sized(left) | State::Chunk(left) = self.state {
                let take = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                let (own, behind) = rest.split_at(take);
                data(own);
                rest = behind;
                let left = left - take as u64;
                self.state = match (self.state, left) {
                    (State::Sized(_), 0) => State::Done,
                    (State::Sized(_), left) => State::Sized(left),
                    (_, 0) => State::ChunkEnd,
                    (_, left) => State::Chunk(left),
                };
            } else if let Some((byte, behind)) = rest.split_first() {
                self.state = self.state.framing(*byte);
                rest = behind;
            }
        }
        bytes.len() - rest.len()
    }
}

impl State {
    fn framing(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Size(0) | Self::SizeEnd(0), b'\n') => Self::Trailer(0),
            (Self::Size(size) | Self::SizeEnd(size), b'\n') => Self::Chunk(size),
            (Self::Size(size), byte) => match char::from(byte).to_digit(16) {
                Some(digit) if size < 1 << 40 => Self::Size(size * 16 + u64::from(digit)),
                Some(_) => Self::Broken,
                None => Self::SizeEnd(size),
            },
            (Self::ChunkEnd, b'\n') => Self::Size(0),
            (Self::ChunkEnd, b'\r') => Self::ChunkEnd,
            (Self::ChunkEnd, _) => Self::Broken,
            (Self::Trailer(0), b'\n') => Self::Done,
            (Self::Trailer(_), b'\n') => Self::Trailer(0),
            (Self::Trailer(read), b'\r') => Self::Trailer(read),
            (Self::Trailer(read), _) => Self::Trailer(read + 1),
            (state, _) => state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Body, and how many bytes were its own, framing included.
    fn read(mut reader: BodyReader, bytes: &[u8], piece: usize) -> (Vec<u8>, usize, BodyReader) {
        let (mut body, mut own) = (Vec::new(), 0);
        for piece in bytes.chunks(piece) {
            own += reader.feed(piece, |data| body.extend_from_slice(data));
        }
        (body, own, reader)
    }

    #[test]
    fn bodies_end_where_they_should_however_they_are_cut() {
        let chunked = b"5\r\nhello\r\n1;x=y\r\n \r\nA\r\n0123456789\r\n0\r\na: b\r\n\r\n";
        let cases: [(BodyReader, &[u8], &[u8]); 3] = [
            (BodyReader::sized(5), b"hello", b"hello"),
            (BodyReader::chunked(), chunked, b"hello 0123456789"),
            (BodyReader::chunked(), b"0\r\n\r\n", b""),
        ];
        for (reader, bytes, body) in cases {
            let with_next = [bytes, b"HTTP/1.1 200"].concat();
            for piece in 1..=with_next.len() {
                let (read, own, reader) = read(reader.clone(), &with_next, piece);
                assert_eq!((read.as_slice(), own, reader.done()), (body, bytes.len(), true));
            }
        }
    }

    #[test]
    fn what_is_no_chunked_body_is_noticed() {
        for bytes in [&b"1\r\nab\r\n"[..], b"ffffffffffffffff\r\n"] {
            assert!(read(BodyReader::chunked(), bytes, 1).2.broken());
        }
        assert!(!read(BodyReader::chunked(), b"5\r\nhel", 1).2.done());
    }
}
