//! The agent's stream: snapshot pages, then deltas, over long-polled HTTP.
//!
//! `GET /v1/stream?epoch=E&seq=S&page=P&wait_ms=W` answers with one [`Page`]:
//! - without `epoch` and `seq`, with an epoch that is not the agent's, or with a sequence that its
//!   log no longer reaches: page 0 of a fresh snapshot (`pages` says how many there are);
//! - with `page` > 0: that page of the snapshot taken at (`epoch`, `seq`), or page 0 of a new one
//!   if it is gone;
//! - else every operation after `seq`, at once if there is one, or after at most `wait_ms`
//!   (then with no operations and `to_seq == seq`).
//!
//! A page is complete in itself and carries its own checksum, so any number of Envoys can read
//! at their own pace and resume. An operation's tag and length come first: a reader skips
//! operations that it does not know.

use crate::block::{Block, BlockList, Tier};
use crate::endpoint::{EndpointId, EndpointRecord, Load};
use crate::model::ModelRecord;
use crate::signals::Signals;
use crate::wire::{Reader, WireError, Writer, seal, unseal};
use std::sync::Arc;

const MAGIC: u32 = u32::from_le_bytes(*b"WRS2");
const MAX_OP_BYTES: usize = 1 << 20;

/// A page never grows much beyond this: larger bodies cost Envoy's main thread more than they save.
pub const PAGE_BYTES: usize = 1 << 20;

/// Where a reader stands in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// One run of the agent. A new epoch starts with a snapshot.
    pub epoch: u64,
    /// Number of the last operation that was applied.
    pub seq: u64,
}

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Page `page` of `pages` of everything as of the page's position.
    Snapshot {
        /// Number of this page, from 0.
        page: u32,
        /// How many pages the snapshot has.
        pages: u32,
    },
    /// What happened after `from_seq`, up to the page's position.
    Delta {
        /// The reader must stand exactly here.
        from_seq: u64,
    },
}

/// One thing that the agent tells.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentOp {
    /// An endpoint exists, with all its fields.
    Endpoint(EndpointRecord),
    /// An endpoint is gone.
    Remove(EndpointId),
    /// A scrape succeeded.
    Load {
        /// Whose.
        id: EndpointId,
        /// Milliseconds between the start of the scrape and the writing of this page.
        age_ms: u32,
        /// What it said.
        load: Load,
    },
    /// A precise endpoint holds these blocks.
    Store {
        /// Whose.
        id: EndpointId,
        /// In which tier.
        tier: Tier,
        /// When its engine told, by the engine's clock, in ms since 1970; 0 = long ago.
        at_ms: u64,
        /// In prompt order.
        blocks: Arc<[Block]>,
    },
    /// It holds these no longer.
    Evict {
        /// Whose.
        id: EndpointId,
        /// In which tier.
        tier: Tier,
        /// When its engine told; 0 = long ago.
        at_ms: u64,
        /// Chain hashes.
        hashes: Arc<[u64]>,
    },
    /// A model exists, with all its fields.
    Model(Arc<ModelRecord>),
    /// A model is gone.
    RemoveModel(String),
    /// Slow signals of an endpoint.
    Signals {
        /// Whose.
        id: EndpointId,
        /// All of them.
        signals: Arc<Signals>,
    },
    /// The compiled configuration: [`Policy`](crate::policy::Policy) as JSON.
    Policy(Arc<[u8]>),
}

/// One answer of the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Position after this page (a snapshot's: after its last page).
    pub position: Position,
    /// Snapshot or delta.
    pub kind: PageKind,
    /// The operations, in order.
    pub ops: Vec<AgentOp>,
}

impl AgentOp {
    /// Upper bound of the encoded size in bytes, for cutting pages.
    #[must_use]
    pub fn size_hint(&self) -> usize {
        // The large ones without writing them.
        match self {
            Self::Store { blocks, .. } => {
                return blocks.len().saturating_mul(12).saturating_add(32);
            }
            Self::Evict { hashes, .. } => return hashes.len().saturating_mul(8).saturating_add(32),
            Self::Policy(json) => return json.len().saturating_add(32),
            _ => {}
        }
        let mut w = Writer::new();
        self.write(&mut w);
        w.len()
    }

    fn write(&self, w: &mut Writer) {
        let mut body = Writer::new();
        let tag = match self {
            Self::Endpoint(record) => {
                record.write(&mut body);
                1
            }
            Self::Remove(id) => {
                body.u64(id.0);
                2
            }
            Self::Load { id, age_ms, load } => {
                body.u64(id.0);
                body.u32(*age_ms);
                load.write(&mut body);
                3
            }
            Self::Store { id, tier, at_ms, blocks } => {
                body.u64(id.0);
                body.u8(tier.code());
                body.u64(*at_ms);
                BlockList::Slice(blocks).write(&mut body);
                4
            }
            Self::Evict { id, tier, at_ms, hashes } => {
                body.u64(id.0);
                body.u8(tier.code());
                body.u64(*at_ms);
                body.hashes(hashes.iter().copied());
                5
            }
            Self::Model(record) => {
                record.write(&mut body);
                6
            }
            Self::RemoveModel(name) => {
                body.text(name);
                7
            }
            Self::Signals { id, signals } => {
                body.u64(id.0);
                signals.write(&mut body);
                8
            }
            Self::Policy(json) => {
                body.bytes(json);
                9
            }
        };
        w.u8(tag);
        w.u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
        w.bytes(body.as_bytes());
    }

