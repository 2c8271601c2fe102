//! Operations on the table that every VM keeps.
//!
//! Every operation says what *is*, not what changed by how much: applying one twice, or on top of a later
//! checkpoint, gives the same table. They travel in [`frame`](crate::frame)s and stand in the roster's checkpoint.

use crate::block::BlockList;
use crate::endpoint::{EndpointId, EndpointRecord, Load};
use crate::signals::Signals;
use crate::stream::Position;
use crate::wire::{Hashes, Reader, WireError, Writer};

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
    /// Part of the compiled configuration; it counts once all parts are there.
    PolicyPart {
        /// Number of the policy: the parts of another one do not fit.
        revision: u64,
        /// Number of this part, from 0.
        part: u16,
        /// How many parts there are.
        parts: u16,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A session is at this endpoint, and in use.
    Session {
        /// Hash of the name of its requests' pool.
        pool: u64,
        /// Name of the plugin that keeps it there.
        plugin: &'a str,
        /// Hash of the session's ID.
        session: u64,
        /// Where.
        endpoint: EndpointId,
    },
    /// Slow signals of an endpoint.
    Signals {
        /// Whose.
        id: EndpointId,
        /// All of them.
        signals: Signals,
    },
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

    /// Appends them, with their count before them.
    pub fn write(&self, w: &mut Writer) {
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
            Self::PolicyPart { revision, part, parts, bytes } => {
                w.u8(13);
                w.u64(*revision);
                w.u16(*part);
                w.u16(*parts);
                w.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                w.bytes(bytes);
            }
            Self::Session { pool, plugin, session, endpoint } => {
                w.u8(15);
                w.u64(*pool);
                w.text(plugin);
                w.u64(*session);
                w.u64(endpoint.0);
            }
            Self::Signals { id, signals } => {
                w.u8(14);
                w.u64(id.0);
                signals.write(w);
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
            13 => {
                let (revision, part, parts) = (r.u64()?, r.u16()?, r.u16()?);
                let len = r.u32()? as usize;
                Self::PolicyPart { revision, part, parts, bytes: r.bytes(len)? }
            }
            15 => Self::Session {
                pool: r.u64()?,
                plugin: r.text()?,
                session: r.u64()?,
                endpoint: EndpointId(r.u64()?),
            },
            14 => Self::Signals { id: EndpointId(r.u64()?), signals: Signals::read(r)? },
            value => return Err(WireError::Unknown { at, value: value.into() }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;
    use crate::endpoint::sample;

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
                TableOp::PolicyPart { revision: 6, part: 1, parts: 3, bytes: b"part" },
                TableOp::Signals { id, signals: crate::signals::sample() },
                TableOp::Session { pool: 3, plugin: "s", session: 4, endpoint: id },
                TableOp::Distrust { stream: 8 },
                TableOp::Told { at_ms: 9 },
            ];
            let mut w = Writer::new();
            ops.iter().for_each(|op| op.write(&mut w));
            let bytes = w.into_bytes();
            let mut r = Reader::new(&bytes);
            for op in &ops {
                assert_eq!(TableOp::read(&mut r).as_ref(), Ok(op));
            }
            assert_eq!(r.finish(), Ok(()));
        }
    }
}
