//! Prefix blocks as an engine's events tell them: the chain up to a block, and how many tokens it stands for.

use crate::wire::{Reader, WireError, Writer};

const BLOCK_BYTES_ON_WIRE: usize = 12;

/// One byte block that an engine's cached tokens cover whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Chain hash up to its end.
    pub hash: u64,
    /// Tokens of the prompt that lie wholly before its end; at least 1.
    pub tokens: u32,
}

/// Which blocks of an endpoint an operation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Those in the device's own memory.
    Device,
    /// Those in any tier, the device's included. Told only of endpoints that have a slower tier.
    Any,
}

impl Tier {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Device => 0,
            Self::Any => 1,
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let at = r.position();
        match r.u8()? {
            0 => Ok(Self::Device),
            1 => Ok(Self::Any),
            value => Err(WireError::Unknown { at, value: value.into() }),
        }
    }
}

/// Blocks to write (a slice at hand) or as read (still in the received buffer).
#[derive(Debug, Clone, Copy)]
pub enum BlockList<'a> {
    /// At hand.
    Slice(&'a [Block]),
    /// In a received buffer.
    Wire(BlockRun<'a>),
}

/// A run of blocks inside a received buffer.
#[derive(Debug, Clone, Copy)]
pub struct BlockRun<'a> {
    bytes: &'a [u8],
}

impl<'a> BlockList<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Slice(blocks) => blocks.len(),
            Self::Wire(run) => run.bytes.len() / BLOCK_BYTES_ON_WIRE,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` for every block, in order.
    pub fn for_each(&self, mut each: impl FnMut(Block)) {
        match self {
            Self::Slice(blocks) => blocks.iter().for_each(|block| each(*block)),
            Self::Wire(run) => {
                for chunk in run.bytes.as_chunks::<BLOCK_BYTES_ON_WIRE>().0 {
                    let [h0, h1, h2, h3, h4, h5, h6, h7, t0, t1, t2, t3] = *chunk;
                    each(Block {
                        hash: u64::from_le_bytes([h0, h1, h2, h3, h4, h5, h6, h7]),
                        tokens: u32::from_le_bytes([t0, t1, t2, t3]),
                    });
                }
            }
        }
    }

    /// The blocks as a vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Block> {
        let mut blocks = Vec::with_capacity(self.len());
        self.for_each(|block| blocks.push(block));
        blocks
    }

    /// Appends them, with their count before them.
    pub fn write(&self, w: &mut Writer) {
        w.u32(u32::try_from(self.len()).unwrap_or(u32::MAX));
        self.for_each(|block| {
            w.u64(block.hash);
            w.u32(block.tokens);
        });
    }

    /// Reads what [`write`](Self::write) wrote. Nothing is copied.
    ///
    /// # Errors
    /// If it is cut.
    pub fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let at = r.position();
        let count = r.u32()? as usize;
        let len = count.checked_mul(BLOCK_BYTES_ON_WIRE).ok_or(WireError::Truncated { at })?;
        Ok(Self::Wire(BlockRun { bytes: r.bytes(len)? }))
    }
}

impl PartialEq for BlockList<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.to_vec() == other.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn blocks_come_back_as_written() {
            let blocks = [Block { hash: u64::MAX, tokens: 1 }, Block { hash: 3, tokens: u32::MAX }];
            for blocks in [&blocks[..], &[]] {
                let mut w = Writer::new();
                BlockList::Slice(blocks).write(&mut w);
                let bytes = w.into_bytes();
                let read = BlockList::read(&mut Reader::new(&bytes)).unwrap();
                assert_eq!((read.to_vec(), read.is_empty()), (blocks.to_vec(), blocks.is_empty()));
                for len in 0..bytes.len() {
                    assert!(BlockList::read(&mut Reader::new(&bytes[..len])).is_err());
                }
            }
        }
    }
}
