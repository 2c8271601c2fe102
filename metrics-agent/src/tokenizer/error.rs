//! Why a model's folder cannot be used.

use std::path::PathBuf;

/// What is wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// The operating system refused to read it.
    #[error("{path} cannot be read ({why}); check that it exists and that the agent may read it", path = .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// Larger than any model's.
    #[error("{path} is larger than {limit} bytes; is it the right file?", path = .path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// Bytes that are read at most.
        limit: u64,
    },
    /// More than the filter takes of a model.
    #[error(
        "{path}: templates and special tokens come to {bytes} bytes, more than {limit}; are these the right files?",
        path = .path.display()
    )]
    TooLong {
        /// The folder.
        path: PathBuf,
        /// How many there are.
        bytes: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Not what the file should hold.
    #[error("{path} is not understood ({why}); take it from the model's repository again", path = .path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
    /// The tokenizer does something that loses bytes.
    #[error("this tokenizer cannot be mapped to bytes: {0}; its model is routed approximately")]
    Unmappable(String),
}
