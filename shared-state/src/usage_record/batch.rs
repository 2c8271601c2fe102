//! Records under way: `POST /v1/records` with a batch of them, 200 with the batch's number once they
//! are stored.
//!
//! A batch is `WRU1`, the sender's incarnation, the batch's number, the count of records, the records,
//! and a checksum over all of that. A record is a run of LEB128 numbers and short texts, a fourth of
//! what it takes as JSON. A format that changes gets another magic number.

use super::{EndCause, FlowOutcome, UsageRecord};
use crate::wire::{Reader, WireError, Writer, seal, unseal};
use core::fmt;

const MAGIC: u32 = u32::from_le_bytes(*b"WRU1");
/// Magic number, incarnation, number, count, checksum.
const FRAME_BYTES: usize = 4 + 8 + 8 + 4 + 8;

/// Bytes of a batch at most.
pub const MAX_BATCH_BYTES: usize = 1 << 20;
/// Records of a batch at most.
pub const MAX_BATCH_RECORDS: usize = 4096;
/// Bytes of a text in a record at most; a longer one is cut. Clients choose some of them.
pub const MAX_TEXT_BYTES: usize = 256;

const EXACT: u8 = 1;
const STREAMED: u8 = 2;
const HAS_TTFT: u8 = 4;
/// The fairness ID is the tenant, as it mostly is.
const SAME_FAIRNESS: u8 = 8;
/// The engine's model is the client's.
const SAME_TARGET: u8 = 16;

/// Why a batch cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchError {
    /// More than [`MAX_BATCH_BYTES`].
    TooLarge {
        /// How many there are.
        bytes: usize,
    },
    /// More than [`MAX_BATCH_RECORDS`].
    TooMany {
        /// How many it says there are.
        records: usize,
    },
    /// The bytes are no batch of this version.
    Wire(WireError),
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes } => {
                write!(f, "a batch of {bytes} bytes; send {MAX_BATCH_BYTES} at most")
            }
            Self::TooMany { records } => {
                write!(f, "a batch of {records} records; send {MAX_BATCH_RECORDS} at most")
            }
            Self::Wire(error) => write!(
                f,
                "not a batch of usage records of this version ({error}); run filter and agent of the same release"
            ),
        }
    }
}

impl core::error::Error for BatchError {}

impl From<WireError> for BatchError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

/// Who sends a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHead {
    /// Incarnation of the VM that sends.
    pub incarnation: u64,
    /// Number of the batch among those of that VM.
    pub seq: u64,
}

/// A batch as received.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Who sent it.
    pub head: BatchHead,
    /// In the order in which they were written.
    pub records: Vec<UsageRecord>,
}

impl Batch {
    /// Reads a batch.
    ///
    /// # Errors
    /// If it exceeds a bound, was damaged, or is of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, BatchError> {
        if bytes.len() > MAX_BATCH_BYTES {
            return Err(BatchError::TooLarge { bytes: bytes.len() });
        }
        let mut r = Reader::new(unseal(bytes)?);
        let at = r.position();
        let value = r.u32()?;
        if value != MAGIC {
            return Err(WireError::Unknown { at, value }.into());
        }
        let head = BatchHead { incarnation: r.u64()?, seq: r.u64()? };
        let count = r.u32()? as usize;
        if count > MAX_BATCH_RECORDS {
            return Err(BatchError::TooMany { records: count });
        }
        let records = (0..count).map(|_| read_record(&mut r)).collect::<Result<_, _>>()?;
        r.finish()?;
        Ok(Self { head, records })
    }
}

/// Collects encoded records into a batch, as long as they fit.
#[derive(Debug)]
pub struct BatchWriter {
    head: BatchHead,
    count: u32,
    records: Writer,
}

impl BatchWriter {
    /// An empty batch.
    #[must_use]
    pub fn new(head: BatchHead) -> Self {
        Self { head, count: 0, records: Writer::new() }
    }

