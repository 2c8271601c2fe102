//! The sum of all fresh rows, in one value that a pick reads.

use super::Counts;
use super::row::{Row, read_counts, write_counts};
use std::collections::BTreeMap;
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::wire::{Reader, WireError, Writer};

const MAGIC: u32 = u32::from_le_bytes(*b"WRT1");

/// What the applier added up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    rows: Vec<(u64, u64)>,
    counts: Vec<(EndpointId, Counts)>,
}

impl Totals {
    /// Adds the rows up.
    #[must_use]
    pub fn add_up<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut included = Vec::new();
        let mut counts: BTreeMap<EndpointId, Counts> = BTreeMap::new();
        for row in rows {
            included.push((row.incarnation, row.row_seq));
            for (id, own) in &row.counts {
                let sum = counts.entry(*id).or_default();
                *sum = sum.plus(*own);
            }
        }
        included.sort_unstable();
        Self { rows: included, counts: counts.into_iter().collect() }
    }

    /// Counts of one endpoint.
    #[must_use]
    pub fn counts(&self, id: EndpointId) -> Counts {
        let found = self.counts.binary_search_by_key(&id, |(id, _)| *id);
        found.ok().and_then(|at| self.counts.get(at)).map(|(_, c)| *c).unwrap_or_default()
    }

    /// Every endpoint with requests in flight.
    #[must_use]
    pub fn all(&self) -> &[(EndpointId, Counts)] {
        &self.counts
    }

    /// How many rows were added up.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Up to which sequence the row of `incarnation` is included, if it is at all.
    #[must_use]
    pub fn included(&self, incarnation: u64) -> Option<u64> {
        let found = self.rows.binary_search_by_key(&incarnation, |(who, _)| *who);
        found.ok().and_then(|at| self.rows.get(at)).map(|(_, seq)| *seq)
    }

    /// The totals as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u32(MAGIC);
        w.u16(u16::try_from(self.rows.len()).unwrap_or(u16::MAX));
        for (incarnation, row_seq) in self.rows.iter().take(usize::from(u16::MAX)) {
            w.u64(*incarnation);
            w.u64(*row_seq);
        }
        write_counts(&mut w, &self.counts);
        w.into_bytes()
    }

    /// Reads totals; an empty value means that nothing was added up yet.
    ///
    /// # Errors
    /// If they are cut or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut r = Reader::new(bytes);
        let value = r.u32()?;
        if value != MAGIC {
            return Err(WireError::Unknown { at: 0, value });
        }
        let count = r.u16()?;
        let mut rows = Vec::new();
        for _ in 0..count {
            rows.push((r.u64()?, r.u64()?));
        }
        let counts = read_counts(&mut r)?;
        r.finish()?;
        Ok(Self { rows, counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn totals_come_back_as_written() {
            let counts = Counts { requests: 1, waiting: 1, uncached_tokens: 7 };
            let rows = [9, 3].map(|incarnation| Row {
                incarnation,
                heartbeat_ms: 0,
                row_seq: incarnation + 1,
                counts: vec![(EndpointId(5), counts), (EndpointId(incarnation), counts)],
            });
            let totals = Totals::add_up(rows.iter());
            assert_eq!(Totals::decode(&totals.encode()), Ok(totals.clone()));
            assert_eq!(totals.counts(EndpointId(5)), counts.plus(counts));
            assert_eq!(totals.included(3), Some(4));
            assert_eq!(totals.included(4), None);
            assert_eq!(Totals::decode(b""), Ok(Totals::default()));
        }
    }
}
