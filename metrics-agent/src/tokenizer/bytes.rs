//! The bytes that each token id stands for.

/// Byte strings by token id, in one piece of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenBytes {
    bytes: Vec<u8>,
    /// End of each id's bytes; it begins where the one before ends.
    ends: Vec<u32>,
}

impl TokenBytes {
    /// A table of these strings; an empty one stands for "not known".
    #[must_use]
    pub fn new(strings: &[Vec<u8>]) -> Self {
        let mut table = Self::default();
        for string in strings {
            table.bytes.extend_from_slice(string);
            table.ends.push(u32::try_from(table.bytes.len()).unwrap_or(u32::MAX));
        }
        table.bytes.shrink_to_fit();
        table
    }

    /// The bytes of an id; `None` if the vocabulary has no such id or it stands for no bytes that are known.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let start = match id.checked_sub(1) {
            Some(before) => *self.ends.get(before)? as usize,
            None => 0,
        };
        let bytes = self.bytes.get(start..*self.ends.get(id)? as usize)?;
        (!bytes.is_empty()).then_some(bytes)
    }

    /// One more than the highest id.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has no ids.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}