    /// Adds a record as [`UsageRecord::encode`] wrote it; false, and nothing added, if the batch is full.
    pub fn push(&mut self, record: &[u8]) -> bool {
        let bytes = FRAME_BYTES.saturating_add(self.records.len()).saturating_add(record.len());
        if bytes > MAX_BATCH_BYTES || self.len() >= MAX_BATCH_RECORDS {
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.records.bytes(record);
        true
    }

    /// How many records it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The batch as it is sent.
    #[must_use]
    pub fn seal(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u32(MAGIC);
        w.u64(self.head.incarnation);
        w.u64(self.head.seq);
        w.u32(self.count);
        w.bytes(self.records.as_bytes());
        seal(w)
    }
}

/// The body of the answer to a batch that is stored: its number in decimal.
#[must_use]
pub fn acknowledgement(seq: u64) -> String {
    format!("{seq}\n")
}

/// The number in such an answer.
#[must_use]
pub fn acknowledged(body: &[u8]) -> Option<u64> {
    core::str::from_utf8(body).ok()?.trim_end().parse().ok()
}

impl UsageRecord {
    /// One record as it stands in a batch: at most some 2.5 KB, mostly 150 bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let (same_fairness, same_target) =
            (self.fairness_id == self.tenant, self.target_model == self.model);
        w.u8(flag(self.exact, EXACT)
            | flag(self.streamed, STREAMED)
            | flag(self.ttft_ms.is_some(), HAS_TTFT)
            | flag(same_fairness, SAME_FAIRNESS)
            | flag(same_target, SAME_TARGET));
        w.u8(place(&EndCause::ALL, self.cause));
        w.u8(self.flow.map_or(0, |flow| place(&FlowOutcome::ALL, flow).saturating_add(1)));
        w.u64(self.id.0);
        number(&mut w, self.id.1);
        for text in [&self.request_id, &self.tenant, &self.model] {
            short_text(&mut w, text);
        }
        for (text, same) in [(&self.fairness_id, same_fairness), (&self.target_model, same_target)]
        {
            if !same {
                short_text(&mut w, text);
            }
        }
        for text in [&self.pool, &self.endpoint, &self.dropped] {
            short_text(&mut w, text);
        }
        w.u32(u32::from_le_bytes(self.priority.to_le_bytes()));
        w.u16(self.status);
        for value in [
            self.at_ms,
            self.attempts.into(),
            self.input_tokens,
            self.cached_tokens,
            self.output_tokens,
            self.reasoning_tokens,
            self.reserved_tokens,
            self.charged_tokens,
            self.queue_ms,
            self.duration_ms,
            self.request_bytes,
            self.response_bytes,
        ] {
            number(&mut w, value);
        }
        if let Some(ttft) = self.ttft_ms {
            number(&mut w, ttft);
        }
        w.into_bytes()
    }
}

fn read_record(r: &mut Reader<'_>) -> Result<UsageRecord, WireError> {
    let flags = r.u8()?;
    let has = |bit: u8| flags & bit != 0;
    let cause = {
        let at = r.position();
        let value = r.u8()?;
        let found = EndCause::ALL.get(usize::from(value)).copied();
        found.ok_or(WireError::Unknown { at, value: value.into() })?
    };
    let flow = {
        let at = r.position();
        match r.u8()? {
            0 => None,
            value => Some(
                usize::from(value)
                    .checked_sub(1)
                    .and_then(|place| FlowOutcome::ALL.get(place).copied())
                    .ok_or(WireError::Unknown { at, value: value.into() })?,
            ),
        }
    };
    let id = (r.u64()?, read_number(r)?);
    let request_id = read_text(r)?;
    let tenant = read_text(r)?;
    let model = read_text(r)?;
    let fairness_id = if has(SAME_FAIRNESS) { tenant.clone() } else { read_text(r)? };
    let target_model = if has(SAME_TARGET) { model.clone() } else { read_text(r)? };
    // Fields are read in the order in which they are written here.
    Ok(UsageRecord {
        id,
        request_id,
        tenant,
        fairness_id,
        model,
        target_model,
        cause,
        flow,
        exact: has(EXACT),
        streamed: has(STREAMED),
        pool: read_text(r)?,
        endpoint: read_text(r)?,
        dropped: read_text(r)?,
        priority: i32::from_le_bytes(r.u32()?.to_le_bytes()),
        status: r.u16()?,
        at_ms: read_number(r)?,
        attempts: u32::try_from(read_number(r)?).unwrap_or(u32::MAX),
        input_tokens: read_number(r)?,
        cached_tokens: read_number(r)?,
        output_tokens: read_number(r)?,
        reasoning_tokens: read_number(r)?,
        reserved_tokens: read_number(r)?,
        charged_tokens: read_number(r)?,
        queue_ms: read_number(r)?,
        duration_ms: read_number(r)?,
        request_bytes: read_number(r)?,
        response_bytes: read_number(r)?,
        ttft_ms: if has(HAS_TTFT) { Some(read_number(r)?) } else { None },
    })
}

fn place<T: PartialEq + Copy>(all: &[T], one: T) -> u8 {
    let place = all.iter().position(|each| *each == one);
    place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX)
}

/// LEB128: seven bits a byte, the lowest first, the top bit set but in the last.
fn number(w: &mut Writer, mut value: u64) {
    while value >= 0x80 {
        w.u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    w.u8(value as u8);
}

fn read_number(r: &mut Reader<'_>) -> Result<u64, WireError> {
    let at = r.position();
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = r.u8()?;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if shift == 63 && byte > 1 {
            return Err(WireError::Unknown { at, value: byte.into() });
        }
        value |= bits << shift;
        if byte < 0x80 {
            break;
        }
    }
    Ok(value)
}

fn short_text(w: &mut Writer, text: &str) {
    let kept = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default();
    w.u16(u16::try_from(kept.len()).unwrap_or(u16::MAX));
    w.bytes(kept.as_bytes());
}

fn read_text(r: &mut Reader<'_>) -> Result<String, WireError> {
    let at = r.position();
    let text = r.string()?;
    if text.len() > MAX_TEXT_BYTES {
        let value = u32::try_from(text.len()).unwrap_or(u32::MAX);
        return Err(WireError::Unknown { at, value });
    }
    Ok(text.to_owned())
}
