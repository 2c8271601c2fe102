//! Checkpoint chunks: what a VM that fell behind, or was reloaded, rebuilds its table from.
//!
//! The prefix table is cut into [`SEGMENTS`] by the top bits of the hash; each segment is one
//! chunk, written on its own at its own sequence number. The set of chunks is never of one instant
//! and need not be: operations say what is, so applying every frame after [`Head::floor`] on top
//! of any chunk written at or after the floor gives the table as of the head. One more
//! chunk, the roster, holds the endpoints and their loads as operations.
//!
//! [`Head::floor`]: crate::frame::Head::floor

use crate::table_op::{Column, TableOp};
use crate::wire::{Reader, WireError, Writer, seal, unseal};

const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"WRC2");
const ROSTER_MAGIC: u32 = u32::from_le_bytes(*b"WRR1");

/// Segments of the prefix table. At the design's largest table (1.3 M blocks) a chunk is about 25 KB.
pub const SEGMENTS: usize = 1024;

/// The segment that a hash belongs to.
#[must_use]
pub fn segment_of(hash: u64) -> usize {
    // The top ten bits: always below SEGMENTS.
    (hash >> 54) as usize
}

/// One block and the columns that hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentEntry {
    /// Chain hash.
    pub hash: u64,
    /// When it was last used, in units of 64 ms (wrapping).
    pub stamp: u32,
    /// Tokens that the chain up to it stands for; 0 = no event said.
    pub tokens: u32,
    /// Who holds it.
    pub columns: Vec<Column>,
}

/// Writes one segment's chunk.
#[derive(Debug)]
pub struct SegmentWriter {
    writer: Writer,
}

impl SegmentWriter {
    /// Starts a chunk that is true as of frame `seq`.
    #[must_use]
    pub fn new(seq: u64) -> Self {
        let mut writer = Writer::new();
        writer.u32(SEGMENT_MAGIC);
        writer.u64(seq);
        Self { writer }
    }

    /// Adds an entry.
    pub fn push(
        &mut self,
        hash: u64,
        stamp: u32,
        tokens: u32,
        columns: impl ExactSizeIterator<Item = Column>,
    ) {
        self.writer.u64(hash);
        self.writer.u32(stamp);
        self.writer.u32(tokens);
        self.writer.u16(u16::try_from(columns.len()).unwrap_or(u16::MAX));
        for column in columns.take(usize::from(u16::MAX)) {
            self.writer.u16(column.0);
        }
    }

    /// The sealed chunk.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        seal(self.writer)
    }
}

/// Reads a segment's chunk.
#[derive(Debug)]
pub struct SegmentReader<'a> {
    /// The frame as of which the chunk is true.
    pub seq: u64,
    reader: Reader<'a>,
}

impl<'a> SegmentReader<'a> {
    /// Checks the seal and reads the header.
    ///
    /// # Errors
    /// If the chunk is cut, changed or of another version.
    pub fn open(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(unseal(bytes)?);
        let value = reader.u32()?;
        if value != SEGMENT_MAGIC {
            return Err(WireError::Unknown { at: 0, value });
        }
        Ok(Self { seq: reader.u64()?, reader })
    }

    /// The next entry, `None` after the last.
    pub fn next_entry(&mut self) -> Result<Option<SegmentEntry>, WireError> {
        if self.reader.remaining() == 0 {
            return Ok(None);
        }
        let hash = self.reader.u64()?;
        let stamp = self.reader.u32()?;
        let tokens = self.reader.u32()?;
        let count = self.reader.u16()?;
        let mut columns = Vec::new();
        for _ in 0..count {
            columns.push(Column(self.reader.u16()?));
        }
        Ok(Some(SegmentEntry { hash, stamp, tokens, columns }))
    }
}

/// Writes the roster chunk, true as of frame `seq`, of the operations that `tell` passes on.
#[must_use]
pub fn encode_roster(seq: u64, tell: impl FnOnce(&mut dyn FnMut(&TableOp<'_>))) -> Vec<u8> {
    let mut w = Writer::new();
    w.u32(ROSTER_MAGIC);
    w.u64(seq);
    tell(&mut |op| op.write(&mut w));
    seal(w)
}

/// Reads the roster chunk: its sequence number and its operations.
///
/// # Errors
/// If the chunk is cut, changed or of another version.
pub fn decode_roster(bytes: &[u8]) -> Result<(u64, Vec<TableOp<'_>>), WireError> {
    let mut r = Reader::new(unseal(bytes)?);
    let value = r.u32()?;
    if value != ROSTER_MAGIC {
        return Err(WireError::Unknown { at: 0, value });
    }
    let seq = r.u64()?;
    let mut ops = Vec::new();
    while r.remaining() > 0 {
        ops.push(TableOp::read(&mut r)?);
    }
    Ok((seq, ops))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{EndpointId, sample};
    use crate::table_op::Columns;

    crate::tests! {
        fn a_segment_comes_back_as_written() {
            let entries = [
                SegmentEntry { hash: 1, stamp: 2, tokens: 0, columns: vec![Column(3)] },
                SegmentEntry { hash: u64::MAX, stamp: 0, tokens: 40, columns: vec![Column(0), Column(511)] },
            ];
            let mut w = SegmentWriter::new(9);
            for e in &entries {
                w.push(e.hash, e.stamp, e.tokens, e.columns.iter().copied());
            }
            let bytes = w.finish();
            let mut r = SegmentReader::open(&bytes).unwrap();
            assert_eq!(r.seq, 9);
            for e in entries {
                assert_eq!(r.next_entry(), Ok(Some(e)));
            }
            assert_eq!(r.next_entry(), Ok(None));
        }

        fn a_roster_comes_back_as_written() {
            let ops = [
                TableOp::Endpoint { columns: Columns::only(Column(1)), since: 2, record: sample(2) },
                TableOp::Remove(EndpointId(3)),
            ];
            let bytes = encode_roster(5, |each| ops.iter().for_each(each));
            assert_eq!(decode_roster(&bytes), Ok((5, ops.to_vec())));
        }

        fn a_cut_chunk_is_refused() {
            let bytes = encode_roster(5, |each| each(&TableOp::Remove(EndpointId(3))));
            for len in 0..bytes.len() {
                assert!(decode_roster(&bytes[..len]).is_err());
                assert!(SegmentReader::open(&bytes[..len]).is_err());
            }
        }

        fn every_hash_has_a_segment() {
            assert_eq!(segment_of(0), 0);
            assert_eq!(segment_of(u64::MAX), SEGMENTS - 1);
        }
    }
}
