//! Delta frames: how the applier VM tells every other VM of an Envoy what changed.
//!
//! Envoy's shared data holds a ring of fixed keys, one [`Frame`] each, and one [`Head`]. The applier
//! writes the frame first and the head last; a VM that sees a newer head reads the frames that it
//! has not applied. Frames are at most [`FRAME_BYTES`] long, carry their sequence number and a
//! checksum; what they hold are [`TableOp`]s.

use crate::table_op::TableOp;
use crate::wire::{Reader, WireError, Writer, seal, unseal};

const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"WRF2");
const HEAD_MAGIC: u32 = u32::from_le_bytes(*b"WRH1");

/// Upper bound of a frame in Envoy's shared data: reading one costs about as much as its copy.
pub const FRAME_BYTES: usize = 16 * 1024;

/// Collects operations and cuts them into sealed frames.
#[derive(Debug, Default)]
pub struct FrameBuilder {
    ops: Writer,
    op: Writer,
    full: Vec<Vec<u8>>,
}

impl FrameBuilder {
    /// Adds an operation. One with more than [`HASHES_PER_OP`](crate::table_op::HASHES_PER_OP) hashes must be cut by the caller.
    pub fn push(&mut self, op: &TableOp<'_>) {
        self.op.clear();
        op.write(&mut self.op);
        let overhead = 4 + 8 + 8 + 8;
        if !self.ops.is_empty()
            && self.ops.len().saturating_add(self.op.len()).saturating_add(overhead) > FRAME_BYTES
        {
            self.cut();
        }
        self.ops.bytes(self.op.as_bytes());
    }

    /// Whether nothing was added since the last [`Self::take`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.full.is_empty() && self.ops.is_empty()
    }

    fn cut(&mut self) {
        let bytes = self.ops.as_bytes().to_vec();
        self.ops.clear();
        self.full.push(bytes);
    }

    /// The bodies of the frames collected so far, for [`seal_frame`].
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        if !self.ops.is_empty() {
            self.cut();
        }
        core::mem::take(&mut self.full)
    }
}

/// A frame as it stands in the ring: `body` is what [`FrameBuilder::take`] gave.
#[must_use]
pub fn seal_frame(seq: u64, writer: u64, body: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    w.u32(FRAME_MAGIC);
    w.u64(seq);
    w.u64(writer);
    w.bytes(body);
    seal(w)
}

/// A frame read from the ring.
#[derive(Debug, Clone)]
pub struct Frame<'a> {
    /// Its number; the ring's slot is `seq % slots`.
    pub seq: u64,
    /// Incarnation of the VM that wrote it.
    pub writer: u64,
    ops: Reader<'a>,
}

impl<'a> Frame<'a> {
    /// Checks the seal and reads the header.
    ///
    /// # Errors
    /// If the frame is cut, changed or of another version.
    pub fn open(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(unseal(bytes)?);
        let value = r.u32()?;
        if value != FRAME_MAGIC {
            return Err(WireError::Unknown { at: 0, value });
        }
        Ok(Self { seq: r.u64()?, writer: r.u64()?, ops: r })
    }

    /// The next operation, `None` after the last.
    pub fn next_op(&mut self) -> Result<Option<TableOp<'a>>, WireError> {
        if self.ops.remaining() == 0 { Ok(None) } else { TableOp::read(&mut self.ops).map(Some) }
    }
}

/// The one key that every request reads first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// Number of the newest frame; 0 = none yet.
    pub seq: u64,
    /// Incarnation of the VM that wrote it.
    pub writer: u64,
    /// Checkpoints together with all frames after this one give the whole table.
    pub floor: u64,
}

impl Head {
    /// The head as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u32(HEAD_MAGIC);
        w.u64(self.seq);
        w.u64(self.writer);
        w.u64(self.floor);
        w.into_bytes()
    }

    /// Reads a head.
    ///
    /// # Errors
    /// If it is cut or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes);
        let value = r.u32()?;
        if value != HEAD_MAGIC {
            return Err(WireError::Unknown { at: 0, value });
        }
        let head = Self { seq: r.u64()?, writer: r.u64()?, floor: r.u64()? };
        r.finish()?;
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Block, BlockList};
    use crate::endpoint::EndpointId;
    use crate::table_op::{BLOCKS_PER_OP, Column, HASHES_PER_OP, HashList, MODEL_PART_BYTES};

    fn read_all(bytes: &[u8]) -> Vec<TableOp<'_>> {
        let mut frame = Frame::open(bytes).unwrap();
        let mut ops = Vec::new();
        while let Some(op) = frame.next_op().unwrap() {
            ops.push(op);
        }
        ops
    }

    crate::tests! {
        fn a_frame_comes_back_as_written() {
            let ops = [TableOp::Remove(EndpointId(9)), TableOp::Told { at_ms: 9 }];
            let mut builder = FrameBuilder::default();
            ops.iter().for_each(|op| builder.push(op));
            let bodies = builder.take();
            assert_eq!(bodies.len(), 1);
            assert!(builder.is_empty());
            let sealed = seal_frame(42, 7, &bodies[0]);
            let frame = Frame::open(&sealed).unwrap();
            assert_eq!((frame.seq, frame.writer), (42, 7));
            assert_eq!(read_all(&sealed), ops);
        }

        fn frames_stay_below_their_bound() {
            let hashes: Vec<u64> = (0..HASHES_PER_OP as u64).collect();
            let blocks = [Block { hash: 1, tokens: 2 }; BLOCKS_PER_OP];
            let bytes = [0; MODEL_PART_BYTES];
            let mut builder = FrameBuilder::default();
            for column in 0..20 {
                builder.push(&TableOp::Insert { column: Column(column), stamp: 0, hashes: HashList::Slice(&hashes) });
                builder.push(&TableOp::Remove(EndpointId(column.into())));
                builder.push(&TableOp::Store { column: Column(column), blocks: BlockList::Slice(&blocks) });
                builder.push(&TableOp::ModelPart { revision: 1, part: 0, parts: 1, bytes: &bytes });
            }
            let bodies = builder.take();
            let sealed: Vec<_> = bodies.iter().map(|body| seal_frame(1, 1, body)).collect();
            assert!(sealed.iter().all(|frame| frame.len() <= FRAME_BYTES));
            assert_eq!(sealed.iter().map(|frame| read_all(frame).len()).sum::<usize>(), 80);
        }

        fn a_head_comes_back_as_written() {
            let head = Head { seq: 1, writer: 2, floor: 3 };
            assert_eq!(Head::decode(&head.encode()), Ok(head));
            assert!(Head::decode(b"").is_err());
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    proptest::proptest! {
        #[test]
        fn any_sealed_bytes_are_read_or_refused(bytes in proptest::collection::vec(0u8.., 0..200)) {
            let sealed = seal_frame(1, 1, &bytes);
            let mut frame = Frame::open(&sealed).unwrap();
            while let Ok(Some(_)) = frame.next_op() {}
        }
    }
}
