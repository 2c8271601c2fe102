//! Asks and levels as bytes, for the messages between workers and the owner of the buckets.

use super::bucket_id::{BucketId, Kind};
use super::buckets::{Ask, Level};
use warmroute_shared_state::wire::{Reader, WireError, Writer};

/// Asks of a request at most: one of each kind.
const MOST: usize = Kind::ALL.len();

impl Ask {
    /// Writes a request's asks: 1 byte, and 24 for each; more than one of each kind are not written.
    pub fn write_all(asks: &[Self], to: &mut Writer) {
        let asks = asks.get(..MOST).unwrap_or(asks);
        to.u8(u8::try_from(asks.len()).unwrap_or(0));
        for ask in asks {
            to.u64(ask.bucket.to_bits());
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
            Ok(Self {
                bucket: BucketId::from_bits(from.u64()?),
                limit: from.u64()?,
                amount: from.u64()?,
            })
        };
        (0..count(from)?).map(|_| ask(from)).collect()
    }
}

impl Level {
    /// Writes the levels of a request's buckets: 1 byte, and 32 for each.
    pub fn write_all(levels: &[Self], to: &mut Writer) {
        let levels = levels.get(..MOST).unwrap_or(levels);
        to.u8(u8::try_from(levels.len()).unwrap_or(0));
        for level in levels {
            to.u64(level.bucket.to_bits());
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
                bucket: BucketId::from_bits(from.u64()?),
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
