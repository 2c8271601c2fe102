//! What the chunks of a stream begin with: hundreds of bytes that are the same in each (`id`, `created`, `model`), read
//! once.
//!
//! A push scanner's state after some bytes is a function of these bytes. So the state after the opening is kept, and a
//! chunk that begins with the same bytes is read from there on: what comes out is the same as without.

use super::chunk::ChunkReader;
use crate::json::{JsonError, Scanner};
use core::fmt;

/// Bytes of an opening that are kept at most.
const MOST: usize = 512;

/// A shorter one is not worth the copies of the state.
const LEAST: usize = 32;

/// The opening that chunks had in common so far.
#[derive(Clone, Default)]
pub(super) struct Opening {
    known: Option<Box<Known>>,
    /// How the last chunk began that did not begin as known.
    last: Vec<u8>,
}

#[derive(Clone)]
struct Known {
    bytes: Vec<u8>,
    /// What reads a chunk, after these bytes.
    scanner: Scanner,
    chunk: ChunkReader,
}

impl Opening {
    /// Reads the beginning of a chunk, as much of it as is there.
    pub(super) fn read(
        &mut self,
        piece: &[u8],
        scanner: &mut Scanner,
        chunk: &mut ChunkReader,
    ) -> Result<(), JsonError> {
        if let Some(known) = &self.known
            && let Some(rest) = piece.strip_prefix(known.bytes.as_slice())
        {
            scanner.clone_from(&known.scanner);
            chunk.clone_from(&known.chunk);
            return scanner.feed(rest, chunk);
        }
        *scanner = Scanner::new();
        *chunk = ChunkReader::new();
        if self.known.as_ref().is_some_and(|known| known.bytes.starts_with(piece)) {
            // Cut within the opening: it says nothing against it.
            return scanner.feed(piece, chunk);
        }
        let same = self.last.iter().zip(piece).take_while(|(a, b)| a == b).count();
        self.last.clear();
        self.last.extend_from_slice(piece.get(..MOST).unwrap_or(piece));
        let Some((bytes, rest)) = piece.split_at_checked(same).filter(|_| same >= LEAST) else {
            return scanner.feed(piece, chunk);
        };
        scanner.feed(bytes, chunk)?;
        let (bytes, at, fields) = (bytes.to_vec(), scanner.clone(), chunk.clone());
        self.known = Some(Box::new(Known { bytes, scanner: at, chunk: fields }));
        scanner.feed(rest, chunk)
    }
}

/// Sizes only: it holds some of an answer.
impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.as_ref().map_or(0, |known| known.bytes.len());
        f.debug_struct("Opening").field("known_bytes", &known).finish_non_exhaustive()
    }
}
