//! Bounds-checked little-endian reading and writing.
//!
//! Written by hand and not with serde: the filter reads frames on the request path, where an
//! insert is a run of plain `u64`s. Every length that comes from outside is checked against
//! what is left before anything is allocated.

use core::fmt;

/// Why a value could not be read. The reader's position is the byte offset of the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// The buffer ends before the value does.
    Truncated {
        /// Where the value starts.
        at: usize,
    },
    /// A tag, magic number or version that this build does not know.
    Unknown {
        /// Where the value stands.
        at: usize,
        /// What was read there.
        value: u32,
    },
    /// A string that is not UTF-8.
    NotUtf8 {
        /// Where the string starts.
        at: usize,
    },
    /// The checksum at the end does not match the bytes before it.
    Checksum,
    /// Bytes are left over after the last value.
    Trailing {
        /// Where the first of them stands.
        at: usize,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { at } => write!(f, "truncated at byte {at}"),
            Self::Unknown { at, value } => write!(f, "unknown value {value} at byte {at}"),
            Self::NotUtf8 { at } => write!(f, "string at byte {at} is not UTF-8"),
            Self::Checksum => write!(f, "checksum does not match"),
            Self::Trailing { at } => write!(f, "bytes left over from byte {at}"),
        }
    }
}

impl core::error::Error for WireError {}

/// Reads values off the front of a byte slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, at: 0 }
    }

    /// Byte offset of the next value.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes the next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) =
            self.rest.split_at_checked(len).ok_or(WireError::Truncated { at: self.at })?;
        self.rest = tail;
        self.at = self.at.saturating_add(len);
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, tail) =
            self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated { at: self.at })?;
        self.rest = tail;
        self.at = self.at.saturating_add(N);
        Ok(*head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, WireError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A float of four bytes; NaN stands for "not known".
    pub fn optional_f32(&mut self) -> Result<Option<f32>, WireError> {
        let value = f32::from_le_bytes(self.array()?);
        Ok(value.is_finite().then_some(value))
    }

    /// A string with its length in two bytes before it.
    pub fn string(&mut self) -> Result<&'a str, WireError> {
        let at = self.at;
        let len = usize::from(self.u16()?);
        core::str::from_utf8(self.bytes(len)?).map_err(|_| WireError::NotUtf8 { at })
    }

    /// A long text with its length in four bytes before it.
    pub fn text(&mut self) -> Result<&'a str, WireError> {
        let at = self.at;
        let len = self.u32()? as usize;
        core::str::from_utf8(self.bytes(len)?).map_err(|_| WireError::NotUtf8 { at })
    }

    /// A run of `u64`s with its count in four bytes before it. Nothing is copied.
    pub fn hashes(&mut self) -> Result<Hashes<'a>, WireError> {
        let at = self.at;
        let count = self.u32()? as usize;
        let len = count.checked_mul(8).ok_or(WireError::Truncated { at })?;
        Ok(Hashes { bytes: self.bytes(len)? })
    }

    /// Fails unless everything was read.
    pub fn finish(&self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Trailing { at: self.at }) }
    }
}

/// A run of block hashes inside a received buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hashes<'a> {
    bytes: &'a [u8],
}

impl<'a> Hashes<'a> {
    /// How many hashes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / 8
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The hashes, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + use<'a> {
        let (chunks, _) = self.bytes.as_chunks::<8>();
        chunks.iter().map(|chunk| u64::from_le_bytes(*chunk))
    }
}

/// Appends values to a buffer.
#[derive(Debug, Default, Clone)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for so many bytes more, and no more than that.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes);
    }

    /// How many bytes were written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What was written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives the buffer away.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Forgets what was written and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// A float of four bytes; `None` is written as NaN.
    pub fn optional_f32(&mut self, value: Option<f32>) {
        self.bytes(&value.unwrap_or(f32::NAN).to_le_bytes());
    }

    /// A string with its length before it, cut at a character boundary if it exceeds 65,535 bytes.
    pub fn string(&mut self, value: &str) {
        let mut end = value.len().min(usize::from(u16::MAX));
        while !value.is_char_boundary(end) {
            end = end.saturating_sub(1);
        }
        let kept = value.as_bytes().get(..end).unwrap_or_default();
        self.u16(u16::try_from(kept.len()).unwrap_or(u16::MAX));
        self.bytes(kept);
    }

    /// A long text with its length before it.
    pub fn text(&mut self, value: &str) {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.bytes(value.as_bytes());
    }

    /// A run of hashes with its count before it.
    pub fn hashes(&mut self, hashes: impl ExactSizeIterator<Item = u64>) {
        self.u32(u32::try_from(hashes.len()).unwrap_or(u32::MAX));
        for hash in hashes {
            self.u64(hash);
        }
    }
}

/// XXH3-64 of `bytes`: the checksum at the end of every page, frame and chunk.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// Splits a sealed buffer into its content, after checking the checksum in its last 8 bytes.
pub fn unseal(bytes: &[u8]) -> Result<&[u8], WireError> {
    let (content, sum) =
        bytes.split_last_chunk::<8>().ok_or(WireError::Truncated { at: bytes.len() })?;
    if u64::from_le_bytes(*sum) == checksum(content) {
        Ok(content)
    } else {
        Err(WireError::Checksum)
    }
}

/// Appends the checksum of everything written so far; [`unseal`] is the opposite.
#[must_use]
pub fn seal(mut writer: Writer) -> Vec<u8> {
    let sum = checksum(writer.as_bytes());
    writer.u64(sum);
    writer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn values_come_back_as_written() {
            let mut w = Writer::new();
            w.u8(7);
            w.u16(0xBEEF);
            w.u32(0xDEAD_BEEF);
            w.u64(u64::MAX - 1);
            w.optional_f32(Some(0.5));
            w.optional_f32(None);
            w.string("prefix ✓");
            w.hashes([1u64, u64::MAX].into_iter());
            let bytes = w.into_bytes();
            let mut r = Reader::new(&bytes);
            assert_eq!(r.u8(), Ok(7));
            assert_eq!(r.u16(), Ok(0xBEEF));
            assert_eq!(r.u32(), Ok(0xDEAD_BEEF));
            assert_eq!(r.u64(), Ok(u64::MAX - 1));
            assert_eq!(r.optional_f32(), Ok(Some(0.5)));
            assert_eq!(r.optional_f32(), Ok(None));
            assert_eq!(r.string(), Ok("prefix ✓"));
            assert_eq!(r.hashes().unwrap().iter().collect::<Vec<_>>(), [1, u64::MAX]);
            assert_eq!(r.finish(), Ok(()));
        }

        fn a_hash_count_that_cannot_be_there_is_refused_before_it_is_believed() {
            let mut w = Writer::new();
            w.u32(u32::MAX);
            w.u64(1);
            let bytes = w.into_bytes();
            assert!(matches!(Reader::new(&bytes).hashes(), Err(WireError::Truncated { .. })));
        }

        fn a_long_string_is_cut_between_characters() {
            let mut w = Writer::new();
            w.string(&"é".repeat(40_000));
            let bytes = w.into_bytes();
            assert_eq!(Reader::new(&bytes).string().unwrap().len(), 65_534);
        }

        fn one_changed_byte_breaks_the_seal() {
            let mut w = Writer::new();
            w.string("some content");
            let sealed = seal(w);
            assert!(unseal(&sealed).is_ok());
            for at in 0..sealed.len() {
                let mut bad = sealed.clone();
                bad[at] ^= 1;
                assert_eq!(unseal(&bad), Err(WireError::Checksum), "byte {at}");
            }
        }
    }
}
