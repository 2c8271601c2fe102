//! Delta frames: how the applier VM tells every other VM of an Envoy what changed.
//!
//! Envoy's shared data holds a ring of fixed keys, one [`Frame`] each, and one [`Head`]. The applier
//! writes the frame first and the head last; a VM that sees a newer head reads the frames that it
//! has not applied. Frames are at most [`FRAME_BYTES`] long, carry their sequence number and a
//! checksum, and every operation says what *is*, not what changed by how much: applying one twice,
//! or on top of a later checkpoint, gives the same table.

use crate::block::BlockList;
use crate::endpoint::{EndpointId, EndpointRecord, Load};
use crate::stream::Position;
use crate::wire::{Hashes, Reader, WireError, Writer, seal, unseal};

const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"WRF2");
const HEAD_MAGIC: u32 = u32::from_le_bytes(*b"WRH1");

/// Upper bound of a frame in Envoy's shared data: reading one costs about as much as its copy.
pub const FRAME_BYTES: usize = 16 * 1024;

/// Hashes that one operation may carry so that it fits a frame.
pub const HASHES_PER_OP: usize = 2000;

/// Blocks that one operation may carry so that it fits a frame.
pub const BLOCKS_PER_OP: usize = 1300;

/// Bytes of a model's record that one operation carries: records are longer than a frame.
pub const MODEL_PART_BYTES: usize = 12 * 1024;

/// Names one endpoint's share of the prefix table. A restarted, cleared or re-addressed endpoint
/// gets a fresh column, so voiding its entries is one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Column(pub u16);

impl Column {
    /// No column.
    pub const NONE: Self = Self(u16::MAX);
}

/// The columns of one endpoint, [`Column::NONE`] where it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    /// What it holds in its device's memory, by its events, or by our picks where there are no events.
    pub held: Column,
    /// What our picks will make it hold and no event has told yet. Only of precise endpoints.
    pub expected: Column,
    /// What it holds in any tier. Only of endpoints with a slower tier.
    pub any_tier: Column,
}

impl Columns {
    /// An endpoint that has but one column.
    #[must_use]
    pub fn only(held: Column) -> Self {
        Self { held, expected: Column::NONE, any_tier: Column::NONE }
    }

    /// Those that exist.
    pub fn iter(self) -> impl Iterator<Item = Column> {
        [self.held, self.expected, self.any_tier]
            .into_iter()
            .filter(|column| *column != Column::NONE)
    }
}

