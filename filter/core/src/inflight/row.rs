//! A VM's row in Envoy's shared data.

use super::Counts;
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::wire::{Reader, WireError, Writer};

const MAGIC: u32 = u32::from_le_bytes(*b"WRW1");

/// Absolute counts of one VM incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// Who writes this row; 0 = nobody yet.
    pub incarnation: u64,
    /// When it last did, by Envoy's clock, in ms.
    pub heartbeat_ms: u64,
    /// Its ledger's sequence as of this row.
    pub row_seq: u64,
    /// Endpoints with requests in flight.
    pub counts: Vec<(EndpointId, Counts)>,
}

/// A row whose heartbeat is older belongs to a VM that is gone.
pub(super) const ROW_FRESH_MS: u64 = 1500;

impl Row {
    /// Whether its writer is alive.
    #[must_use]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        // Far in the future is as dead as far in the past: the clock was set back since.
        self.incarnation != 0 && now_ms.abs_diff(self.heartbeat_ms) <= ROW_FRESH_MS
    }

    /// The row as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u32(MAGIC);
        w.u64(self.incarnation);
        w.u64(self.heartbeat_ms);
        w.u64(self.row_seq);
        write_counts(&mut w, &self.counts);
        w.into_bytes()
    }

    /// Reads a row. An empty value is a row that nobody has written yet.
    ///
    /// # Errors
    /// If it is cut or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut r = Reader::new(bytes);
        let value = r.u32()?;
        if value != MAGIC {
            return Err(WireError::Unknown { at: 0, value });
        }
        let (incarnation, heartbeat_ms, row_seq) = (r.u64()?, r.u64()?, r.u64()?);
        let counts = read_counts(&mut r)?;
        r.finish()?;
        Ok(Self { incarnation, heartbeat_ms, row_seq, counts })
    }
}

pub(super) fn write_counts(w: &mut Writer, counts: &[(EndpointId, Counts)]) {
    w.u32(u32::try_from(counts.len()).unwrap_or(u32::MAX));
    for (id, counts) in counts {
        w.u64(id.0);
        w.u32(counts.requests);
        w.u32(counts.waiting);
        w.u64(counts.uncached_tokens);
    }
}

pub(super) fn read_counts(r: &mut Reader<'_>) -> Result<Vec<(EndpointId, Counts)>, WireError> {
    let count = r.u32()?;
    let mut all = Vec::new();
    for _ in 0..count {
        let id = EndpointId(r.u64()?);
        let (requests, waiting, uncached_tokens) = (r.u32()?, r.u32()?, r.u64()?);
        all.push((id, Counts { requests, waiting, uncached_tokens }));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn a_row_comes_back_as_written() {
            let counts = Counts { requests: 1, waiting: 2, uncached_tokens: u64::MAX };
            let row = Row { incarnation: 1, heartbeat_ms: 2, row_seq: 3, counts: vec![(EndpointId(4), counts)] };
            assert_eq!(Row::decode(&row.encode()), Ok(row.clone()));
            assert_eq!(Row::decode(b""), Ok(Row::default()));
            for len in 1..row.encode().len() {
                assert!(Row::decode(&row.encode()[..len]).is_err());
            }
        }

        fn a_row_goes_stale() {
            let row = Row { incarnation: 1, heartbeat_ms: 1000, ..Row::default() };
            assert!(row.is_fresh(2500) && !row.is_fresh(2501));
            assert!(row.is_fresh(900), "a clock that steps back a little does not kill the row");
            let row = Row { incarnation: 1, heartbeat_ms: 3_600_000, ..Row::default() };
            assert!(!row.is_fresh(1000), "nor does one that steps back far keep a dead one");
            assert!(!Row::default().is_fresh(0));
        }
    }
}
