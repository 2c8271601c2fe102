//! What it takes to know what engines hold: how fast their KV events are read, and the memory of it.

mod kv_rate;
mod kv_scale;

use crate::processes::ProcessError;

pub use kv_rate::KvRate;
pub use kv_scale::{KvScale, kv_scale};

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A program did not do its part.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A socket, a file or a program.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The agent's measurement of KV events failed.
    #[error("kv_index_bench printed no figures: {0}")]
    KvRate(String),
}
