//! Asks and levels as bytes, for the messages between workers and the owner of the buckets.

use super::bucket_id::{BucketId, Kind};
use super::buckets::{Ask, Level};
use warmroute_shared_state::wire::{Reader, WireError, Writer};

/// Asks of a request at most: one of each kind.
const MOST: usize = Kind::ALL.len();

impl BucketId {
    /// Writes 9 bytes.
    pub fn write(&self, to: &mut Writer) {
        let place = Kind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or(0);
        to.u8(u8::try_from(place).unwrap_or(0));
        to.u64(self.key);
    }

    /// Reads what [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// If it is cut off or of no known kind.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let at = from.position();
        let place = from.u8()?;
        let unknown = WireError::Unknown { at, value: place.into() };
        let kind = *Kind::ALL.get(usize::from(place)).ok_or(unknown)?;
        Ok(Self { kind, key: from.u64()? })
    }
}

impl Ask {
    /// Writes a request's asks: 1 byte, and 25 for each; more than one of each kind are not written.
    pub fn write_all(asks: &[Self], to: &mut Writer) {
        let asks = asks.get(..MOST).unwrap_or(asks);
        to.u8(u8::try_from(asks.len()).unwrap_or(0));
        for ask in asks {
            ask.bucket.write(to);
            to.u64(ask.limit);
            to.u64(ask.amount);
        }
    }

    /// Reads what [`write_all`](Self::write_all) wrote.
    ///
    /// # Errors
    /// If it is cut off, or not of that form.
    pub fn read_all(from: &mut Reader<'_>) -> Result<Vec<Self>, WireError> {
        let ask = |from: &mut Reader<'_>| {
            Ok(Self { bucket: BucketId::read(from)?, limit: from.u64()?, amount: from.u64()? })
        };
        (0..count(from)?).map(|_| ask(from)).collect()
    }
}

impl Level {
    /// Writes the levels of a request's buckets: 1 byte, and 33 for each.
    pub fn write_all(levels: &[Self], to: &mut Writer) {
        let levels = levels.get(..MOST).unwrap_or(levels);
        to.u8(u8::try_from(levels.len()).unwrap_or(0));
        for level in levels {
            level.bucket.write(to);
            to.u64(level.limit);
            to.u64(level.balance.cast_unsigned());
            to.u64(level.reset_ms);
        }
    }

    /// Reads what [`write_all`](Self::write_all) wrote.
    ///
    /// # Errors
    /// If it is cut off, or not of that form.
    pub fn read_all(from: &mut Reader<'_>) -> Result<Vec<Self>, WireError> {
        let level = |from: &mut Reader<'_>| {
            Ok(Self {
                bucket: BucketId::read(from)?,
                limit: from.u64()?,
                balance: from.u64()?.cast_signed(),
                reset_ms: from.u64()?,
            })
        };
        (0..count(from)?).map(|_| level(from)).collect()
    }
}

fn count(from: &mut Reader<'_>) -> Result<usize, WireError> {
    let at = from.position();
    let count = from.u8()?;
    if usize::from(count) > MOST {
        return Err(WireError::Unknown { at, value: count.into() });
    }
    Ok(count.into())
}