/// One change of the table that every VM keeps.
#[derive(Debug, Clone, PartialEq)]
pub enum TableOp<'a> {
    /// An endpoint exists; its entries hang on its columns.
    Endpoint {
        /// Its shares of the prefix table.
        columns: Columns,
        /// Sequence of the frame that gave it these columns: older entries there are not its own.
        since: u64,
        /// All that is known of it.
        record: EndpointRecord,
    },
    /// An endpoint is gone, and its column is void.
    Remove(EndpointId),
    /// The last scrape of an endpoint.
    Load {
        /// Whose.
        id: EndpointId,
        /// When the scrape was started, by Envoy's clock, in ms.
        at_ms: u64,
        /// What it said.
        load: Load,
    },
    /// These blocks are held (or believed to be) by the endpoint of this column.
    Insert {
        /// Where.
        column: Column,
        /// When they were last used, in units of 64 ms (wrapping).
        stamp: u32,
        /// Chain hashes, in prompt order.
        hashes: HashList<'a>,
    },
    /// These blocks are no longer held there.
    Evict {
        /// Where.
        column: Column,
        /// Chain hashes.
        hashes: HashList<'a>,
    },
    /// The engine of this column told that it holds these blocks.
    Store {
        /// Where.
        column: Column,
        /// In prompt order.
        blocks: BlockList<'a>,
    },
    /// Part of a model's record; it counts once all parts are there.
    ModelPart {
        /// Number of the record: the parts of another one do not fit.
        revision: u64,
        /// Number of this part, from 0.
        part: u16,
        /// How many parts there are.
        parts: u16,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A model is gone.
    RemoveModel(&'a str),
    /// What was expected of this byte stream's picks seldom came true: its model is approximate from now on.
    Distrust {
        /// The stream.
        stream: u64,
    },
    /// The oldest of the events that these operations tell of happened at this time, by the engine's
    /// clock, in ms since 1970.
    Told {
        /// When.
        at_ms: u64,
    },
    /// How far the agent's stream has been applied.
    Position {
        /// The stream's position.
        position: Position,
        /// When the agent last answered, by Envoy's clock, in ms.
        at_ms: u64,
    },
    /// How many bytes of prompt an endpoint's tokens stand for, learned from usage.
    BytesPerToken {
        /// Whose.
        id: EndpointId,
        /// Thousandths of a byte.
        milli: u32,
    },
}

/// Hashes to write (a slice at hand) or as read (still in the received buffer).
#[derive(Debug, Clone, Copy)]
pub enum HashList<'a> {
    /// At hand.
    Slice(&'a [u64]),
    /// In a received buffer.
    Wire(Hashes<'a>),
}

impl<'a> HashList<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Slice(slice) => slice.len(),
            Self::Wire(hashes) => hashes.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` for every hash, in order.
    pub fn for_each(&self, mut each: impl FnMut(u64)) {
        match self {
            Self::Slice(slice) => slice.iter().for_each(|hash| each(*hash)),
            Self::Wire(hashes) => hashes.iter().for_each(each),
        }
    }

    /// The hashes as a vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u64> {
        let mut all = Vec::with_capacity(self.len());
        self.for_each(|hash| all.push(hash));
        all
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Self::Slice(slice) => w.hashes(slice.iter().copied()),
            Self::Wire(hashes) => w.hashes(hashes.iter()),
        }
    }
}

impl PartialEq for HashList<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.to_vec() == other.to_vec()
    }
}

impl<'a> TableOp<'a> {
    /// Appends the operation.
    pub fn write(&self, w: &mut Writer) {
        match self {
            Self::Endpoint { columns, since, record } => {
                w.u8(1);
                w.u16(columns.held.0);
                w.u16(columns.expected.0);
                w.u16(columns.any_tier.0);
                w.u64(*since);
                record.write(w);
            }
            Self::Remove(id) => {
                w.u8(2);
                w.u64(id.0);
            }
            Self::Load { id, at_ms, load } => {
                w.u8(3);
                w.u64(id.0);
                w.u64(*at_ms);
                load.write(w);
            }
            Self::Insert { column, stamp, hashes } => {
                w.u8(4);
                w.u16(column.0);
                w.u32(*stamp);
                hashes.write(w);
            }
            Self::Evict { column, hashes } => {
                w.u8(5);
                w.u16(column.0);
                hashes.write(w);
            }
            Self::Position { position, at_ms } => {
                w.u8(6);
                w.u64(position.epoch);
                w.u64(position.seq);
                w.u64(*at_ms);
            }
            Self::BytesPerToken { id, milli } => {
                w.u8(7);
                w.u64(id.0);
                w.u32(*milli);
            }
            Self::Store { column, blocks } => {
                w.u8(8);
                w.u16(column.0);
                blocks.write(w);
            }
            Self::ModelPart { revision, part, parts, bytes } => {
                w.u8(9);
                w.u64(*revision);
                w.u16(*part);
                w.u16(*parts);
                w.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                w.bytes(bytes);
            }
            Self::RemoveModel(name) => {
                w.u8(10);
                w.text(name);
            }
            Self::Distrust { stream } => {
                w.u8(11);
                w.u64(*stream);
            }
            Self::Told { at_ms } => {
                w.u8(12);
                w.u64(*at_ms);
            }
        }
    }

    /// Reads the next operation. Both ends are the same module, so an unknown one is an error.
    pub fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let at = r.position();
        Ok(match r.u8()? {
            1 => Self::Endpoint {
                columns: Columns {
                    held: Column(r.u16()?),
                    expected: Column(r.u16()?),
                    any_tier: Column(r.u16()?),
                },
                since: r.u64()?,
                record: EndpointRecord::read(r)?,
            },
            2 => Self::Remove(EndpointId(r.u64()?)),
            3 => Self::Load { id: EndpointId(r.u64()?), at_ms: r.u64()?, load: Load::read(r)? },
            4 => Self::Insert {
                column: Column(r.u16()?),
                stamp: r.u32()?,
                hashes: HashList::Wire(r.hashes()?),
            },
            5 => Self::Evict { column: Column(r.u16()?), hashes: HashList::Wire(r.hashes()?) },
            6 => Self::Position {
                position: Position { epoch: r.u64()?, seq: r.u64()? },
                at_ms: r.u64()?,
            },
            7 => Self::BytesPerToken { id: EndpointId(r.u64()?), milli: r.u32()? },
            8 => Self::Store { column: Column(r.u16()?), blocks: BlockList::read(r)? },
            9 => {
                let (revision, part, parts) = (r.u64()?, r.u16()?, r.u16()?);
                let len = r.u32()? as usize;
                Self::ModelPart { revision, part, parts, bytes: r.bytes(len)? }
            }
            10 => Self::RemoveModel(r.text()?),
            11 => Self::Distrust { stream: r.u64()? },
            12 => Self::Told { at_ms: r.u64()? },
            value => return Err(WireError::Unknown { at, value: value.into() }),
        })
    }
}

/// Collects operations and cuts them into sealed frames.
#[derive(Debug, Default)]
pub struct FrameBuilder {
    ops: Writer,
    op: Writer,
    full: Vec<Vec<u8>>,
}

impl FrameBuilder {
    /// Adds an operation. One with more than [`HASHES_PER_OP`] hashes must be cut by the caller.
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
    use crate::block::Block;
    use crate::endpoint::sample;

    fn read_all(bytes: &[u8]) -> Vec<TableOp<'_>> {
        let mut frame = Frame::open(bytes).unwrap();
        let mut ops = Vec::new();
        while let Some(op) = frame.next_op().unwrap() {
            ops.push(op);
        }
        ops
    }

    crate::tests! {
        fn every_operation_comes_back_as_written() {
            let hashes = [1, u64::MAX, 3];
            let id = EndpointId(9);
            let ops = vec![
                TableOp::Endpoint {
                    columns: Columns { expected: Column(9), ..Columns::only(Column(3)) },
                    since: 8,
                    record: sample(1),
                },
                TableOp::Remove(id),
                TableOp::Load { id, at_ms: 5, load: Load::default() },
                TableOp::Insert { column: Column(1), stamp: 6, hashes: HashList::Slice(&hashes) },
                TableOp::Evict { column: Column(2), hashes: HashList::Slice(&hashes) },
                TableOp::Position { position: Position { epoch: 1, seq: 2 }, at_ms: 3 },
                TableOp::BytesPerToken { id, milli: 3900 },
                TableOp::Store { column: Column(4), blocks: BlockList::Slice(&[Block { hash: 5, tokens: 30 }]) },
                TableOp::ModelPart { revision: 6, part: 1, parts: 3, bytes: b"part" },
                TableOp::RemoveModel("tiny"),
                TableOp::Distrust { stream: 8 },
                TableOp::Told { at_ms: 9 },
            ];
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
