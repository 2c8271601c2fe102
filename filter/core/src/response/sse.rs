//! Server-sent events, line by line (WHATWG HTML, section "Interpreting an event stream"), for any cut and
//! without holding a line.
//!
//! Lines end with LF, CRLF or CR. `data:` may be followed by a space. Comments are counted; `event:`, `id:` and
//! `retry:` mean nothing to us, since every API we read says its type in the payload too.

use memchr::memchr2;

/// Hears the parts of an event stream.
pub trait EventSink {
    /// A line begins at the offset `at` (as in [`data`](Self::data)); `empty`: it ends there, too.
    fn line(&mut self, _at: usize, _empty: bool) {}
    /// Some bytes of a `data` line; `at` is the offset of the first one in the stream, which may wrap.
    fn data(&mut self, piece: &[u8], at: usize);
    /// The `data` line ends.
    fn data_end(&mut self);
    /// An empty line: the event is complete.
    fn dispatch(&mut self);
    /// A comment line begins.
    fn comment(&mut self);
}

/// The longest field name that matters, with a byte order mark before it.
const NAME_BYTES: usize = 8;

/// Where in a line the next byte falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the field's name.
    Name,
    /// After `data:`: one space is not part of the value.
    DataStart,
    /// In a `data` value.
    Data,
    /// In a line that does not matter.
    Skip,
}

/// Splits an event stream into its parts.
#[derive(Debug, Clone)]
pub struct LineSplitter {
    place: Place,
    name: [u8; NAME_BYTES],
    /// Bytes of the name so far; beyond `NAME_BYTES` it is none that we know.
    name_len: usize,
    /// The last byte was a CR: an LF now belongs to it.
    after_cr: bool,
    /// No line has ended yet: a byte order mark may stand first.
    first_line: bool,
    /// Bytes taken in earlier calls; it may wrap.
    taken: usize,
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self {
            place: Place::Name,
            name: [0; NAME_BYTES],
            name_len: 0,
            after_cr: false,
            first_line: true,
            taken: 0,
        }
    }
}

impl LineSplitter {
    /// Bytes taken so far; it may wrap.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Reads the next bytes.
    pub fn feed(&mut self, slice: &[u8], sink: &mut impl EventSink) {
        let end = self.taken.wrapping_add(slice.len());
        self.split(slice, end, sink);
        self.taken = end;
    }

    /// `end` is the offset after the last byte of `slice`.
    fn split(&mut self, slice: &[u8], end: usize, sink: &mut impl EventSink) {
        let mut rest = slice;
        while let Some((&byte, tail)) = rest.split_first() {
            if self.after_cr {
                self.after_cr = false;
                if byte == b'\n' {
                    rest = tail;
                    continue;
                }
            }
            let ends = matches!(byte, b'\n' | b'\r');
            if self.place == Place::Name && self.name_len == 0 {
                sink.line(end.wrapping_sub(rest.len()), ends);
            }
            if ends {
                self.line_end(sink);
                self.after_cr = byte == b'\r';
                rest = tail;
                continue;
            }
            match self.place {
                Place::Name => {
                    self.name_byte(byte, sink);
                    rest = tail;
                }
                Place::DataStart => {
                    self.place = Place::Data;
                    if byte == b' ' {
                        rest = tail;
                    }
                }
                Place::Data | Place::Skip => {
                    let length = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                    let (value, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
                    if self.place == Place::Data {
                        sink.data(value, end.wrapping_sub(rest.len()));
                    }
                    rest = after;
                }
            }
        }
    }

    /// Ends the stream: a last line without a line end counts as one.
    pub fn finish(&mut self, sink: &mut impl EventSink) {
        if self.place != Place::Name || self.name_len > 0 {
            self.line_end(sink);
        }
    }

    fn name_byte(&mut self, byte: u8, sink: &mut impl EventSink) {
        if byte != b':' {
            if let Some(slot) = self.name.get_mut(self.name_len) {
                *slot = byte;
            }
            self.name_len = self.name_len.saturating_add(1);
            return;
        }
        self.place = match self.name() {
            Some(b"data") => Place::DataStart,
            Some(b"") => {
                sink.comment();
                Place::Skip
            }
            _ => Place::Skip,
        };
    }

    fn line_end(&mut self, sink: &mut impl EventSink) {
        match self.place {
            Place::Name => match self.name() {
                Some(b"") => sink.dispatch(),
                // A field without a colon has an empty value.
                Some(b"data") => sink.data_end(),
                _ => {}
            },
            Place::DataStart | Place::Data => sink.data_end(),
            Place::Skip => {}
        }
        self.place = Place::Name;
        self.name_len = 0;
        self.first_line = false;
    }

    /// The name read so far, without a byte order mark; `None` if it is too long to be one of ours.
    fn name(&self) -> Option<&[u8]> {
        let name = self.name.get(..self.name_len)?;
        if self.first_line {
            return Some(name.strip_prefix(b"\xef\xbb\xbf").unwrap_or(name));
        }
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::{EventSink, LineSplitter};
    use crate::response::any_split::every_cut;

    /// One line a data value, `.` an event's end, `#` a comment.
    #[derive(Default)]
    struct Log(String, Vec<u8>);

    impl EventSink for Log {
        fn data(&mut self, piece: &[u8], _at: usize) {
            self.1.extend_from_slice(piece);
        }
        fn data_end(&mut self) {
            self.0 += &format!("<{}>", String::from_utf8_lossy(&self.1));
            self.1.clear();
        }
        fn dispatch(&mut self) {
            self.0.push('.');
        }
        fn comment(&mut self) {
            self.0.push('#');
        }
    }

    fn split<'a>(slices: impl IntoIterator<Item = &'a [u8]>) -> String {
        let (mut splitter, mut log) = (LineSplitter::default(), Log::default());
        for slice in slices {
            splitter.feed(slice, &mut log);
        }
        splitter.finish(&mut log);
        log.0
    }

    crate::tests! {
        fn lines_and_fields() {
            for (text, expected) in [
                ("data: a\n\n", "<a>."),
                ("data:a\n\n", "<a>."),
                ("data:  a \n\n", "< a >."),
                ("data: a\ndata: b\n\n", "<a><b>."),
                ("data\n\n", "<>."),
                ("data:\n\n", "<>."),
                ("data: \n\n", "<>."),
                ("data: a:b: c\n\n", "<a:b: c>."),
                (": keep-alive\n\n:\n\n", "#.#."),
                ("event: x\ndata: a\nid: 7\nretry: 1\n\n", "<a>."),
                ("Data: a\ndatax: b\n data: c\nda: d\nverylongfieldname: e\nevent\n\n", "."),
                ("\u{feff}data: a\n\n\u{feff}data: b\n\n", "<a>.."),
                ("\u{feff}\n\u{feff}: x\n", "."),
                ("data: a", "<a>"),
                ("data: a\n", "<a>"),
                ("data", "<>"),
                ("dat", ""),
                ("\n\n", ".."),
                ("", ""),
            ] {
                for end in ["\n", "\r\n", "\r"] {
                    let text = text.replace('\n', end);
                    assert_eq!(every_cut(text.as_bytes(), split), expected, "{text:?}");
                }
            }
            assert_eq!(split([b"data: a\r\ndata: b\n\r\ndata: c\r\r".as_slice()]), "<a><b>.<c>.");
        }
    }
}