    fn read(r: &mut Reader<'_>) -> Result<Option<Self>, WireError> {
        let tag = r.u8()?;
        let at = r.position();
        let len = r.u32()? as usize;
        if len > MAX_OP_BYTES {
            return Err(WireError::Truncated { at });
        }
        let mut body = Reader::new(r.bytes(len)?);
        let op = match tag {
            1 => Self::Endpoint(EndpointRecord::read(&mut body)?),
            2 => Self::Remove(EndpointId(body.u64()?)),
            3 => Self::Load {
                id: EndpointId(body.u64()?),
                age_ms: body.u32()?,
                load: Load::read(&mut body)?,
            },
            4 => Self::Store {
                id: EndpointId(body.u64()?),
                tier: Tier::read(&mut body)?,
                at_ms: body.u64()?,
                blocks: BlockList::read(&mut body)?.to_vec().into(),
            },
            5 => Self::Evict {
                id: EndpointId(body.u64()?),
                tier: Tier::read(&mut body)?,
                at_ms: body.u64()?,
                hashes: body.hashes()?.iter().collect(),
            },
            6 => Self::Model(Arc::new(ModelRecord::read(&mut body)?)),
            7 => Self::RemoveModel(body.text()?.to_owned()),
            8 => Self::Signals {
                id: EndpointId(body.u64()?),
                signals: Arc::new(Signals::read(&mut body)?),
            },
            9 => Self::Policy(body.bytes(len)?.into()),
            _ => return Ok(None),
        };
        Ok(Some(op))
    }
}

impl Page {
    /// The page as bytes, sealed with a checksum.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u32(MAGIC);
        w.u64(self.position.epoch);
        w.u64(self.position.seq);
        match self.kind {
            PageKind::Snapshot { page, pages } => {
                w.u8(0);
                w.u32(page);
                w.u32(pages);
            }
            PageKind::Delta { from_seq } => {
                w.u8(1);
                w.u64(from_seq);
            }
        }
        w.u32(u32::try_from(self.ops.len()).unwrap_or(u32::MAX));
        for op in &self.ops {
            op.write(&mut w);
        }
        seal(w)
    }

    /// Reads a page.
    ///
    /// # Errors
    /// If it is cut, changed, of another version, or says what it cannot mean.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(unseal(bytes)?);
        let value = r.u32()?;
        if value != MAGIC {
            return Err(WireError::Unknown { at: 0, value });
        }
        let position = Position { epoch: r.u64()?, seq: r.u64()? };
        let at = r.position();
        let kind = match r.u8()? {
            0 => PageKind::Snapshot { page: r.u32()?, pages: r.u32()? },
            1 => PageKind::Delta { from_seq: r.u64()? },
            value => return Err(WireError::Unknown { at, value: value.into() }),
        };
        let count = r.u32()?;
        let mut ops = Vec::new();
        for _ in 0..count {
            if let Some(op) = AgentOp::read(&mut r)? {
                ops.push(op);
            }
        }
        r.finish()?;
        Ok(Self { position, kind, ops })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::sample;

    fn page() -> Page {
        Page {
            position: Position { epoch: 77, seq: 12 },
            kind: PageKind::Delta { from_seq: 9 },
            ops: vec![
                AgentOp::Endpoint(sample(1)),
                AgentOp::Remove(EndpointId(5)),
                AgentOp::Load {
                    id: EndpointId(6),
                    age_ms: 40,
                    load: Load { waiting: Some(3.0), running: None, kv_usage: Some(0.9) },
                },
                AgentOp::Store {
                    id: EndpointId(7),
                    tier: Tier::Any,
                    at_ms: 8,
                    blocks: [Block { hash: 1, tokens: 30 }, Block { hash: 2, tokens: 61 }].into(),
                },
                AgentOp::Evict {
                    id: EndpointId(7),
                    tier: Tier::Device,
                    at_ms: 9,
                    hashes: [1].into(),
                },
                AgentOp::Model(Arc::new(crate::model::sample())),
                AgentOp::RemoveModel("tiny".into()),
                AgentOp::Signals { id: EndpointId(7), signals: Arc::new(crate::signals::sample()) },
                AgentOp::Policy(b"{}".as_slice().into()),
            ],
        }
    }

    crate::tests! {
        fn a_page_comes_back_as_written() {
            let snapshot = Page { kind: PageKind::Snapshot { page: 2, pages: 3 }, ..page() };
            for page in [page(), snapshot] {
                assert_eq!(Page::decode(&page.encode()), Ok(page));
            }
        }

        fn a_cut_or_changed_page_is_refused() {
            let bytes = page().encode();
            for len in (0..bytes.len()).step_by(7) {
                assert!(Page::decode(&bytes[..len]).is_err(), "cut at {len}");
            }
        }

        fn an_operation_of_a_later_version_is_skipped() {
            let mut w = Writer::new();
            w.u32(MAGIC);
            w.u64(1);
            w.u64(2);
            w.u8(1);
            w.u64(0);
            w.u32(2);
            w.u8(200);
            w.u32(3);
            w.bytes(b"new");
            AgentOp::Remove(EndpointId(9)).write(&mut w);
            assert_eq!(Page::decode(&seal(w)).unwrap().ops, [AgentOp::Remove(EndpointId(9))]);
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    proptest::proptest! {
        #[test]
        fn any_sealed_bytes_are_read_or_refused(bytes in proptest::collection::vec(0u8.., 0..200)) {
            let mut w = Writer::new();
            w.u32(MAGIC);
            w.bytes(&bytes);
            let _ = Page::decode(&seal(w));
        }
    }
}
